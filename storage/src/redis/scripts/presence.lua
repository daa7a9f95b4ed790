-- Presence: when each session gave its last sign of life, by the clock of the server. Replicas exchange ages, never
-- times.
--
-- Keys  heartbeats (sorted set: sessions by the time of their last heartbeat), leaves (sorted set: sessions by the time at
--       which they left), heartbeats:changed (sorted set: sessions by the poll_seq of their last change), poll_seq

-- Has the other replicas hear of these sessions with their next exchange. Returns the poll_seq of the change.
local function mark_changed(sessions)
  local seq, changed = expiry.next_poll_seq(), {}
  for at = 1, #sessions do
    changed[#changed + 1] = seq
    changed[#changed + 1] = sessions[at]
  end
  call_in_steps('ZADD', key('heartbeats:changed'), changed, 2)
  return seq
end

-- Notes a sign of life of a session now.
function presence.join(session)
  call('ZADD', key('heartbeats'), 'GT', int_text(now), session)
  call('ZREM', key('leaves'), session)
  mark_changed({ session })
end

-- Whether a session has given no sign of life for so many milliseconds.
function presence.is_silent(session, milliseconds)
  local last = call('ZSCORE', key('heartbeats'), session)
  return not last or tonumber(last) <= now - milliseconds
end

-- The scores of these sessions as numbers; false for one that has none.
local function scores_of(name, sessions)
  local scores = values_of('ZMSCORE', name, sessions)
  for at = 1, #sessions do
    scores[at] = scores[at] and tonumber(scores[at])
  end
  return scores
end

-- Adds the changes after this poll_seq: session, milliseconds ago, 1 when it has left.
local function add_changes(reply, known_seq)
  local changed = call('ZRANGE', key('heartbeats:changed'), '(' .. known_seq, '+inf', 'BYSCORE')
  local heartbeats, leaves = scores_of(key('heartbeats'), changed), scores_of(key('leaves'), changed)
  for at = 1, #changed do
    local time = heartbeats[at] or 0
    reply[#reply + 1] = changed[at]
    reply[#reply + 1] = math.max(0, now - time)
    reply[#reply + 1] = leaves[at] and leaves[at] >= time and 1 or 0
  end
end

-- Reads the caller's own heartbeats of known sessions: sessions, times, whether each has left.
local function read_heartbeats(last)
  local sessions, times, leaves = {}, {}, {}
  while cursor < last do
    local session, ago, has_left = read_session(), read_number(), read_flag()
    if inboxes.is_known(session) then
      sessions[#sessions + 1] = session
      times[#sessions] = now - ago
      leaves[#sessions] = has_left
    end
  end
  return sessions, times, leaves
end

-- Stores the caller's heartbeats that are not older than the known ones. Returns the sessions that have changed.
local function store_heartbeats(last)
  local sessions, times, leaves = read_heartbeats(last)
  local known, changed, heartbeat_scores, leave_scores = scores_of(key('heartbeats'), sessions), {}, {}, {}
  for at = 1, #sessions do
    -- One of the same moment may differ: the session may have left.
    if not known[at] or times[at] >= known[at] then
      heartbeat_scores[#heartbeat_scores + 1] = int_text(times[at])
      heartbeat_scores[#heartbeat_scores + 1] = sessions[at]
      if leaves[at] then
        leave_scores[#leave_scores + 1] = int_text(times[at])
        leave_scores[#leave_scores + 1] = sessions[at]
      end
      changed[#changed + 1] = sessions[at]
    end
  end
  call_in_steps('ZADD', key('heartbeats'), heartbeat_scores, 2, 'GT')
  call_in_steps('ZADD', key('leaves'), leave_scores, 2, 'GT')
  return changed
end

-- exchange_heartbeats: stores the heartbeats that a replica has received, and returns those of the other replicas.
--
-- Input   the poll_seq up to which the caller knows heartbeats; of each own one: session, milliseconds ago, 1 when it has left
-- Output  the poll_seq up to which it knows them now; the sequence number of the last frame; of each session that has changed
--         since: session, milliseconds ago, 1 when it has left
-- Keys    heartbeats, leaves, heartbeats:changed, poll_seq, frame_seq (read), inboxes (read)
ops.exchange_heartbeats = function(last)
  local known_seq = read_text()
  local reply = { 0, tonumber(call('GET', key('frame_seq')) or 0) }
  add_changes(reply, known_seq)
  local changed = store_heartbeats(last)
  reply[1] = #changed > 0 and tonumber(mark_changed(changed)) or tonumber(call('GET', key('poll_seq')) or 0)
  return reply
end
