-- The function library that carries out the operations of one project (Redis 7 or later, FUNCTION LOAD).
--
-- One call carries out many operations in their order, as one transaction (run.lua). Every file but this one is a block
-- of its own, in the order of library.rs: what other files use is a field of the file's table below. A file that
-- imports a function under a local name (`local inbox_of = inboxes.of`) comes after the file that defines it.
-- A variable lives as long as the server, in all of its databases; what belongs to one call is set by each_call.
--
-- Input   KEYS  one key of the project; all keys of the project are in its slot
--         ARGV  prefix of the keys; channel of the event frames (the channel of a replica adds ':' and its id); the
--               halves of a wake-up frame and of a progress frame around what they are about (4); head of a delivery
--               batch; id of the calling replica (16 bytes); number of this batch; bounds, packed (BOUNDS); the data set
--               (DATA_SET); what the replica has seen of the timeline: tokens or '', position; number of sessions that the
--               operations name, their ids; then the operations: name, number of arguments, arguments. A session in an
--               argument is its place among the ids, counted from 1.
-- Output  one reply for each operation: an array, or a text that begins with '!' for one that failed; then an array of
--         the messages that the caller reads itself: number of the reply, position in it, entry; then an array of the
--         progress of tracked messages: id, status; then the witness (timeline.lua). A batch that was refused because
--         it belongs to an older data set gets the witness alone.

-- Before this text comes the table 'contract', with the bounds that hold in all storages (library.rs).

local ARGV
local PREFIX, CHANNEL, WAKEUP_HEAD, WAKEUP_TAIL, PROGRESS_HEAD, PROGRESS_TAIL, DELIVERY_HEAD, REPLICA, BATCH
-- The number of the database and the id of the broker whose data it holds. The databases of a server share one library:
-- what a function remembers from one call to the next, it remembers of one data set.
local DATA_SET
local SESSIONS_LEN
local SESSIONS_AT = 14
-- How many receipts, dead letters, idempotency keys and cross-project messages are kept; the idempotency window in
-- milliseconds; bytes: of one inbox, of all inboxes, of dead letters, of idempotency keys with their results, of the
-- records of sessions; of the event log: 1 when it records messages, milliseconds for which it is kept, accepted
-- messages, bytes; of questions to people: bytes, closed ones, milliseconds for which these are kept.
local BOUNDS = '>ddddddddddddddddd'
local bounds

-- Flags, byte 17 of an entry: 1 has several recipients and is counted in 'copies'; 2 its sender follows its progress;
-- 4 has a deadline. The four higher bits hold the number of messages of a segment less one.
local MULTI_RECIPIENT, TRACKED, HAS_DEADLINE = 1, 2, 4
-- Most values that one command takes: the stack of Lua has no room for more.
local VALUES_MAX = 4000

-- The tables by which the files use each other.
local frames, usage, copies, messages, receipts, dead_letters, inboxes, queues, leases, segments =
  {}, {}, {}, {}, {}, {}, {}, {}, {}, {}
local expiry, pushes, group_leases, idempotency, call_receipts, acknowledgements, releases, presence, events =
  {}, {}, {}, {}, {}, {}, {}, {}, {}
local questions, yaps = {}, {}
-- The data set (timeline.lua): the value of 'epoch' (tokens), the position on its timeline, whether this call has
-- changed something, whether it has moved the position.
local timeline = { tokens = false, position = 0, has_changed = false, has_moved = false }
-- The operations, by name.
local ops = {}

-- What every function calls, found once per call: a look at a global takes as long as the call itself. Globals are not
-- available before a function is called.
local function globals()
  return redis.call, tonumber, unpack, pairs, math, table, string.byte, string.sub, string.format, bit.band, struct.pack,
    struct.unpack
end
local call, tonumber, unpack, pairs, math, table, byte, sub, format, band, pack, unpack_bytes

-- Milliseconds by the clock of the server. It decides about deadlines, silence and idempotency keys.
local now
-- Milliseconds by the clock of the caller, as text. People are shown it; see read_time.
local at_ms
-- The position of the last argument that was read.
local cursor
-- The number of the reply to the operation that is being carried out.
local reply_number

local beginnings = {}

