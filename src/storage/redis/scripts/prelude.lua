-- Carries out operations of one project, in their order, as one transaction. This part: what all of them share.
--
-- A library of functions (Redis 7, FUNCTION LOAD): what is defined here is defined once and for all calls, and what belongs
-- to one call is set by 'each_time'. The parts are joined in the order prelude, letters, inboxes, bundles, posts, delivery,
-- timeline, settling, returned, seats, records, main.
--
-- Keys       a key of the project: all its keys are in the slot of this one.
-- Arguments  prefix of the keys; channel of the frames, to which that of each replica adds ':' and its id; a frame of
--            waiting inboxes and one of progress, each in two halves around what it is about; how a parcel begins; this
--            replica (16 bytes); number of this batch; the bounds, packed (see BOUNDS); what this replica has seen
--            (timeline.lua): tokens or '', and a position; how many sessions the operations name, and their ids; then the
--            operations: name, number of arguments, arguments. A session is named by its place among the ids.
-- Reply      one reply for each operation, an array or, when it failed, a text that begins with '!'; then, as one array,
--            what is to be read in 'messages' and put into them: the number of the reply, the place in it, id and flags;
--            and what watched messages have come to: id and status; then what the replica has seen now. Of a batch that is of
--            another epoch, and so was not carried out, the last alone.

local ARGV
local PREFIX, CHANNEL, WAITING_HEAD, WAITING_TAIL, PROGRESS_HEAD, PROGRESS_TAIL, PARCEL_HEAD, REPLICA, BATCH
local SESSIONS_LEN
local SESSIONS_AT = 13
-- How many receipts, dead letters, idempotency keys and crossings are kept; the idempotency window in milliseconds; how
-- many bytes: of what waits for a session, of what waits in the project, of dead letters, of idempotency keys with their
-- results, of the records of sessions.
local BOUNDS = '>dddddddddd'
local bounds

-- The place of a message among those of equal priority is below this, twice; see score_of.
local PRIORITY_STEP = 2 ^ 50
-- Flags of a message in an inbox, the 17th byte of its member: 1 counted in 'copies', 2 watched, 4 with a deadline. Of a
-- bundle (bundles.lua) it is one less than the number of its messages, in the four higher bits.
local SHARED, WATCHED, TIMED = 1, 2, 4
-- Most values that one command takes: the stack of Lua has no room for more.
local VALUES_MAX = 4000

-- What every function calls, found once: each look at a global takes as long as the call. It is not at hand before a
-- function is called.
local function globals()
  return redis.call, tonumber, unpack, pairs, math, table, string.byte, string.sub, string.format, bit.band, struct.pack,
    struct.unpack
end
local call, tonumber, unpack, pairs, math, table, byte, sub, format, band, pack, unpack_bytes
-- Milliseconds by the clock of the server: what decides.
local now
-- When things happen, in milliseconds as text: the caller's clock, for people.
local at_ms
-- The last argument that was read.
local cursor

-- The number of the reply to the operation that is being carried out.
local reply_number

-- Which data set this is (timeline.lua): the value of 'epoch' (tokens), the position on its timeline, whether this call has
-- changed something, and whether it has moved the position.
local timeline = { tokens = false, position = 0, has_changed = false, has_moved = false }

local beginnings = {}

