-- The event log: what happened in the project, as a stream of blocks of records (actors/src/storage/events).
--
-- A replica records what it causes itself: it appends a block with a command of its own, since Redis hashes what comes
-- into Lua to its last byte, and notes it afterwards (note_blocks). What happens inside the functions is recorded here:
-- released messages, dead letters, redrives, ended sessions and changes of questions. Readers see the blocks up to the last noted one.
--
-- The log is not part of what timeline.lua compares: when blocks are lost alone, no project has to be opened again.
-- Its incarnation changes with the epoch of the data set, so that no position names an event that was lost.
--
-- Keys  events (stream: field b -> block), events:blocks (list: BLOCK of each noted block, the oldest first), events:log
--       (hash: incarnation, and the epoch in which it began; bytes and accepted messages of the noted blocks; last: id of
--       the last noted block, and its number of records; trimmed: the same of the last deleted one)

-- A block that is noted: milliseconds and sequence number of its id, records, accepted messages, bytes.
local BLOCK, BLOCK_LEN = '>ddI4I4I4', 28
-- The header of a block without its times: version, records, accepted messages.
local VERSION, HEADER_LEN, BLOCK_BYTES = 1, 25, 65536
-- Bytes that a block costs beside its records and header.
local BLOCK_COST = 64
-- Blocks that one call deletes.
local TRIMMED_MAX = 1000
-- Kinds of records, and the numbers of reasons.
local RELEASED, DEAD_LETTERED, REDRIVEN, SESSION, QUESTION = 4, 5, 6, 7, 12
-- The change of a session that ended.
local ENDED = '\6'
local REASONS = { x = 0, l = 1, g = 2, r = 3, t = 4 }

-- Records of this call without their lengths: kind, time, fields. Blocks to note. The ids of sessions as bytes.
local records, noted, packed_sessions
-- The hash events:log, once it is read.
local log

each_call(function()
  records, noted, packed_sessions, log = {}, {}, {}, false
end)

-- The number of a new incarnation: the time, and 11 bits of the name of the project, so that logs which two projects begin
-- in the same millisecond are told apart. Below 2^53 until the year 2109.
local function new_incarnation()
  return now * 2048 + tonumber(sub(redis.sha1hex(key('events')), 1, 3), 16) % 2048
end

local function read_log()
  if not log then
    local incarnation, epoch, bytes, accepted, last, last_records, trimmed, trimmed_records = unpack(call('HMGET',
      key('events:log'), 'incarnation', 'epoch', 'bytes', 'accepted', 'last', 'last_records', 'trimmed', 'trimmed_records'))
    log = {
      incarnation = tonumber(incarnation or 0), epoch = epoch, bytes = tonumber(bytes or 0), accepted = tonumber(accepted or 0),
      last = last or '0-0', last_records = last_records or '0', trimmed = trimmed or '0-0',
      trimmed_records = trimmed_records or '0',
    }
    local current = timeline.epoch()
    if log.epoch ~= current then
      log.incarnation, log.epoch = math.max(new_incarnation(), log.incarnation + 1), current
      call('HSET', key('events:log'), 'incarnation', int_text(log.incarnation), 'epoch', current)
    end
  end
  return log
end

-- Whether an id of the stream is higher than another one.
local function is_above(ms, seq, id)
  local other_ms, other_seq = string.match(id, '^(%d+)-(%d+)$')
  other_ms, other_seq = tonumber(other_ms), tonumber(other_seq)
  return ms > other_ms or ms == other_ms and seq > other_seq
end

local function id_text(ms, seq)
  return int_text(ms) .. '-' .. int_text(seq)
end

-- Deletes the oldest blocks while there are too many accepted messages or bytes, and those that are too old.
local function trim()
  local state, oldest_ms, above = read_log(), now - bounds.events_ms, false
  for _ = 1, TRIMMED_MAX do
    local block = call('LINDEX', key('events:blocks'), 0)
    if not block then
      break
    end
    local ms, seq, len, accepted, bytes = unpack_bytes(BLOCK, block)
    local is_within = state.accepted <= bounds.events_accepted and state.bytes <= bounds.events_bytes and ms >= oldest_ms
    -- Replicas may note their blocks in another order.
    if is_within and is_above(ms, seq, state.trimmed) then
      break
    end
    call('LPOP', key('events:blocks'))
    state.accepted, state.bytes = state.accepted - accepted, state.bytes - bytes - BLOCK_COST
    if is_above(ms, seq, state.trimmed) then
      state.trimmed, state.trimmed_records, above = id_text(ms, seq), int_text(len), id_text(ms, seq + 1)
    end
  end
  if above then
    call('XTRIM', key('events'), 'MINID', above)
  end
end

-- Writes what noting and trimming have changed.
local function write_log()
  local state = read_log()
  call('HSET', key('events:log'), 'bytes', int_text(state.bytes), 'accepted', int_text(state.accepted), 'last', state.last,
    'last_records', state.last_records, 'trimmed', state.trimmed, 'trimmed_records', state.trimmed_records)
end

-- Notes blocks that are in the stream.
local function note(blocks)
  local state = read_log()
  for at = 1, #blocks do
    local ms, seq, len, accepted, bytes = unpack_bytes(BLOCK, blocks[at])
    state.bytes, state.accepted = state.bytes + bytes + BLOCK_COST, state.accepted + accepted
    if is_above(ms, seq, state.last) then
      state.last, state.last_records = id_text(ms, seq), int_text(len)
    end
  end
  call_in_steps('RPUSH', key('events:blocks'), blocks, 1)
  trim()
  write_log()
