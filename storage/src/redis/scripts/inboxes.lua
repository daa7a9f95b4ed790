-- Inboxes: one record for each session, a field of 'inboxes'.
--
-- A record holds the counts, who takes messages by push and with how much credit, the claim, and, while these are few
-- (INLINE_LEN_MAX), what waits and what is leased. When they are more they are outside: in 'inbox:SESSION', by score,
-- and in 'leases:SESSION', by id, until the inbox is empty. queues.lua and leases.lua know the difference, no other
-- file does.
--
-- Keys  inboxes, inbox:SESSION, leases:SESSION

-- Most entries that wait, and most leases, in a record.
local INLINE_LEN_MAX = 8
inboxes.INLINE_LEN_MAX = INLINE_LEN_MAX

-- A record: messages that wait, messages in flight, bytes in flight, bytes of both; credit for push in messages and
-- bytes (0: no push); length of the claim, form, number of waiting entries and of leases in the record; next place in
-- the queue, epoch of the claim, number of the next lease. Then the claim, the replica to push to (where there is
-- credit), the waiting entries, the leases.
local RECORD, WAITING_ENTRY, LEASE_ENTRY = '>ddddI4I4BBBBddd', '>dc21', '>c16c66'
-- Its beginning, and where the number of the next lease and the claim are in it.
local RECORD_HEAD, NEXT_LEASE_AT, CLAIM_AT = '>ddddI4I4BB', 61, 69
-- Forms, which are added: the entries are outside; writing to the connection acknowledges (ack: auto).
local OUTSIDE, AUTO_ACK = 1, 2
-- The id of a replica as text.
local REPLICA_LEN = 36

-- Refusals of an inbox, in the replies of `append`.
local UNKNOWN_SESSION, QUEUE_FULL, QUEUE_BYTES = -1, -2, -3

-- Inboxes that this call has looked into, by session (false: the session is unknown); records that are read and not
-- taken apart yet (false: the session is unknown).
local opened, unopened
-- An operation failed half way: the inboxes may differ from what is stored.
local is_inconsistent

each_call(function()
  opened, unopened, is_inconsistent = {}, {}, false
end)

-- The inbox of a new session.
function inboxes.new()
  return {
    waiting = 0, in_flight = 0, in_flight_bytes = 0, bytes = 0, next_place = 0, next_lease = 0, epoch = 0,
    credit = 0, credit_bytes = 0, claim = '-', replica = '', is_outside = false, is_auto_ack = false,
    queue = {}, leases = {}, leases_len = 0, is_changed = false,
  }
end

local function read_record(record)
  local queue, leased = {}, {}
  local waiting, in_flight, in_flight_bytes, bytes, credit, credit_bytes, claim_len, form, queue_len, leases_len,
    next_place, epoch, next_lease = unpack_bytes(RECORD, record)
  local replica_at = CLAIM_AT + claim_len
  local at = credit > 0 and replica_at + REPLICA_LEN or replica_at
  -- All fields at once: a table that grows field by field is allocated several times.
  local inbox = {
    waiting = waiting, in_flight = in_flight, in_flight_bytes = in_flight_bytes, bytes = bytes,
    next_place = next_place, next_lease = next_lease, epoch = epoch, credit = credit, credit_bytes = credit_bytes,
    claim = sub(record, CLAIM_AT, replica_at - 1), replica = sub(record, replica_at, at - 1),
    is_outside = form % 2 == OUTSIDE, is_auto_ack = form >= AUTO_ACK, queue = queue, leases = leased,
    leases_len = leases_len, is_changed = false,
  }
  for score_at = 1, 2 * queue_len, 2 do
    queue[score_at], queue[score_at + 1], at = unpack_bytes(WAITING_ENTRY, record, at)
  end
  for _ = 1, leases_len do
    local id, lease
    id, lease, at = unpack_bytes(LEASE_ENTRY, record, at)
    leased[id] = lease
  end
  return inbox
end
inboxes.read_record = read_record

