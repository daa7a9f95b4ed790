-- Yaps: those that are held for the order, and the last ones that were shown. The clock of the server decides when a yap
-- arrives and when it is due.
--
-- A place is the time of a yap (8 bytes), its sender (16) and its number (8): places ascend in the order of showing.
--
-- Keys  yaps (hash: seq, last_at -> number of the last shown yap, latest time that was shown; number, received -> number and
--       time of the last arrival; held_bytes, shown_bytes), yaps:held (hash: place -> yap), yaps:order (sorted set: place, in
--       its order), yaps:arrivals (sorted set: place by arrival), yaps:senders (sorted set: sender by the time of its last
--       yap), yaps:shown (list: SHOWN and yap, the oldest first)

local HELD_MAX, HELD_BYTES_MAX = contract.HELD_YAPS_MAX, contract.HELD_YAPS_BYTES_MAX
local SHOWN_MAX, SHOWN_BYTES_MAX = contract.YAPS_MAX, contract.YAPS_BYTES_MAX
local RETENTION_MS, BACKDATE_MAX_MS = contract.YAPS_RETENTION_MS, contract.YAP_BACKDATE_MS
-- Yaps that one call releases.
local RELEASE_MAX = 500
local PLACE = '>dc16d'
-- Before a shown yap: its time, and 1 when it is late.
local SHOWN, YAP_AT = '>dB', 10

-- Replies of hold_yap.
local HELD, LATE, FULL = 0, 1, 2

-- The numbers of the project.
local function read_state()
  local fields = call('HMGET', key('yaps'), 'seq', 'last_at', 'number', 'received', 'held_bytes', 'shown_bytes')
  for at = 1, 6 do
    fields[at] = tonumber(fields[at] or 0)
  end
  return {
    seq = fields[1], last_at = fields[2], number = fields[3], received = fields[4], held_bytes = fields[5],
    shown_bytes = fields[6],
  }
end

local function write_state(state)
  timeline.has_changed = true
  call('HSET', key('yaps'), 'seq', int_text(state.seq), 'last_at', int_text(state.last_at), 'number',
    int_text(state.number), 'received', int_text(state.received), 'held_bytes', int_text(state.held_bytes),
    'shown_bytes', int_text(state.shown_bytes))
end

-- hold_yap: holds a yap until release_yaps gives it its place.
--
-- Input   sender (16 bytes), time by the sender or '', yap
-- Output  HELD; LATE when a later one was shown; FULL
-- Keys    yaps, yaps:held, yaps:order, yaps:arrivals, yaps:senders
ops.hold_yap = function()
  local sender, sent_at, yap = read_text(), tonumber(read_text()), read_text()
  local state = read_state()
  if call('HLEN', key('yaps:held')) >= HELD_MAX or state.held_bytes + #yap > HELD_BYTES_MAX then
    return { FULL }
  end
  state.received = math.max(state.received, now)
  local earliest = state.received - BACKDATE_MAX_MS
  local at = math.max(earliest, math.min(sent_at or state.received, state.received))
  at = math.max(at, tonumber(call('ZSCORE', key('yaps:senders'), sender) or 0))
  call('ZADD', key('yaps:senders'), int_text(at), sender)
  state.number, state.held_bytes = state.number + 1, state.held_bytes + #yap
  local place = pack(PLACE, at, sender, state.number)
  call('HSET', key('yaps:held'), place, yap)
  call('ZADD', key('yaps:order'), 0, place)
  call('ZADD', key('yaps:arrivals'), int_text(now), place)
  write_state(state)
  return { at < state.last_at and LATE or HELD }
end

local function forget_oldest(state)
  state.shown_bytes = state.shown_bytes - #call('LPOP', key('yaps:shown')) + YAP_AT - 1
end

-- Forgets the yaps that were shown too long ago or are too many, and the senders whose last yap no longer matters.
local function forget_old(state)
  while call('LLEN', key('yaps:shown')) > SHOWN_MAX do
    forget_oldest(state)
  end
  while state.shown_bytes > SHOWN_BYTES_MAX and call('LLEN', key('yaps:shown')) > 1 do
    forget_oldest(state)
  end
  local oldest = call('LINDEX', key('yaps:shown'), 0)
  while oldest and unpack_bytes(SHOWN, oldest) + RETENTION_MS <= now do
    forget_oldest(state)
    oldest = call('LINDEX', key('yaps:shown'), 0)
  end
  call('ZREMRANGEBYSCORE', key('yaps:senders'), '-inf', int_text(now - BACKDATE_MAX_MS))