-- Has this done at the beginning of each call.
local function each_time(begin)
  beginnings[#beginnings + 1] = begin
end

local function whole(number)
  return format('%.0f', number)
end

each_time(function()
  call, tonumber, unpack, pairs, math, table, byte, sub, format, band, pack, unpack_bytes = globals()
  PREFIX, CHANNEL, WAITING_HEAD, WAITING_TAIL, PROGRESS_HEAD, PROGRESS_TAIL = unpack(ARGV, 1, 6)
  PARCEL_HEAD, REPLICA, BATCH = ARGV[7], ARGV[8], tonumber(ARGV[9])
  if not bounds or bounds.packed ~= ARGV[10] then
    bounds = { packed = ARGV[10] }
    bounds.receipts, bounds.letters, bounds.outcomes, bounds.crossings, bounds.window_ms, bounds.queue_bytes,
      bounds.waiting_bytes, bounds.letters_bytes, bounds.outcomes_bytes, bounds.sessions_bytes =
      unpack_bytes(BOUNDS, ARGV[10])
  end
  SESSIONS_LEN = tonumber(ARGV[SESSIONS_AT])
  cursor = SESSIONS_AT + SESSIONS_LEN
  timeline.has_changed, timeline.has_moved = false, false
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
  at_ms = whole(now)
end)

local function arg()
  cursor = cursor + 1
  return ARGV[cursor]
end

local function number_arg()
  return tonumber(arg())
end

local function session_arg()
  return ARGV[SESSIONS_AT + tonumber(arg())]
end

local function key(name)
  return PREFIX .. name
end

-- Calls a command with as many values as there are, in as many steps as that takes. Their number is a multiple of 'of'.
-- An option comes before them.
local function call_many(command, name, values, of, option)
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

-- The values of these fields; false for one that is not there.
local function fields(name, wanted)
  local values = {}
  for first = 1, #wanted, VALUES_MAX do
    local part = call('HMGET', name, unpack(wanted, first, math.min(first + VALUES_MAX - 1, #wanted)))
    for at = 1, #part do
      values[first + at - 1] = part[at]
    end
  end
  return values
end

local function uuid_text(bytes)
  local hex = string.gsub(bytes, '.', function(one)
    return format('%02x', byte(one))
  end)
  return table.concat({
    sub(hex, 1, 8), sub(hex, 9, 12), sub(hex, 13, 16), sub(hex, 17, 20), sub(hex, 21),
  }, '-')
end

local function has(member, flag)
  return band(byte(member, 17), flag) ~= 0
end

local function id_of(member)
  return sub(member, 1, 16)
end

-- Ids come one after the other as one string: of most nothing has to be known but that they are those of a bundle.
local function ids_in(packed)
  local ids = {}
  for at = 1, #packed, 16 do
    ids[#ids + 1] = sub(packed, at, at + 15)
  end
  return ids
end

-- Frames, all but their serials. They are published when everything is done.
local frames

each_time(function()
  frames = {}
end)

local function publish(head, number)
  frames[#frames + 1] = head .. whole(number) .. ',"n":'
end

-- Watched messages that have come further: id and status, by turns.
local progress
local awaken, progressed, flush_frames

do -- What nobody else names.

-- Sessions in whose inboxes something waits that did not before.
local awakened, awakened_list

each_time(function()
  awakened, awakened_list = {}, {}
end)

awaken = function(session)
  if not awakened[session] then
    awakened[session] = true
    awakened_list[#awakened_list + 1] = session
  end
end

each_time(function()
  progress = {}
end)

progressed = function(member, status)
  if has(member, WATCHED) then
    local id = id_of(member)
    progress[#progress + 1] = id
    progress[#progress + 1] = status
    publish(PROGRESS_HEAD .. uuid_text(id) .. PROGRESS_TAIL, 0)
  end
end

flush_frames = function()
  if #awakened_list > 0 then
    publish(WAITING_HEAD .. '"' .. table.concat(awakened_list, '","') .. '"' .. WAITING_TAIL, 0)
  end
  if #frames > 0 then
    local serial = call('INCRBY', key('frames'), #frames) - #frames
    timeline.move(#frames)
    for at = 1, #frames do
      call('PUBLISH', CHANNEL, frames[at] .. whole(serial + at) .. '}')
    end
  end
end

end

-- The length of the envelope of a message, or of those of a bundle.
local function bytes_of(member)
  return (unpack_bytes('>I4', member, 18))
end

-- Bytes that the project keeps: 'held' of its messages, which are one envelope each and COPY_BYTES for each recipient;
-- 'dead' of those of them that are dead letters; 'sessions' of the records of sessions; 'outcomes' of idempotency keys with
-- their results. They are a field of 'inboxes', so that they are read and written with the lines.
local COPY_BYTES, TOTALS_FIELD = 128, 'totals'
local totals, read_totals, total, count_bytes, has_room, changed_totals

do -- What nobody else names.

local TOTALS = '>dddd'

each_time(function()
  totals = false
end)

read_totals = function(text)
  totals = { held = 0, dead = 0, sessions = 0, outcomes = 0, changed = false }
  if text then
    totals.held, totals.dead, totals.sessions, totals.outcomes = unpack_bytes(TOTALS, text)
  end
end

local function known_totals()
  if not totals then
    read_totals(call('HGET', key('inboxes'), TOTALS_FIELD))
  end
  return totals
end

total = function(name)
  return (totals or known_totals())[name]
end

count_bytes = function(name, bytes)
  local known = totals or known_totals()
  known[name], known.changed = known[name] + bytes, true
end

-- Whether the project may have so many bytes more that wait.
has_room = function(bytes)
  local known = totals or known_totals()
  return known.held + bytes <= bounds.waiting_bytes + known.dead
end

-- What is to be written of them; nil when they are as they were.
changed_totals = function()
  if totals and totals.changed then
    totals.changed = false
    return pack(TOTALS, totals.held, totals.dead, totals.sessions, totals.outcomes)
  end
end

end

-- Copies of messages that are done with; of shared ones how many, and the length of their envelope.
local drop_shared, drop_copy_of, drop_copy, flush_gone

do -- What nobody else names.

local gone, copies_gone

each_time(function()
  gone, copies_gone = {}, {}
end)

drop_shared = function(id, count, bytes)
  local dropped = copies_gone[id]
  if dropped then
    dropped.count = dropped.count + count
  else
    copies_gone[id] = { count = count, bytes = bytes }
  end
  count_bytes('held', -count * COPY_BYTES)
end

-- 'bytes' are those of the envelope, or of all envelopes of a bundle.
drop_copy_of = function(id, flags, bytes)
  if flags % 2 == SHARED then
    drop_shared(id, 1, bytes)
  else
    gone[#gone + 1] = id
    count_bytes('held', -bytes - (math.floor(flags / 16) + 1) * COPY_BYTES)
  end
end

drop_copy = function(member)
  drop_copy_of(id_of(member), byte(member, 17), bytes_of(member))
end

flush_gone = function()
  local shared_gone = {}
  for id, dropped in pairs(copies_gone) do
    if call('HINCRBY', key('copies'), id, -dropped.count) <= 0 then
      count_bytes('held', -dropped.bytes)
      shared_gone[#shared_gone + 1] = id
      gone[#gone + 1] = id
    end
  end
  call_many('HDEL', key('copies'), shared_gone, 1)
  call_many('HDEL', key('messages'), gone, 1)
  gone, copies_gone = {}, {}
end

end

-- Receipts say what has become of messages; where those are that wait or are leased is seen in the inboxes. They lie in
-- buckets by the time in the id of the message. Of a message with one copy the field is its id and the value 'D',
-- recipient, status, time; of a bundle the same with a 'B', and the ids after a space. Of a shared one there is a field of
-- its id, 'M' and all recipients, and one of id and recipient for each of them: status, time, or that it stands as the
-- inbox says. Where there is none, what is acknowledged as one (posts.lua) is in a field of id and '*': the place of the
-- first, how many, time.
local BUCKET_MS = 16384
local RECEIPTS_FOR_MS = 24 * 3600 * 1000
local STANDS, POSTS_RECEIPT = '-', '>I4I4d'
local receipts, receipts_added

each_time(function()
  receipts, receipts_added = {}, {}
end)

-- By the time in an id, which many of a batch have in common.
local buckets

each_time(function()
  buckets = {}
end)

local function bucket_of(id)
  local moment = sub(id, 1, 6)
  local bucket = buckets[moment]
  if not bucket then
    local a, b, c, d, e, f = byte(moment, 1, 6)
    bucket = whole(math.floor((((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) / BUCKET_MS))
    buckets[moment] = bucket
  end
  return bucket
end

local function put_receipt(id, field, value)
  local bucket = bucket_of(id)
  local list = receipts[bucket]
  if not list then
    list = {}
    receipts[bucket] = list
  end
  list[#list + 1] = field
  list[#list + 1] = value
  return bucket
end

local function count_receipts(bucket, count)
  receipts_added[bucket] = (receipts_added[bucket] or 0) + count
end

-- Says where a message stands for a recipient.
local function receipt_of(id, flags, session, status)
  if flags % 2 == SHARED then
    put_receipt(id, id .. session, status .. at_ms)
  else
    put_receipt(id, id, (flags >= 16 and 'B' or 'D') .. session .. status .. at_ms)
  end
end

local function receipt(member, session, status)
  receipt_of(id_of(member), byte(member, 17), session, status)
end

-- Forgets whole buckets, the oldest first: what is older than it is kept, and then what is more than is kept. The
-- newest stays in any case.
local function forget_receipts(len)
  local all, buckets, counts = call('HGETALL', key('receipts')), {}, {}
  for at = 1, #all, 2 do
    local bucket = tonumber(all[at])
    if bucket then
      buckets[#buckets + 1] = bucket
      counts[bucket] = tonumber(all[at + 1])
    end
  end
  table.sort(buckets)
  local oldest = math.floor((now - RECEIPTS_FOR_MS) / BUCKET_MS)
  for at = 1, #buckets - 1 do
    local bucket = buckets[at]
    if bucket >= oldest and len <= bounds.receipts then
      call('HSET', key('receipts'), 'first', whole(bucket))
      return
    end
    len = len - counts[bucket]
    call('UNLINK', key('receipts:') .. whole(bucket), key('settled:') .. whole(bucket))
    call('HDEL', key('receipts'), whole(bucket))
    call('HINCRBY', key('receipts'), 'len', -counts[bucket])
  end
  call('HSET', key('receipts'), 'first', whole(buckets[#buckets] or oldest))
end

local function flush_receipts()
  for bucket, list in pairs(receipts) do
    -- Of what is forgotten already nothing is kept any more: nobody would ever forget it again.
    if receipts_added[bucket] or call('HEXISTS', key('receipts'), bucket) == 1 then
      call_many('HSET', key('receipts:') .. bucket, list, 2)
    end
  end
  receipts = {}
  for bucket, count in pairs(receipts_added) do
    call('EXPIRE', key('receipts:') .. bucket, RECEIPTS_FOR_MS / 1000 + 3600)
    call('HINCRBY', key('receipts'), bucket, count)
    local len = call('HINCRBY', key('receipts'), 'len', count)
    if len > bounds.receipts then
      forget_receipts(len)
    end
  end
  receipts_added = {}
end

-- What the operations are called.
local ops = {}
