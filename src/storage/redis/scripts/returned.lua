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
