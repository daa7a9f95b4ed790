-- What the other replicas are told: event frames, published when all operations of the call are done.
--
-- Keys  frame_seq

-- Frames without their sequence numbers.
local pending
-- Sessions with messages that did not wait before: as a set, and in their order.
local woken, woken_list
-- Tracked messages that have come further: id and status, alternately.
local progress

each_call(function()
  pending, woken, woken_list, progress = {}, {}, {}, {}
end)

-- Publishes a frame. `number` is the number that its event carries; 0 where it has none.
local function publish(head, number)
  pending[#pending + 1] = head .. int_text(number) .. ',"n":'
end
frames.publish = publish

-- Tells all replicas that messages wait for a session.
function frames.wake(session)
  if not woken[session] then
    woken[session] = true
    woken_list[#woken_list + 1] = session
  end
end

-- Tells all replicas, and the caller, that a message has come to a status, if its sender follows it.
function frames.report_progress(entry, status)
  if has_flag(entry, TRACKED) then
    local id = id_of(entry)
    progress[#progress + 1] = id
    progress[#progress + 1] = status
    publish(PROGRESS_HEAD .. uuid_text(id) .. PROGRESS_TAIL, 0)
  end
end

-- Publishes everything. Returns the progress for the reply of the call.
function frames.flush()
  if #woken_list > 0 then
    publish(WAKEUP_HEAD .. '"' .. table.concat(woken_list, '","') .. '"' .. WAKEUP_TAIL, 0)
  end
  if #pending > 0 then
    local seq = call('INCRBY', key('frame_seq'), #pending) - #pending
    timeline.move(#pending)
    for at = 1, #pending do
      call('PUBLISH', CHANNEL, pending[at] .. int_text(seq + at) .. '}')
    end
  end
  return progress
end

-- last_frame_seq: the sequence number of the last frame that was published.
--
-- Input   nothing
-- Output  the number
-- Keys    frame_seq (read)
ops.last_frame_seq = function()
  return { call('GET', key('frame_seq')) or '0' }
end