local function record_of(inbox)
  local queue, claim = inbox.queue, inbox.claim
  local form = (inbox.is_outside and OUTSIDE or 0) + (inbox.is_auto_ack and AUTO_ACK or 0)
  local head = pack(RECORD, inbox.waiting, inbox.in_flight, inbox.in_flight_bytes, inbox.bytes, inbox.credit,
    inbox.credit_bytes, #claim, form, #queue / 2, inbox.leases_len, inbox.next_place, inbox.epoch, inbox.next_lease)
    .. claim .. inbox.replica
  if #queue == 0 and inbox.leases_len == 0 then
    return head
  end
  local parts = { head }
  for at = 1, #queue, 2 do
    parts[#parts + 1] = pack(WAITING_ENTRY, queue[at], queue[at + 1])
  end
  for id, lease in pairs(inbox.leases) do
    parts[#parts + 1] = id
    parts[#parts + 1] = lease
  end
  return table.concat(parts)
end

-- What a record says about an inbox to which a group lease may be given without looking into it: nothing waits, all its
-- leases are in the record, and its reader acknowledges by writing. False for any other.
function inboxes.read_reader(record)
  local waiting, in_flight, in_flight_bytes, bytes, credit, credit_bytes, claim_len, form =
    unpack_bytes(RECORD_HEAD, record)
  if form ~= AUTO_ACK or waiting > 0 then
    return false
  end
  local replica_at = CLAIM_AT + claim_len
  return {
    replica = sub(record, replica_at, replica_at + REPLICA_LEN - 1),
    -- Number of the next lease, and the claim.
    address = sub(record, NEXT_LEASE_AT, replica_at - 1),
    messages = credit - in_flight, in_flight = in_flight, credit_bytes = credit_bytes - in_flight_bytes, bytes = bytes,
  }
end

-- Inboxes as the last calls left them, by session: most records are read again soon, and to take one apart takes longer
-- than most of what is done with it. An inbox is valid for as long as its record is the stored one of its data set.
local cache, cache_len = {}, 0
local CACHE_LEN_MAX = 500
-- In a call that names more sessions than these nothing is cached: most would have left the cache of the processor when
-- their turn comes, and a record is read faster.
local CACHED_SESSIONS_MAX = 100

local function open(session, record)
  local inbox = cache[session]
  if not inbox or inbox.record ~= record or inbox.data_set ~= DATA_SET then
    inbox = read_record(record)
  end
  -- The cached inbox is invalid until the call has ended.
  inbox.record, inbox.opened_as = nil, record
  opened[session] = inbox
  return inbox
end

local function cache_inbox(session, inbox, record)
  if not cache[session] then
    if cache_len == CACHE_LEN_MAX then
      cache, cache_len = {}, 0
    end
    cache_len = cache_len + 1
  end
  inbox.record, inbox.data_set = record, DATA_SET
  cache[session] = inbox
end

-- The record of a session, which is not opened yet; false when the session is unknown.
local function unopened_record(session)
  local record = unopened[session]
  if record == nil then
    record = call('HGET', key('inboxes'), session)
    unopened[session] = record
  end
  return record
end

-- The inbox of a session; nil when the session is unknown. Group leases of the session become leases of its own first,
-- so an inbox that is looked into tells the whole truth.
function inboxes.of(session)
  local inbox = opened[session]
  if inbox == nil then
    local record = unopened_record(session)
    if record then
      inbox = open(session, record)
      if inbox.is_auto_ack then
        group_leases.convert(session, inbox)
      end
    else
      opened[session] = false
    end
  end
  return inbox or nil
end

function inboxes.is_known(session)
  if opened[session] ~= nil then
    return opened[session] ~= false
  end
  return unopened_record(session) ~= false
end

-- The record of an inbox that no operation of this call has looked into; false otherwise.
function inboxes.record_if_unopened(session)
  if opened[session] ~= nil then
    return false
  end
  local record = unopened[session]
  if record ~= nil then
    return record
  end
  return unopened_record(session)
end

-- Reads the records of all sessions that the call names, with the totals.
function inboxes.load()
  for first = 1, SESSIONS_LEN, VALUES_MAX do
    local before, last = SESSIONS_AT + first - 1, SESSIONS_AT + math.min(first + VALUES_MAX - 1, SESSIONS_LEN)
    local records = call('HMGET', key('inboxes'), usage.FIELD, unpack(ARGV, before + 1, last))
    usage.read_once(records[1])
    for at = 1, last - before do
      unopened[ARGV[before + at]] = records[at + 1]
    end
  end
end

function inboxes.create(session)
  local inbox = inboxes.new()
  call('HSET', key('inboxes'), session, record_of(inbox))
  opened[session] = inbox
end

-- The session is unknown for the rest of the call.
function inboxes.remove(session)
  opened[session] = false
end

-- Forgets what this call has read.
function inboxes.reset()
  opened, unopened = {}, {}
end

-- Calls `see` with each inbox that this call has changed.
function inboxes.each_changed(see)
  for session, inbox in pairs(opened) do
    if inbox and inbox.is_changed then
      see(session, inbox)
    end
  end
end

function inboxes.mark_inconsistent()
  is_inconsistent = true
end

function inboxes.flush()
  local changed = {}
  for session, inbox in pairs(opened) do
    if inbox then
      local record = inbox.opened_as
      if inbox.is_changed then
        inbox.is_outside = inbox.is_outside and inbox.waiting + inbox.in_flight > 0
        inbox.is_changed = false
        record = record_of(inbox)
        changed[#changed + 1] = session
        changed[#changed + 1] = record
      end
      if not is_inconsistent and SESSIONS_LEN <= CACHED_SESSIONS_MAX then
        cache_inbox(session, inbox, record)
      end
    end
  end
  local totals = usage.changed()
  if totals then
    changed[#changed + 1] = usage.FIELD
    changed[#changed + 1] = totals
  end
  timeline.has_changed = timeline.has_changed or #changed > 0
  call_in_steps('HSET', key('inboxes'), changed, 2)
end

function inboxes.queue_key(session)
  return key('inbox:') .. session
end

function inboxes.leases_key(session)
  return key('leases:') .. session
end

-- Moves the waiting entries and the leases out of the record: they are too many from now on.
function inboxes.move_outside(session, inbox)
  local leased = {}
  for id, lease in pairs(inbox.leases) do
    leased[#leased + 1] = id
    leased[#leased + 1] = lease
  end
  call_in_steps('ZADD', inboxes.queue_key(session), inbox.queue, 2)
  call_in_steps('HSET', inboxes.leases_key(session), leased, 2)
  inbox.queue, inbox.leases, inbox.leases_len, inbox.is_outside, inbox.is_changed = {}, {}, 0, true, true
end

-- Adds to the counts: messages that wait, messages in flight and their bytes, bytes of both.
function inboxes.adjust(inbox, waiting, in_flight, in_flight_bytes, bytes)
  inbox.waiting = inbox.waiting + waiting
  inbox.in_flight = inbox.in_flight + in_flight
  inbox.in_flight_bytes = inbox.in_flight_bytes + in_flight_bytes
  inbox.bytes = inbox.bytes + bytes
  inbox.is_changed = true
end

-- Ends push: what comes from now on waits.
function inboxes.stop_push(inbox)
  inbox.credit, inbox.credit_bytes, inbox.replica, inbox.is_auto_ack, inbox.is_changed = 0, 0, '', false, true
end

-- Why an inbox refuses a message of so many bytes; nil when it accepts it. (-4: the project has no room; append.lua.)
function inboxes.refusal(inbox, bytes, capacity)
  if not inbox then
    return UNKNOWN_SESSION
  elseif inbox.waiting + inbox.in_flight >= capacity then
    return QUEUE_FULL
  elseif inbox.bytes + bytes > bounds.queue_bytes then
    return QUEUE_BYTES
  end
end

-- depth: how full an inbox is.
--
-- Input   session
-- Output  messages that wait, messages in flight
-- Keys    inboxes
ops.depth = function()
  local inbox = inboxes.of(read_session())
  return inbox and { inbox.waiting, inbox.in_flight } or { 0, 0 }
end
