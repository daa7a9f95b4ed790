-- Segments: up to 16 plain messages for one recipient that were accepted together are one entry of its inbox for as
-- long as they are delivered and acknowledged together, which is nearly always. An operation that means a part of a
-- segment splits it. Segments raised direct messages with 64 in flight from 63,000 to 190,000 per second.
--
-- A segment has the id of its first message; 'messages' holds its messages under it (messages.lua). What follows is
-- about segments of several messages; a single message is not in the index.
--
-- Keys  segments (hash: segment -> ids of its messages), segments:index (sorted set: segments by id), messages,
--       segments:settled:BUCKET (sorted set: acknowledged segments by id; their receipts hold the ids)

local inbox_of, read_lease = inboxes.of, leases.read

-- Segments to remove from the index, and acknowledged segments by bucket: 0 and id, alternately.
local removed, settled

each_call(function()
  removed, settled = {}, {}
end)

-- The lease of a message at a position of a leased segment.
local function lease_of_part(lease, position, entry)
  return {
    score = lease.score + 2 * (position - 1), number = lease.number + position - 1, deadline = 0,
    deliveries = lease.deliveries, state = lease.state, entry = entry, batch = lease.batch, replica = lease.replica,
    since = lease.since,
  }
end

-- Splits a segment into its messages. `lease` is its lease, if it was delivered; `score` its score, if it waits.
-- Returns the leases of the messages.
local function split(session, entry, lease, score)
  local inbox, id = inbox_of(session), id_of(entry)
  local of_parts, stored, packed, waiting = {}, {}, {}, {}
  -- A reply of this call that contains the segment gets all of it.
  messages.read_wanted()
  for at, part in ipairs(messages.parts(call('HGET', key('messages'), id))) do
    stored[#stored + 1] = part.id
    stored[#stored + 1] = part.stored
    if score then
      waiting[#waiting + 1] = int_text(score + 2 * (at - 1))
      waiting[#waiting + 1] = part.entry
    end
    if lease then
      of_parts[at] = lease_of_part(lease, at, part.entry)
      packed[#packed + 1] = part.id
      packed[#packed + 1] = leases.pack(of_parts[at])
    end
  end
  call_in_steps('HSET', key('messages'), stored, 2)
  leases.put(session, inbox, packed)
  if score then
    queues.remove(session, inbox, { entry })
    queues.add(session, inbox, waiting)
  end
  removed[#removed + 1] = id
  return of_parts
end

-- Splits a segment that was delivered, whether it is in flight or waits again. Returns the leases of its messages.
local function split_leased(session, lease)
  return split(session, lease.entry, lease, lease.state == leases.RETURNED and lease.score or nil)
end

-- Splits all segments of a session that were delivered. Returns whether there was one.
local function split_all_leased(session)
  local found = {}
  leases.each(session, inbox_of(session), function(id, text)
    local lease = read_lease(id, text)
    if count_of(lease.entry) > 1 then
      found[#found + 1] = lease
    end
  end)
  for at = 1, #found do
    split_leased(session, found[at])
  end
  return #found > 0
end
segments.split_all_leased = split_all_leased

-- Splits a segment that waits.
local function split_waiting(session, entry, score)
  local id = id_of(entry)
  local lease = score % 2 == 1 and leases.find(session, inbox_of(session), { id })[1]
  split(session, entry, lease and read_lease(id, lease), score)
end
segments.split_waiting = split_waiting

-- Splits all segments of a session.
function segments.split_all(session)
  split_all_leased(session)
  local entries = queues.all(session, inbox_of(session))
  for at = 1, #entries, 2 do
    if count_of(entries[at]) > 1 then
      split_waiting(session, entries[at], tonumber(entries[at + 1]))
    end
  end
end

-- These leases, where segments that have reached the delivery limit are split: each message becomes a dead letter of
-- its own.
function segments.split_exhausted(session, list, delivery_limit)
  local rest = {}
  for at = 1, #list do
    local lease = list[at]
    if count_of(lease.entry) > 1 and lease.deliveries >= delivery_limit then
      for _, part in ipairs(split_leased(session, lease)) do
        rest[#rest + 1] = part
      end
    else
      rest[#rest + 1] = lease
    end
  end
  return rest
end

-- The ids of the messages of a segment, packed; '' for an unknown one.
function segments.ids_of(id)
  return call('HGET', key('segments'), id) or ''
end

-- Writes that all of a segment is done with. Its receipt holds the ids of its messages from now on.
function segments.settle(id, flags, session, status, ids)
  local bucket = receipts.settle_id(id, flags, session, status, ids)
  local list = settled[bucket]
  if not list then
    list = {}
    settled[bucket] = list
  end
  list[#list + 1] = 0
  list[#list + 1] = id
  removed[#removed + 1] = id
end

function segments.flush()
  call_in_steps('HDEL', key('segments'), removed, 1)
  call_in_steps('ZREM', key('segments:index'), removed, 1)
  removed = {}
  for bucket, list in pairs(settled) do
    if receipts.is_kept(bucket) then
      local name = key('segments:settled:') .. bucket
      call_in_steps('ZADD', name, list, 2)
      receipts.expire_with_bucket(name)
    end
  end
  settled = {}
end

-- Whether packed ids contain an id.
local function contains(ids, id)
  local at = string.find(ids, id, 1, true)
  while at and at % 16 ~= 1 do
    at = string.find(ids, id, at + 1, true)
  end
  return at
end

-- The segment that contains a message, and its receipt if it has one; nil when none does. The messages of a segment
-- have one moment in common, the first 6 bytes of their ids.
function segments.with_message(id)
  local moment = sub(id, 1, 6)
  local from, to = '[' .. moment, '(' .. moment .. string.rep('\255', 11)
  for _, segment in ipairs(call('ZRANGE', key('segments:index'), from, to, 'BYLEX')) do
    if contains(segments.ids_of(segment), id) then
      return segment
    end
  end
  local settled_key = key('segments:settled:') .. receipts.bucket_of(id)
  for _, segment in ipairs(call('ZRANGE', settled_key, from, to, 'BYLEX')) do
    local receipt = call('HGET', receipts.key_of(id), segment)
    local ids_at = receipt and string.find(receipt, ' ', 38, true)
    if ids_at and contains(sub(receipt, ids_at + 1), id) then
      return segment, receipt
    end
  end
end
