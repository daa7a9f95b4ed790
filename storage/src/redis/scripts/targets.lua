-- The targets outside the broker to which changes of questions are sent (actors/src/storage/targets.rs).
--
-- Keys  targets (hash: target -> place), targets:claims (hash: target -> end of the claim and the replica that sends to it)

-- Has the calling replica send to a target for `ttl` milliseconds. Returns false while another one does.
local function claim(target, ttl)
  local known = call('HGET', key('targets:claims'), target)
  if known then
    local until_ms, replica = string.match(known, '^(%d+) (.*)$')
    if replica ~= REPLICA and tonumber(until_ms) > now then
      return false
    end
  end
  call('HSET', key('targets:claims'), target, int_text(now + ttl) .. ' ' .. REPLICA)
  return true
end

-- claim_target: has the calling replica send to a target.
--
-- Input   target, milliseconds
-- Output  1 and the place of the target, or nil without one; 0 while another replica sends to it
-- Keys    targets (read), targets:claims
ops.claim_target = function()
  local target, ttl = read_text(), read_number()
  if claim(target, ttl) then
    return { 1, call('HGET', key('targets'), target) or nil }
  end
  return { 0 }
end

-- move_target: stores the place of a target.
--
-- Input   target, place (JSON), milliseconds
-- Output  1; 0 while another replica sends to it
-- Keys    targets, targets:claims
ops.move_target = function()
  local target, place, ttl = read_text(), read_text(), read_number()
  if claim(target, ttl) then
    timeline.has_changed = true
    call('HSET', key('targets'), target, place)
    return { 1 }
  end
  return { 0 }
end
