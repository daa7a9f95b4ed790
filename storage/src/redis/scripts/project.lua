-- The record of a project, and its messages to other projects.
--
-- Keys  project:record (hash: revision, record), cross_project (hash: message -> project), cross_project:by_age
--       (list of messages), cross_project:targets (hash: project -> messages)

-- project: the record of the project.
--
-- Input   nothing
-- Output  the record, or nil
-- Keys    project:record (read)
ops.project = function()
  return { call('HGET', key('project:record'), 'record') or nil }
end

-- put_project: stores the next revision of the record.
--
-- Input   record, its revision, frame
-- Output  1; 0 when it is not the next revision
-- Keys    project:record
ops.put_project = function()
  local record, revision, head = read_text(), read_text(), read_text()
  local known = call('HGET', key('project:record'), 'revision')
  if int_text(known and known + 1 or 0) ~= revision then
    return { 0 }
  end
  call('HSET', key('project:record'), 'revision', revision, 'record', record)
  frames.publish(head, 0)
  return { 1 }
end

-- Drops the oldest cross-project messages while there are too many.
local function drop_excess()
  while call('HLEN', key('cross_project')) > bounds.cross_project do
    local oldest = call('LPOP', key('cross_project:by_age'))
    local target = call('HGET', key('cross_project'), oldest)
    call('HDEL', key('cross_project'), oldest)
    if call('HINCRBY', key('cross_project:targets'), target, -1) <= 0 then
      call('HDEL', key('cross_project:targets'), target)
    end
  end
end

-- put_cross_project_target: notes to which project a message went.
--
-- Input   message, project
-- Output  nothing
-- Keys    cross_project, cross_project:by_age, cross_project:targets
ops.put_cross_project_target = function()
  local id, target = read_text(), read_text()
  if call('HSETNX', key('cross_project'), id, target) == 1 then
    timeline.has_changed = true
    call('RPUSH', key('cross_project:by_age'), id)
    call('HINCRBY', key('cross_project:targets'), target, 1)
    drop_excess()
  end
  return {}
end

-- cross_project_target: to which project a message went.
--
-- Input   message
-- Output  the project, or nil
-- Keys    cross_project (read)
ops.cross_project_target = function()
  return { call('HGET', key('cross_project'), read_text()) or nil }
end

-- cross_project_targets: the projects to which kept messages went.
--
-- Input   nothing
-- Output  the projects
-- Keys    cross_project:targets (read)
ops.cross_project_targets = function()
  return call('HKEYS', key('cross_project:targets'))
end

-- Sessions and buckets that one step of `clear` deletes.
local CLEAR_STEP = 500

-- clear: deletes what the project holds, a step at a time. What stays: its record, and the counters by which replicas
-- notice that they have missed something.
--
-- Input   names of the keys to delete (keys.rs)
-- Output  1 when there is more to delete
-- Keys    the named ones, inboxes, receipts, and the keys of each session and bucket
ops.clear = function(last)
  inboxes.reset()
  group_leases.reset()
  usage.read(nil)
  call('HDEL', key('inboxes'), usage.FIELD)
  while cursor < last do
    call('UNLINK', key(read_text()))
  end
  local sessions = call('HSCAN', key('inboxes'), 0, 'COUNT', CLEAR_STEP)[2]
  for at = 1, #sessions, 2 do
    local session = sessions[at]
    call('UNLINK', inboxes.queue_key(session), inboxes.leases_key(session), call_receipts.key(session))
    call('HDEL', key('inboxes'), session)
  end
  local buckets = call('HSCAN', key('receipts'), 0, 'COUNT', CLEAR_STEP)[2]
  for at = 1, #buckets, 2 do
    call('UNLINK', key('receipts:') .. buckets[at], key('segments:settled:') .. buckets[at])
    call('HDEL', key('receipts'), buckets[at])
  end
  return { #sessions + #buckets > 0 and 1 or 0 }
end
