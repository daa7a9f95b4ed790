-- Delivery on request: messages that wait are leased to the caller.

local inbox_of, adjust, want, FORMAT = inboxes.of, inboxes.adjust, messages.want, leases.FORMAT

-- Whether the caller has given up this batch because its answer did not come in time (return_unclaimed in release.lua).
-- Such a batch leases nothing.
local is_abandoned

each_call(function()
  is_abandoned = nil
end)

local function is_batch_abandoned()
  if is_abandoned == nil then
    local last = call('HGET', key('abandoned_batches'), REPLICA)
    is_abandoned = last and BATCH <= tonumber(last)
  end
  return is_abandoned
end

-- Puts entries that were taken out back into the queue, from this position on.
local function put_back(session, inbox, entries, first)
  local rest = {}
  for at = first, #entries, 2 do
    rest[#rest + 1] = entries[at + 1]
    rest[#rest + 1] = entries[at]
  end
  for at = #entries, first, -1 do
    entries[at] = nil
  end
  queues.add(session, inbox, rest)
end

-- Takes entries out of the queue that fit into `limit` messages and `room` bytes. Where a segment does not fit, it is
-- split and the next round takes of its messages. Returns the entries, the room that is left, and the bytes of the
-- message that found no room; nil when the queue is empty.
local function take_fitting(session, inbox, limit, room)
  local entries = queues.take_first(session, inbox, limit)
  if #entries == 0 then
    return nil
  end
  local taken, oversized = 0, nil
  for at = 1, #entries, 2 do
    local entry, score = entries[at], entries[at + 1]
    local len, bytes = count_of(entry), bytes_of(entry)
    if taken + len > limit or bytes > room then
      put_back(session, inbox, entries, at)
      if taken < limit and len > 1 then
        segments.split_waiting(session, entry, tonumber(score))
      elseif taken < limit then
        oversized = bytes
      end
      break
    end
    taken, room = taken + len, room - bytes
  end
  return entries, room, oversized
end

-- Leases entries that were taken out of the queue; what is beyond its deadline becomes a dead letter. Returns the
-- number of leased messages.
local function lease_entries(session, inbox, entries, state, since, reply)
  local deadlines, earlier = expiry.take(session, entries), leases.earlier_deliveries(session, entries)
  local packed, expired, leased = {}, {}, 0
  for at = 1, #entries, 2 do
    local entry, score = entries[at], tonumber(entries[at + 1])
    local id, deadline = id_of(entry), deadlines[entry] or 0
    local deliveries = earlier[id] or 0
    if deadline > 0 and deadline <= now then
      expired[#expired + 1] = id
      expiry.dead_letter(session, inbox, entry, deliveries)
    else
      local len = count_of(entry)
      if earlier[id] then
        receipts.forget_transformed(len > 1 and ids_in(segments.ids_of(id)) or { id }, session)
      end
      leased = leased + len
      adjust(inbox, -len, len, bytes_of(entry), 0)
      packed[#packed + 1] = id
      packed[#packed + 1] = pack(FORMAT, score, inbox.next_lease, deadline, deliveries + 1, state, sub(entry, 17), BATCH,
        REPLICA, since)
      inbox.next_lease = inbox.next_lease + len
      frames.report_progress(entry, 'd')
      reply[#reply + 1] = deliveries + 1
      want(entry, reply)
    end
  end
  leases.put(session, inbox, packed)
  leases.remove(session, inbox, expired)
  return leased
end

-- lease: leases messages that wait, in the order of the queue.
--
-- Input   time, session, claim or '', receipt of the call that it is for or '', most messages, most bytes
-- Output  messages that wait, messages in flight; 1 when the claim is not the latest, 2 when nothing is pushed, else 0; the
--         numbers of the first lease and of the one after the last; the bytes of the message that found no room (0: the
--         lease did not end for that); then of each message or segment its deliveries and the stored text
-- Keys    inboxes, inbox:SESSION, leases:SESSION, messages, expiries, call_receipts:SESSION, abandoned_batches (read);
--         where a message was delivered before, segments (read), receipts:BUCKET;
--         where a deadline has passed, those of dead letters and expired_in
ops.lease = function()
  read_time()
  local session, claim, receipt, limit, room = read_session(), read_text(), read_text(), read_number(), read_number()
  local inbox = inbox_of(session)
  if not inbox or is_batch_abandoned() then
    return { 0, 0, 0, 0, 0, 0 }
  end
  if claim ~= '' and claim ~= inbox.claim then
    return { inbox.waiting, inbox.in_flight, 1, 0, 0, 0 }
  end
  if claim ~= '' and inbox.credit > 0 then
    -- The caller may not know yet of all that was pushed to it.
    limit = math.min(limit, inbox.credit - inbox.in_flight)
  end
  local first = inbox.next_lease
  local reply = { 0, 0, inbox.credit > 0 and 0 or 2, first, 0, 0 }
  local state, since = claim == '' and leases.FOR_CALL or leases.CLAIMED, tonumber(at_ms)
  local entries, oversized
  while not oversized and limit > 0 and inbox.waiting > 0 do
    entries, room, oversized = take_fitting(session, inbox, limit, room)
    if not entries then
      break
    end
    limit = limit - lease_entries(session, inbox, entries, state, since, reply)
  end
  if receipt ~= '' and inbox.next_lease > first then
    call_receipts.remember(session, receipt, first, inbox.next_lease)
  end
  reply[1], reply[2], reply[5], reply[6] = inbox.waiting, inbox.in_flight, inbox.next_lease, oversized or 0
  return reply
end

-- peek: reads what waits, in the order of the queue.
--
-- Input   session, most messages, most bytes; what needs more bytes is left out
-- Output  messages that wait; then the stored text of each message or segment
-- Keys    inboxes, inbox:SESSION, messages (all read)
ops.peek = function()
  local session, limit, room = read_session(), read_number(), read_number()
  local inbox = inbox_of(session)
  if not inbox then
    return { 0 }
  end
  local reply, entries = { inbox.waiting }, queues.first(session, inbox, limit)
  for at = 1, #entries, 2 do
    local bytes = bytes_of(entries[at])
    if bytes <= room then
      room = room - bytes
      want(entries[at], reply)
    end
  end
  return reply
end
