-- Who is in the project: records in 'sessions', who has a name in 'names', which name somebody has in 'named'.

local KEPT, NAME_TAKEN, GONE, FULL = 0, 1, 2, 3

-- Has the others hear of these sessions when they ask the next time. Returns the number up to which there are signs now.
local function tell_signs(sessions)
  local serial, told = whole(call('INCR', key('serial'))), {}
  for at = 1, #sessions do
    told[#told + 1] = serial
    told[#told + 1] = sessions[at]
  end
  call_many('ZADD', key('signs'), told, 2)
  return serial
end

-- put_session: session, name or '', record, 1 when it resumes, most sessions or -1, frame.
-- Reply: one of the four above.
ops.put_session = function()
  local session, name, record = session_arg(), arg(), arg()
  local resumes, most, head = arg() == '1', number_arg(), arg()
  local holder = name ~= '' and call('HGET', key('names'), name)
  if holder and holder ~= session then
    return { NAME_TAKEN }
  end
  if inbox_of(session) then
    local before = call('HGET', key('named'), session)
    if before and before ~= name then
      call('HDEL', key('names'), before)
      call('HDEL', key('named'), session)
    end
  elseif resumes then
    return { GONE }
  elseif most >= 0 and call('HLEN', key('inboxes')) >= most then
    return { FULL }
  else
    local inbox = { waiting = 0, leased = 0, place = 0, lease = 0, epoch = 0, claim = '-' }
    call('HSET', key('inboxes'), session, inbox_line(inbox))
    inboxes[session] = inbox
  end
  call('HSET', key('sessions'), session, record)
  if name ~= '' then
    call('HSET', key('names'), name, session)
    call('HSET', key('named'), session, name)
  end
  call('ZADD', key('seen'), 'GT', whole(now), session)
  call('ZREM', key('left'), session)
  tell_signs({ session })
  publish(head, call('INCR', key('roster')))
  return { KEPT }
end

-- sessions. Reply: the version of the roster, then all records.
ops.sessions = function()
  local reply = call('HVALS', key('sessions'))
  table.insert(reply, 1, tonumber(call('GET', key('roster')) or 0))
  return reply
end

-- find_session: 'id' or 'name', which. Reply: the record, or nothing.
ops.find_session = function()
  local by, which = arg(), arg()
  local session = by == 'id' and which or call('HGET', key('names'), which)
  local record = session and call('HGET', key('sessions'), session)
  return record and { record } or {}
end

-- remove_session: time, session, status of what it leaves, most silence in milliseconds or '', frame.
-- Reply: how many dead letters, -1 when it was seen since.
ops.remove_session = function()
  at_ms = arg()
  local session, reason, silence, head = session_arg(), arg(), arg(), arg()
  local inbox = inbox_of(session)
  if not inbox then
    return { 0 }
  end
  local seen = silence ~= '' and call('ZSCORE', key('seen'), session)
  if seen and tonumber(seen) > now - tonumber(silence) then
    return { -1 }
  end
  local left = leased_entries(session)
  local known = call('ZRANGE', key('inbox:') .. session, 0, -1, 'WITHSCORES')
  local earlier, timed = earlier_deliveries(session, known), {}
  for at = 1, #known, 2 do
    local member = known[at]
    left[#left + 1] = { member = member, score = tonumber(known[at + 1]), deliveries = earlier[id_of(member)] or 0 }
    if has(member, TIMED) then
      timed[#timed + 1] = session .. member
    end
  end
  table.sort(left, function(a, b)
    return a.score % PRIORITY_STEP < b.score % PRIORITY_STEP
  end)
  for at = 1, #left do
    bury(left[at].member, session, reason, left[at].deliveries)
  end
  call_many('ZREM', key('expiries'), timed, 1)
  call('UNLINK', key('inbox:') .. session, key('leased:') .. session)
  local name = call('HGET', key('named'), session)
  if name then
    call('HDEL', key('names'), name)
    call('HDEL', key('named'), session)
  end
  for _, of_sessions in ipairs({ 'inboxes', 'sessions' }) do
    call('HDEL', key(of_sessions), session)
  end
  for _, of_sessions in ipairs({ 'seen', 'left', 'signs', 'thinned' }) do
    call('ZREM', key(of_sessions), session)
  end
  inboxes[session] = false
  publish(head, call('INCR', key('roster')))
  return { #left }
end

-- signs: the sign that was heard last; of each own sign: session, milliseconds ago, 1 for a goodbye.
-- Reply: the sign that is heard last now; of each sign since: session, milliseconds ago, 1 for a goodbye.
ops.signs = function(last)
  local heard = arg()
  local news = call('ZRANGE', key('signs'), '(' .. heard, '+inf', 'BYSCORE')
  local reply = { tonumber(heard) }
  for first = 1, #news, VALUES_MAX do
    local end_at = math.min(first + VALUES_MAX - 1, #news)
    local seen = call('ZMSCORE', key('seen'), unpack(news, first, end_at))
    local left = call('ZMSCORE', key('left'), unpack(news, first, end_at))
    for at = 1, #seen do
      local when = tonumber(seen[at] or 0)
      reply[#reply + 1] = news[first + at - 1]
      reply[#reply + 1] = math.max(0, now - when)
      reply[#reply + 1] = left[at] and tonumber(left[at]) >= when and 1 or 0
    end
  end
  local signs = {}
  while cursor < last do
    local session, ago, goodbye = session_arg(), number_arg(), arg()
    local when = whole(now - ago)
    if inbox_of(session) then
      local newer = call('ZADD', key('seen'), 'GT', 'CH', when, session) == 1
      if goodbye == '1' and call('ZADD', key('left'), 'GT', 'CH', when, session) == 1 or newer then
        signs[#signs + 1] = session
      end
    end
  end
  reply[1] = #signs > 0 and tonumber(tell_signs(signs)) or tonumber(call('GET', key('serial')) or 0)
  return reply
end