-- Runs `begin` at the beginning of each call.
local function each_call(begin)
  beginnings[#beginnings + 1] = begin
end

-- A whole number as text, without an exponent.
local function int_text(number)
  return format('%.0f', number)
end

each_call(function()
  call, tonumber, unpack, pairs, math, table, byte, sub, format, band, pack, unpack_bytes = globals()
  PREFIX, CHANNEL, WAKEUP_HEAD, WAKEUP_TAIL, PROGRESS_HEAD, PROGRESS_TAIL = unpack(ARGV, 1, 6)
  DELIVERY_HEAD, REPLICA, BATCH = ARGV[7], ARGV[8], tonumber(ARGV[9])
  if not bounds or bounds.packed ~= ARGV[10] then
    bounds = { packed = ARGV[10] }
    bounds.receipts, bounds.dead_letters, bounds.keys, bounds.cross_project, bounds.window_ms, bounds.queue_bytes,
      bounds.waiting_bytes, bounds.dead_letters_bytes, bounds.idempotency_bytes, bounds.sessions_bytes,
      bounds.records_messages, bounds.events_ms, bounds.events_accepted, bounds.events_bytes,
      bounds.questions_bytes, bounds.closed_questions, bounds.questions_ms = unpack_bytes(BOUNDS, ARGV[10])
    bounds.records_messages = bounds.records_messages == 1
  end
  DATA_SET = ARGV[11]
  SESSIONS_LEN = tonumber(ARGV[SESSIONS_AT])
  cursor = SESSIONS_AT + SESSIONS_LEN
  timeline.has_changed, timeline.has_moved = false, false
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
  at_ms = int_text(now)
end)

-- Readers of the arguments of an operation, in their order.

local function read_text()
  cursor = cursor + 1
  return ARGV[cursor]
end

local function read_number()
  return tonumber(read_text())
end

local function read_flag()
  return read_text() == '1'
end

-- The time of the caller, which every operation that writes times begins with.
local function read_time()
  at_ms = read_text()
end

-- The id of the session at a place among the ids.
local function session_at(place)
  return ARGV[SESSIONS_AT + place]
end

local function read_session()
  return session_at(tonumber(read_text()))
end

-- The full name of a key of the project. keys.rs lists all of them.
local function key(name)
  return PREFIX .. name
end

-- Calls a command with any number of values, in steps. Their number is a multiple of `of`. `option` precedes them.
local function call_in_steps(command, name, values, of, option)
  local step = VALUES_MAX - VALUES_MAX % of
  for first = 1, #values, step do
    local last = math.min(first + step - 1, #values)
    if option then
      call(command, name, option, unpack(values, first, last))
    else
      call(command, name, unpack(values, first, last))
    end
  end
end

-- Calls a command that gives one value for each of these names, in steps. Returns the values; false for a missing one.
local function values_of(command, name, names)
  local values = {}
  for first = 1, #names, VALUES_MAX do
    local part = call(command, name, unpack(names, first, math.min(first + VALUES_MAX - 1, #names)))
    for at = 1, #part do
      values[first + at - 1] = part[at]
    end
  end
  return values
end

-- The values of these fields of a hash; false for a missing one.
local function hash_fields(name, wanted)
  return values_of('HMGET', name, wanted)
end

local function uuid_text(bytes)
  local hex = string.gsub(bytes, '.', function(one)
    return format('%02x', byte(one))
  end)
  return table.concat({
    sub(hex, 1, 8), sub(hex, 9, 12), sub(hex, 13, 16), sub(hex, 17, 20), sub(hex, 21),
  }, '-')
end

-- An entry stands for a message or a segment in an inbox: id (16 bytes), flags (1), bytes of the envelopes (4).

local function id_of(entry)
  return sub(entry, 1, 16)
end

local function has_flag(entry, flag)
  return band(byte(entry, 17), flag) ~= 0
end

-- The bytes of the envelope of a message, or of all envelopes of a segment.
local function bytes_of(entry)
  return (unpack_bytes('>I4', entry, 18))
end

-- The number of messages that an entry stands for.
local function count_of(entry)
  return math.floor(byte(entry, 17) / 16) + 1
end

-- The ids that are packed one after the other.
local function ids_in(packed)
  local ids = {}
  for at = 1, #packed, 16 do
    ids[#ids + 1] = sub(packed, at, at + 15)
  end
  return ids
end
