-- Calls that lease messages: receive_messages. The caller acknowledges by a receipt of its call, or by calling again.
--
-- Keys  call_receipts:SESSION (hash: receipt -> numbers of the first lease and of the one after the last)

local inbox_of, in_flight, read_lease = inboxes.of, leases.in_flight, leases.read
local finish, reply_of, with_ids = acknowledgements.finish, acknowledgements.reply, acknowledgements.with_ids
local RETURNED, ANSWERED = leases.RETURNED, leases.ANSWERED

-- Most receipts of a session (half of them are dropped when there are more); how long they are kept after the last one.
local LEN_MAX, KEPT_FOR_S = 64, 24 * 3600
local NUMBERS = '>dd'

function call_receipts.key(session)
  return key('call_receipts:') .. session
end

-- Drops the older half of the receipts of a session.
local function drop_older_half(name)
  local all, known, oldest = call('HGETALL', name), {}, {}
  for at = 1, #all, 2 do
    known[#known + 1] = { receipt = all[at], first = (unpack_bytes(NUMBERS, all[at + 1])) }
  end
  table.sort(known, function(a, b)
    return a.first < b.first
  end)
  for at = 1, #known / 2 do
    oldest[at] = known[at].receipt
  end
  call_in_steps('HDEL', name, oldest, 1)
end

-- Has a receipt name the leases from the first on, without the last.
function call_receipts.remember(session, receipt, first, after_last)
  local name = call_receipts.key(session)
  call('HSET', name, receipt, pack(NUMBERS, first, after_last))
  call('EXPIRE', name, KEPT_FOR_S)
  if call('HLEN', name) > LEN_MAX then
    drop_older_half(name)
  end
end

-- Removes a receipt. Returns the number of the first lease that it names and of the one after the last.
local function take(session, receipt)
  local name = call_receipts.key(session)
  local numbers = call('HGET', name, receipt)
  if not numbers then
    return 0, 0
  end
  call('HDEL', name, receipt)
  local first, after_last = unpack_bytes(NUMBERS, numbers)
  return first, after_last
end

-- mark_returned: notes that messages were in the answer to a call; the next call acknowledges them, at any replica.
--
-- Input   session, ids
-- Output  nothing
-- Keys    inboxes, leases:SESSION, and where segments are split messages, segments, segments:index
ops.mark_returned = function()
  local session, packed = read_session(), read_text()
  local inbox = inbox_of(session)
  if not inbox then
    return {}
  end
  local list, answered = acknowledgements.leases_of(session, packed), {}
  for at = 1, #list do
    local lease = list[at]
    if lease.state ~= RETURNED then
      lease.state = ANSWERED
      answered[#answered + 1] = id_of(lease.entry)
      answered[#answered + 1] = leases.pack(lease)
    end
  end
  leases.put(session, inbox, answered)
  return {}
end

local function is_answered(lease)
  return lease.state == ANSWERED
end

-- acknowledge_returned: acknowledges what earlier calls were answered with.
--
-- Input   time, session
-- Output  the packed ids of the acknowledged messages; then as of `acknowledge`
-- Keys    as of `acknowledge`
ops.acknowledge_returned = function()
  read_time()
  local session = read_session()
  local inbox = inbox_of(session)
  if not inbox then
    return with_ids('', reply_of(nil, {}, 0, {}))
  end
  local list = inbox.in_flight > 0 and in_flight(session, is_answered) or {}
  local count, tracked, all = finish(session, inbox, list)
  return with_ids(all, reply_of(inbox, {}, count, tracked))
end

-- acknowledge_receipt: acknowledges what was leased for the call of this receipt, whether it is in flight or waits
-- again, and releases what other calls were answered with.
--
-- Input   time, session, receipt, delivery limit
-- Output  the packed ids of the acknowledged messages; then as of `acknowledge`
-- Keys    call_receipts:SESSION, those of `acknowledge` and `release`
ops.acknowledge_receipt = function()
  read_time()
  local session, receipt, delivery_limit = read_session(), read_text(), read_number()
  local inbox, named, others = inbox_of(session), {}, {}
  if not inbox then
    return with_ids('', reply_of(nil, {}, 0, {}))
  end
  local first, after_last = take(session, receipt)
  leases.each(session, inbox, function(id, text)
    local lease = read_lease(id, text)
    if lease.number >= first and lease.number < after_last then
      named[#named + 1] = lease
    elseif lease.state == ANSWERED then
      others[#others + 1] = lease
    end
  end)
  local count, tracked, all = finish(session, inbox, named)
  releases.put_back(session, inbox, others, delivery_limit)
  return with_ids(all, reply_of(inbox, {}, count, tracked))
end