end

-- Forgets what is old while no yap comes.
function yaps.sweep()
  local oldest = call('LINDEX', key('yaps:shown'), 0)
  if oldest and unpack_bytes(SHOWN, oldest) + RETENTION_MS <= now then
    local state = read_state()
    forget_old(state)
    write_state(state)
  end
end

-- The number of held yaps, from the first in the order on, that are to be shown: those that are held long enough, those
-- that came too late, and all before either. After the clock of the server went back all earlier arrivals are due.
local function due_len(state, delay)
  local before_last = '(' .. pack('>d', state.last_at)
  local len = call('ZLEXCOUNT', key('yaps:order'), '-', before_last)
  local due = call('ZRANGE', key('yaps:arrivals'), '-inf', int_text(now - delay), 'BYSCORE')
  local from_future = call('ZRANGE', key('yaps:arrivals'), '(' .. int_text(now), '+inf', 'BYSCORE')
  for _, places in ipairs({ due, from_future }) do
    for at = 1, #places do
      len = math.max(len, call('ZRANK', key('yaps:order'), places[at]) + 1)
    end
  end
  return len
end

-- Shows these held yaps. Adds them to the reply.
local function show(state, places, reply)
  local held, shown = hash_fields(key('yaps:held'), places), {}
  for at = 1, #places do
    local time, yap = unpack_bytes('>d', places[at]), held[at]
    local is_late = time < state.last_at
    state.seq, state.last_at = state.seq + 1, math.max(state.last_at, time)
    state.held_bytes, state.shown_bytes = state.held_bytes - #yap, state.shown_bytes + #yap
    shown[at] = pack(SHOWN, time, is_late and 1 or 0) .. yap
    reply[#reply + 1] = shown[at]
  end
  call_in_steps('RPUSH', key('yaps:shown'), shown, 1)
  call_in_steps('HDEL', key('yaps:held'), places, 1)
  call_in_steps('ZREM', key('yaps:order'), places, 1)
  call_in_steps('ZREM', key('yaps:arrivals'), places, 1)
end

-- release_yaps: shows the held yaps that are due.
--
-- Input   milliseconds for which yaps are held; a frame before and after the number of the last shown yap
-- Output  milliseconds until the next is due, or -1; the number of the first shown yap; the shown ones
-- Keys    all of this file
ops.release_yaps = function()
  local delay, head, tail = read_number(), read_text(), read_text()
  local state = read_state()
  local len = due_len(state, delay)
  local places = len > 0 and call('ZRANGE', key('yaps:order'), 0, math.min(len, RELEASE_MAX) - 1) or {}
  local reply = { -1, state.seq + 1 }
  if #places > 0 then
    show(state, places, reply)
    forget_old(state)
    write_state(state)
    frames.publish(head .. int_text(state.seq) .. tail, 0)
  end
  local next_place = call('ZRANGE', key('yaps:arrivals'), 0, 0, 'WITHSCORES')
  if len > #places then
    reply[1] = 0
  elseif next_place[2] then
    reply[1] = math.max(0, tonumber(next_place[2]) + delay - now)
  end
  return reply
end

-- yaps: the yaps that were shown.
--
-- Input   number behind which the list begins, or ''; most yaps
-- Output  the number of the first, then the yaps
-- Keys    yaps (read), yaps:shown (read)
ops.yaps = function()
  local after, limit = tonumber(read_text()), read_number()
  local last, len = tonumber(call('HGET', key('yaps'), 'seq') or 0), call('LLEN', key('yaps:shown'))
  local first_kept = last - len + 1
  local first = after and math.max(after + 1, first_kept) or math.max(last - limit + 1, first_kept)
  if limit == 0 or first > last then
    return { 0 }
  end
  local from = first - first_kept
  local to = math.min(from + limit, len) - 1
  local reply = call('LRANGE', key('yaps:shown'), int_text(from), int_text(to))
  table.insert(reply, 1, first)
  return reply
end
