-- The end of leases without acknowledgement: what was leased waits again in its place, or becomes a dead letter.

local inbox_of, in_flight, stop_push = inboxes.of, leases.in_flight, inboxes.stop_push
local RETURNED = leases.RETURNED

-- Puts leases back into the queue. A message beyond its deadline, or with as many deliveries as the limit, becomes a
-- dead letter. `is_unseen`: the replica that leased them has not heard of it. Returns the number of messages that wait
-- again, and of dead letters.
function releases.put_back(session, inbox, list, delivery_limit, is_unseen)
  local waiting, packed, deadlines, dead, undelivered = {}, {}, {}, {}, {}
  local returned, bytes, dead_bytes, since = 0, 0, 0, tonumber(at_ms)
  list = segments.split_exhausted(session, list, delivery_limit)
  for at = 1, #list do
    local lease = list[at]
    local entry = lease.entry
    local is_expired = lease.deadline > 0 and lease.deadline <= now
    bytes = bytes + bytes_of(entry)
    if is_expired or lease.deliveries >= delivery_limit then
      dead[#dead + 1] = id_of(entry)
      dead_bytes = dead_bytes + bytes_of(entry)
      dead_letters.add(entry, session, is_expired and 'x' or 'l', lease.deliveries)
    else
      returned = returned + count_of(entry)
      if not is_unseen then
        events.released(entry, session)
      end
      lease.score = lease.score - lease.score % 2
      if lease.deliveries > 0 then
        lease.score, lease.state, lease.since = lease.score + 1, RETURNED, since
        packed[#packed + 1] = id_of(entry)
        packed[#packed + 1] = leases.pack(lease)
      else
        undelivered[#undelivered + 1] = id_of(entry)
      end
      waiting[#waiting + 1] = int_text(lease.score)
      waiting[#waiting + 1] = entry
      if lease.deadline > 0 then
        expiry.push(deadlines, session, entry, lease.deadline)
      end
    end
  end
  queues.add(session, inbox, waiting)
  leases.put(session, inbox, packed)
  leases.remove(session, inbox, dead)
  leases.remove(session, inbox, undelivered)
  expiry.add(deadlines)
  inboxes.adjust(inbox, returned, -returned - #dead, -bytes, -dead_bytes)
  if returned > 0 then
    frames.wake(session)
  end
  return returned, #dead
end
local put_back = releases.put_back

-- Has these leases not count as deliveries: their messages were not handed out.
local function uncount(list)
  for at = 1, #list do
    list[at].deliveries, list[at].number = list[at].deliveries - 1, leases.NO_NUMBER
  end
end

-- The leases among these ids that are in flight.
local function in_flight_of(session, packed)
  local list = {}
  for _, lease in ipairs((acknowledgements.leases_of(session, packed))) do
    if lease.state ~= RETURNED then
      list[#list + 1] = lease
    end
  end
  return list
end

-- release: releases messages by their ids, all of a claim, or all of a session that has been silent.
--
-- Input   time, session, delivery limit; then 'ids' or 'undelivered' (not handed out) and the ids, 'claimed' and the
--         claim, or 'silent' and milliseconds
-- Output  messages that wait again, dead letters, messages that wait, messages in flight
-- Keys    inboxes, inbox:SESSION, leases:SESSION, expiries, heartbeats (read), those of dead letters, and where segments
--         are split messages, segments, segments:index
ops.release = function()
  read_time()
  local session, delivery_limit, which, what = read_session(), read_number(), read_text(), read_text()
  local inbox, list = inbox_of(session), {}
  if not inbox then
    return { 0, 0, 0, 0 }
  end
  if which == 'ids' or which == 'undelivered' then
    list = in_flight_of(session, what)
  elseif which == 'claimed' and what == inbox.claim or which == 'silent' and presence.is_silent(session, tonumber(what)) then
    list = in_flight(session)
    stop_push(inbox)
  end
  if which == 'undelivered' then
    uncount(list)
  end
  local returned, dead = put_back(session, inbox, list, delivery_limit)
  return { returned, dead, inbox.waiting, inbox.in_flight }
end

-- return_unclaimed: puts back what a batch of this replica leased whose answer never came, as if it had not been
-- delivered. Should the batch be carried out afterwards, it leases nothing.
--
-- Input   time, number of the batch, sessions
-- Output  nothing
-- Keys    abandoned_batches (hash: replica -> number of its last abandoned batch), inboxes, inbox:SESSION,
--         leases:SESSION, expiries
ops.return_unclaimed = function(last)
  read_time()
  local batch = read_number()
  call('HSET', key('abandoned_batches'), REPLICA, int_text(batch))
  while cursor < last do
    local session = read_session()
    local inbox = inbox_of(session)
    if inbox then
      local list = in_flight(session, function(lease)
        return lease.batch == batch and lease.replica == REPLICA
      end)
      uncount(list)
      put_back(session, inbox, list, math.huge, true)
    end
  end
  return {}
end

-- release_replica: releases what a replica that has ended leased for calls that were not answered, and ends its push.
--
-- Input   time, the replica (16 bytes)
-- Output  messages that wait again, dead letters
-- Keys    inboxes, inbox:SESSION, leases:SESSION, expiries, group_leases, abandoned_batches, those of dead letters
ops.release_replica = function()
  read_time()
  local replica, returned, dead = read_text(), 0, 0
  local records, replica_text = call('HGETALL', key('inboxes')), uuid_text(replica)
  group_leases.convert_all(replica_text)
  for at = 1, #records, 2 do
    local session = records[at]
    local known = session ~= usage.FIELD and inboxes.read_record(records[at + 1])
    local inbox = known and (known.in_flight > 0 or known.replica == replica_text) and inbox_of(session)
    if inbox and inbox.replica == replica_text then
      stop_push(inbox)
    end
    if inbox then
      local list = in_flight(session, function(lease)
        return lease.state == leases.FOR_CALL and lease.replica == replica
      end)
      -- The delivery limit applies at the next release.
      local back, given_up = put_back(session, inbox, list, math.huge)
      returned, dead = returned + back, dead + given_up
    end
  end
  call('HDEL', key('abandoned_batches'), replica)
  return { returned, dead }
end

-- claim: makes a claim the latest of a session. What was leased before waits again.
--
-- Input   time, session, claim, delivery limit, frame
-- Output  epoch of the claim, messages that wait again, dead letters, messages that wait, messages in flight
-- Keys    claim_epoch, inboxes, inbox:SESSION, leases:SESSION, expiries, those of dead letters
ops.claim = function()
  read_time()
  local session, claim, delivery_limit, head = read_session(), read_text(), read_number(), read_text()
  local inbox = inbox_of(session)
  if not inbox then
    return { 0, 0, 0, 0, 0 }
  end
  inbox.epoch = call('INCR', key('claim_epoch'))
  inbox.claim = claim
  stop_push(inbox)
  local returned, dead = put_back(session, inbox, in_flight(session), delivery_limit)
  frames.publish(head, inbox.epoch)
  return { inbox.epoch, returned, dead, inbox.waiting, inbox.in_flight }
end