end

-- A number of a record: 7 bits a byte, the low ones first.
local function number(value)
  local text = ''
  while value >= 128 do
    text, value = text .. string.char(128 + value % 128), math.floor(value / 128)
  end
  return text .. string.char(value)
end

-- The id of a session as bytes.
local function packed_session(session)
  local packed = packed_sessions[session]
  if not packed then
    packed = string.gsub(string.gsub(session, '-', ''), '..', function(digits)
      return string.char(tonumber(digits, 16))
    end)
    packed_sessions[session] = packed
  end
  return packed
end

local function record(kind, fields)
  records[#records + 1] = { kind = kind, ms = tonumber(at_ms), fields = fields }
end

-- Records what happened to a message, where the log does.
local function record_message(kind, fields)
  if bounds.records_messages then
    record(kind, fields)
  end
end

-- Records that a session was removed. `name` is false for one without a name.
function events.session_ended(session, name)
  record(SESSION, packed_session(session) .. ENDED .. number(#(name or '')) .. (name or ''))
end

-- Records a change of a question, whose fields the replica has written.
function events.question(fields)
  record(QUESTION, fields)
end

-- Records that a message that was delivered waits again.
local function released(id, session)
  record_message(RELEASED, id .. packed_session(session))
end

-- The same of an entry, which may be a segment.
function events.released(entry, session)
  if count_of(entry) == 1 then
    return released(id_of(entry), session)
  end
  for _, id in ipairs(ids_in(segments.ids_of(id_of(entry)))) do
    released(id, session)
  end
end

-- Records that a message was given up. The code of the reason is that of its receipt.
function events.dead_lettered(id, session, reason, deliveries)
  record_message(DEAD_LETTERED, id .. packed_session(session) .. string.char(REASONS[reason]) .. number(deliveries))
end

-- Records that a dead letter waits again, for another session or the same.
function events.redriven(id, session, from)
  record_message(REDRIVEN, id .. packed_session(session) .. packed_session(from))
end

-- The difference of two times as a number: low bit 1 for one below 0.
local function difference(ms, from)
  return number(ms >= from and 2 * (ms - from) or 2 * (from - ms) - 1)
end

-- Appends a block to the stream, and notes it at the end of the call.
local function append_block(text)
  local ms, seq = string.match(call('XADD', key('events'), '*', 'b', text), '^(%d+)-(%d+)$')
  local _, len, accepted = unpack_bytes('>BI4I4', text)
  noted[#noted + 1] = pack(BLOCK, tonumber(ms), tonumber(seq), len, accepted, #text)
end

-- The header of a block that accepts nothing.
local function header(count, first_ms, last_ms)
  return pack('>BI4I4I4I4I4I4', VERSION, count, 0, math.floor(first_ms / 2 ^ 32), first_ms % 2 ^ 32,
    math.floor(last_ms / 2 ^ 32), last_ms % 2 ^ 32)
end

-- Appends the records of this call, and notes all blocks.
function events.flush()
  local parts, count, bytes, first_ms, last_ms = {}, 0, HEADER_LEN, 0, 0
  for at = 1, #records do
    local one = records[at]
    if count == 0 then
      first_ms, last_ms = one.ms, one.ms
    end
    local text = string.char(one.kind) .. difference(one.ms, first_ms) .. one.fields
    text = number(#text) .. text
    count, last_ms, bytes = count + 1, math.max(last_ms, one.ms), bytes + #text
    parts[count] = text
    if bytes >= BLOCK_BYTES or at == #records then
      append_block(header(count, first_ms, last_ms) .. table.concat(parts))
      parts, count, bytes = {}, 0, HEADER_LEN
    end
  end
  records = {}
  if #noted > 0 then
    note(noted)
    noted = {}
  end
end

-- Deletes what is older than events are kept.
function events.sweep()
  events.flush()
  local oldest = call('LINDEX', key('events:blocks'), 0)
  if oldest and unpack_bytes('>d', oldest) < now - bounds.events_ms then
    trim()
    write_log()
  end
end

-- append_blocks: appends blocks of a replica, before an operation that records something itself.
--
-- Input   the blocks
-- Output  nothing
-- Keys    events, events:blocks, events:log
ops.append_blocks = function(last)
  while cursor < last do
    append_block(read_text())
  end
  return {}
end

-- note_blocks: notes blocks that a replica has appended, and deletes the oldest where there is too much.
--
-- Input   BLOCK of each
-- Output  nothing
-- Keys    events, events:blocks, events:log
ops.note_blocks = function(last)
  while cursor < last do
    noted[#noted + 1] = read_text()
  end
  return {}
end

-- event_log: what the log holds.
--
-- Input   nothing
-- Output  incarnation; id of the oldest block or ''; id of the last block (0-0: there was none) and its number of records;
--         id of the last deleted block (0-0: none) and its number of records
-- Keys    events:log, events:blocks (read)
ops.event_log = function()
  events.flush()
  local state, oldest = read_log(), call('LINDEX', key('events:blocks'), 0)
  local oldest_id = ''
  if oldest then
    local ms, seq = unpack_bytes(BLOCK, oldest)
    oldest_id = id_text(ms, seq)
  end
  return { int_text(state.incarnation), oldest_id, state.last, state.last_records, state.trimmed, state.trimmed_records }
end
