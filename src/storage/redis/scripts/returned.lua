-- What calls were answered with, and the next call acknowledges, on whatever replica.

-- mark_returned: session, the ids. Reply: nothing.
ops.mark_returned = function()
  local session, packed = session_arg(), arg()
  if not inbox_of(session) then
    return {}
  end
  local entries, known = delivered_entries(session, packed), {}
  for at = 1, #entries do
    local entry = entries[at]
    if entry.state ~= RETURNED then
      entry.state = ANSWERED
      known[#known + 1] = id_of(entry.member)
      known[#known + 1] = pack_entry(entry)
    end
  end
  put_delivered(session, inbox_of(session), known)
  return {}
end

-- acknowledge_returned: time, session. Reply: see acknowledged.
ops.acknowledge_returned = function()
  at_ms = arg()
  local session, entries = session_arg(), {}
  local inbox = inbox_of(session)
  if inbox and inbox.leased > 0 then
    entries = leased_entries(session, function(entry)
      return entry.state == ANSWERED
    end)
  end
  if not inbox then
    return acknowledged(nil, {}, 0, {})
  end
  return acknowledged(inbox, {}, finish(session, inbox, entries))
end

-- settle_receipt: time, session, receipt, delivery limit. Acknowledges what was leased last for the call of this receipt,
-- wherever it is now, and puts back what other calls were answered with.
-- Reply: see acknowledged.
ops.settle_receipt = function()
  at_ms = arg()
  local session, call_receipt, delivery_limit = session_arg(), arg(), number_arg()
  local inbox, named, others = inbox_of(session), {}, {}
  if not inbox then
    return acknowledged(nil, {}, 0, {})
  end
  local first, after_last = calls.take(session, call_receipt)
  each_delivered(session, inbox, function(id, text)
    local entry = read_entry(id, text)
    if entry.lease >= first and entry.lease < after_last then
      named[#named + 1] = entry
    elseif entry.state == ANSWERED then
      others[#others + 1] = entry
    end
  end)
  local count, watched = finish(session, inbox, named)
  put_back(session, inbox, others, delivery_limit)
  return acknowledged(inbox, {}, count, watched)
end
