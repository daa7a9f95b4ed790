-- Who is in the project: records in 'sessions', who has a name in 'names', which name somebody has in 'named'.

local KEPT, NAME_TAKEN, GONE, FULL, NO_ROOM = 0, 1, 2, 3, 4

-- Has the others hear of these sessions when they ask the next time. Returns the number up to which there are signs
-- now.
local function tell_signs(sessions)
  local serial, told = whole(call('INCR', key('serial'))), {}
  timeline.move(1)
  for at = 1, #sessions do
    told[#told + 1] = serial
    told[#told + 1] = sessions[at]
  end
  call_many('ZADD', key('signs'), told, 2)
  return serial
end

-- put_session: session, name or '', record, 1 when it resumes, most sessions or -1, frame.
-- Reply: one of the five above.
ops.put_session = function()
  local session, name, record = session_arg(), arg(), arg()
  local resumes, most, head = arg() == '1', number_arg(), arg()
  local holder = name ~= '' and call('HGET', key('names'), name)
  if holder and holder ~= session then
    return { NAME_TAKEN }
  end
  local inbox, bytes_before = inbox_of(session), call('HSTRLEN', key('sessions'), session)
  local bytes = #record - bytes_before
  -- A record that does not grow is kept though there be too much, as after a change of the limit.
  local is_too_large = bytes > 0 and total('sessions') + bytes > bounds.sessions_bytes
  if inbox then
    if is_too_large then
      return { NO_ROOM }
    end
    local before = call('HGET', key('named'), session)
    if before and before ~= name then
      call('HDEL', key('names'), before)
      call('HDEL', key('named'), session)
    end
  elseif resumes then
    return { GONE }
  elseif most >= 0 and call('HLEN', key('sessions')) >= most then
    return { FULL }
  elseif is_too_large then
    return { NO_ROOM }
  else
    inbox = new_inbox()
    call('HSET', key('inboxes'), session, inbox_line(inbox))
    inboxes[session] = inbox
  end
  call('HSET', key('sessions'), session, record)
  count_bytes('sessions', bytes)
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
  unbundle_all(session)
  local left = leased_entries(session)
  local known = queued(session, inbox)
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
  call('UNLINK', queue_key(session), delivered_key(session), calls.key(session))
  local name = call('HGET', key('named'), session)
  if name then
    call('HDEL', key('names'), name)
    call('HDEL', key('named'), session)
  end
  count_bytes('sessions', -call('HSTRLEN', key('sessions'), session))
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

-- The scores of these sessions; false for one that has none.
local function scores(name, sessions)
  local values = {}
  for first = 1, #sessions, VALUES_MAX do
    local part = call('ZMSCORE', name, unpack(sessions, first, math.min(first + VALUES_MAX - 1, #sessions)))
    for at = 1, #part do
      values[first + at - 1] = part[at] and tonumber(part[at])
    end
  end
  return values
end

-- signs: the sign that was heard last; of each own sign: session, milliseconds ago, 1 for a goodbye.
-- Reply: the sign that is heard last now; the last frame; of each sign since: session, milliseconds ago, 1 for a goodbye.
ops.signs = function(last)
  local heard = arg()
  local news = call('ZRANGE', key('signs'), '(' .. heard, '+inf', 'BYSCORE')
  local reply = { 0, tonumber(call('GET', key('frames')) or 0) }
  local seen, left = scores(key('seen'), news), scores(key('left'), news)
  for at = 1, #news do
    local when = seen[at] or 0
    reply[#reply + 1] = news[at]
    reply[#reply + 1] = math.max(0, now - when)
    reply[#reply + 1] = left[at] and left[at] >= when and 1 or 0
  end
  local own, times, goodbyes = {}, {}, {}
  while cursor < last do
    local session, ago, goodbye = session_arg(), number_arg(), arg()
    if is_known(session) then
      own[#own + 1] = session
      times[#own] = now - ago
      goodbyes[#own] = goodbye == '1'
    end
  end
  local known, told, seen_now, left_now = scores(key('seen'), own), {}, {}, {}
  for at = 1, #own do
    -- Of the same moment may be what has told of it, or something else.
    if not known[at] or times[at] >= known[at] then
      seen_now[#seen_now + 1] = whole(times[at])
      seen_now[#seen_now + 1] = own[at]
      if goodbyes[at] then
        left_now[#left_now + 1] = whole(times[at])
        left_now[#left_now + 1] = own[at]
      end
      told[#told + 1] = own[at]
    end
  end
  call_many('ZADD', key('seen'), seen_now, 2, 'GT')
  call_many('ZADD', key('left'), left_now, 2, 'GT')
  reply[1] = #told > 0 and tonumber(tell_signs(told)) or tonumber(call('GET', key('serial')) or 0)
  return reply
end
