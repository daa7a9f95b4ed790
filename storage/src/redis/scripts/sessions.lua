-- The sessions of a project and their names.
--
-- Keys  sessions (hash: session -> record), sessions:by_name (hash: name or alias -> session), sessions:names (hash:
--       session -> name), sessions:aliases (hash: session -> aliases, each on a line), roster (version of the set of
--       sessions)

-- Replies of put_session.
local STORED, NAME_TAKEN, GONE, TOO_MANY, NO_ROOM = 0, 1, 2, 3, 4

-- Tells all replicas of a change of the roster.
local function publish_roster(head)
  frames.publish(head, call('INCR', key('roster')))
end

-- Calls `each` with every one of these lines.
local function each_line(lines, each)
  for line in string.gmatch(lines or '', '[^\n]+') do
    each(line)
  end
end

-- Removes the name and the aliases of a session.
local function remove_names(session)
  local name = call('HGET', key('sessions:names'), session)
  if name then
    call('HDEL', key('sessions:by_name'), name)
    call('HDEL', key('sessions:names'), session)
  end
  local aliases = call('HGET', key('sessions:aliases'), session)
  if aliases then
    each_line(aliases, function(alias)
      call('HDEL', key('sessions:by_name'), alias)
    end)
    call('HDEL', key('sessions:aliases'), session)
  end
end

-- Gives a session a name, unless it is '', and aliases.
local function add_names(session, name, aliases)
  if name ~= '' then
    call('HSET', key('sessions:by_name'), name, session)
    call('HSET', key('sessions:names'), session, name)
  end
  if aliases ~= '' then
    each_line(aliases, function(alias)
      call('HSET', key('sessions:by_name'), alias, session)
    end)
    call('HSET', key('sessions:aliases'), session, aliases)
  end
end

-- Whether another session has the name or one of the aliases. A build without aliases leaves those of the sessions that
-- it removes: they are removed here.
local function is_taken(session, name, aliases)
  local taken = false
  each_line(name .. '\n' .. aliases, function(wanted)
    local holder = call('HGET', key('sessions:by_name'), wanted)
    if holder and not inboxes.is_known(holder) then
      remove_names(holder)
    elseif holder and holder ~= session then
      taken = true
    end
  end)
  return taken
end

local function name_of(session)
  return call('HGET', key('sessions:names'), session)
end

-- Why a session cannot be stored; nil when it can. `most` is the bound on sessions, or -1; `bytes` by how much its
-- record grows. A record that does not grow is stored even where there are too many bytes, as after a change of the
-- bound.
local function refusal_of(session, resumes, most, bytes)
  if not inboxes.is_known(session) then
    if resumes then
      return GONE
    elseif most >= 0 and call('HLEN', key('sessions')) >= most then
      return TOO_MANY
    end
  end
  if bytes > 0 and usage.of('sessions') + bytes > bounds.sessions_bytes then
    return NO_ROOM
  end
end

-- put_session: stores a session, a new one or a changed one.
--
-- Input   session, name or '', aliases, each on a line, record, 1 when it must exist, most sessions or -1, frame
-- Output  STORED, or the refusal
-- Keys    sessions, sessions:by_name, sessions:names, sessions:aliases, inboxes, heartbeats, leaves, heartbeats:changed,
--         poll_seq, roster
ops.put_session = function()
  local session, name, aliases, record = read_session(), read_text(), read_text(), read_text()
  local resumes, most, head = read_flag(), read_number(), read_text()
  local bytes = #record - call('HSTRLEN', key('sessions'), session)
  local refusal = is_taken(session, name, aliases) and NAME_TAKEN or refusal_of(session, resumes, most, bytes)
  if refusal then
    return { refusal }
  end
  if inboxes.of(session) then
    remove_names(session)
  else
    inboxes.create(session)
  end
  call('HSET', key('sessions'), session, record)
  usage.count('sessions', bytes)
  add_names(session, name, aliases)
  presence.join(session)
  publish_roster(head)
  return { STORED }
end

-- sessions: all sessions.
--
-- Input   nothing
-- Output  the version of the roster, then all records
-- Keys    sessions (read), roster (read)
ops.sessions = function()
  local reply = call('HVALS', key('sessions'))
  table.insert(reply, 1, tonumber(call('GET', key('roster')) or 0))
  return reply
end

-- find_session: one session.
--
-- Input   'id' or 'name', the id, or the name or an alias
-- Output  the record, or nothing
-- Keys    sessions (read), sessions:by_name (read)
ops.find_session = function()
  local by, wanted = read_text(), read_text()
  local session = by == 'id' and wanted or call('HGET', key('sessions:by_name'), wanted)
  local record = session and call('HGET', key('sessions'), session)
  return record and { record } or {}
end

-- Makes dead letters of all messages of an inbox, in the order of their arrival. Returns their number.
local function dead_letter_all(session, inbox, reason)
  segments.split_all(session)
  local list = leases.in_flight(session)
  local waiting, deadlines = queues.all(session, inbox), {}
  local earlier = leases.earlier_deliveries(session, waiting)
  for at = 1, #waiting, 2 do
    local entry = waiting[at]
    list[#list + 1] = { entry = entry, score = tonumber(waiting[at + 1]), deliveries = earlier[id_of(entry)] or 0 }
    if has_flag(entry, HAS_DEADLINE) then
      deadlines[#deadlines + 1] = session .. entry
    end
  end
  table.sort(list, function(a, b)
    return queues.place_of(a.score) < queues.place_of(b.score)
  end)
  for at = 1, #list do
    dead_letters.add(list[at].entry, session, reason, list[at].deliveries)
  end
  expiry.remove(deadlines)
  return #list
end

-- Deletes everything that is kept for a session.
local function delete(session)
  call('UNLINK', inboxes.queue_key(session), inboxes.leases_key(session), call_receipts.key(session))
  remove_names(session)
  usage.count('sessions', -call('HSTRLEN', key('sessions'), session))
  call('HDEL', key('inboxes'), session)
  call('HDEL', key('sessions'), session)
  call('ZREM', key('heartbeats'), session)
  call('ZREM', key('leaves'), session)
  call('ZREM', key('heartbeats:changed'), session)
  call('ZREM', key('expired_in'), session)
  inboxes.remove(session)
end

-- remove_session: removes a session. Its messages become dead letters.
--
-- Input   time, session, code of the reason, milliseconds that it must have been silent or '', frame
-- Output  dead letters; -1 when the session gave a sign of life since
-- Keys    all that are kept for a session, those of dead letters, messages, segments, segments:index, roster
ops.remove_session = function()
  read_time()
  local session, reason, silence, head = read_session(), read_text(), read_text(), read_text()
  local inbox = inboxes.of(session)
  if not inbox then
    return { 0 }
  end
  if silence ~= '' and not presence.is_silent(session, tonumber(silence)) then
    return { -1 }
  end
  local dead = dead_letter_all(session, inbox, reason)
  events.session_ended(session, name_of(session))
  delete(session)
  publish_roster(head)
  return { dead }
end
