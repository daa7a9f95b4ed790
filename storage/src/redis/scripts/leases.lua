-- Leases: what was delivered at least once and is not acknowledged, by id: in the record, or in 'leases:SESSION'
-- (inboxes.lua). A lease that has ended without acknowledgement is kept as RETURNED, for the number of its deliveries,
-- unless nothing was delivered.
--
-- Keys  leases:SESSION

local INLINE_LEN_MAX, leases_key, inbox_of = inboxes.INLINE_LEN_MAX, inboxes.leases_key, inboxes.of

-- States: leased under a claim; leased for a call; waits again; leased for a call that was answered, whose caller
-- acknowledges by asking for more.
leases.CLAIMED, leases.FOR_CALL, leases.RETURNED, leases.ANSWERED = 1, 2, 3, 4
local RETURNED = leases.RETURNED

-- A number before that of every lease, also for the last message of a segment: no receipt of a call names it.
leases.NO_NUMBER = -16

-- A lease: score, number, deadline (0: none), deliveries, state, flags and bytes of the entry, number of the batch
-- that leased it, the replica, time since when it is in this state.
local LEASE = '>dddI4Bc5dc16d'
leases.FORMAT = LEASE
-- Where the state and the flags are in it.
leases.STATE_AT, leases.FLAGS_AT = 29, 30

function leases.pack(lease)
  return pack(LEASE, lease.score, lease.number, lease.deadline, lease.deliveries, lease.state, sub(lease.entry, 17),
    lease.batch, lease.replica, lease.since)
end

local function read(id, text)
  local score, number, deadline, deliveries, state, rest, batch, replica, since = unpack_bytes(LEASE, text)
  return {
    score = score, number = number, deadline = deadline, deliveries = deliveries, state = state, entry = id .. rest,
    batch = batch, replica = replica, since = since,
  }
end
leases.read = read

-- The leases of these ids, packed; false for an id without one.
function leases.find(session, inbox, ids)
  if inbox.is_outside then
    return hash_fields(leases_key(session), ids)
  end
  local found, inline = {}, inbox.leases
  for at = 1, #ids do
    found[at] = inline[ids[at]] or false
  end
  return found
end

-- Keeps leases: ids and packed leases, alternately.
function leases.put(session, inbox, list)
  if not inbox.is_outside and inbox.leases_len + #list / 2 > INLINE_LEN_MAX then
    inboxes.move_outside(session, inbox)
  end
  if inbox.is_outside then
    return call_in_steps('HSET', leases_key(session), list, 2)
  end
  local inline = inbox.leases
  for at = 1, #list, 2 do
    if not inline[list[at]] then
      inbox.leases_len = inbox.leases_len + 1
    end
    inline[list[at]] = list[at + 1]
  end
  inbox.is_changed = true
end

function leases.remove(session, inbox, ids)
  if inbox.is_outside then
    return call_in_steps('HDEL', leases_key(session), ids, 1)
  end
  local inline = inbox.leases
  for at = 1, #ids do
    if inline[ids[at]] then
      inline[ids[at]] = nil
      inbox.leases_len = inbox.leases_len - 1
    end
  end
  inbox.is_changed = true
end

-- Calls `see` with the id and the packed lease of each. It must not change the leases.
local function each(session, inbox, see)
  if inbox.is_outside then
    local all = call('HGETALL', leases_key(session))
    for at = 1, #all, 2 do
      see(all[at], all[at + 1])
    end
  else
    for id, text in pairs(inbox.leases) do
      see(id, text)
    end
  end
end
leases.each = each

-- The leases in flight for which `which` is true, in the order of the queue.
function leases.in_flight(session, which)
  local found = {}
  each(session, inbox_of(session), function(id, text)
    local lease = read(id, text)
    if lease.state ~= RETURNED and (not which or which(lease)) then
      found[#found + 1] = lease
    end
  end)
  table.sort(found, function(a, b)
    return a.score < b.score
  end)
  return found
end

-- How often what was taken out of the queue (entries and scores, alternately) was delivered before, by id.
function leases.earlier_deliveries(session, entries)
  local ids, deliveries = {}, {}
  for at = 1, #entries, 2 do
    if tonumber(entries[at + 1]) % 2 == 1 then
      ids[#ids + 1] = id_of(entries[at])
    end
  end
  local found = #ids > 0 and leases.find(session, inbox_of(session), ids) or {}
  for at = 1, #ids do
    deliveries[ids[at]] = found[at] and read(ids[at], found[at]).deliveries
  end
  return deliveries
end
