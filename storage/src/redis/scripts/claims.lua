-- Claims: the right of one holder to one thing, for a time (actors/src/storage/claims.rs).
--
-- Keys  claims (hash: thing -> epoch, holder, note), claims:epochs (hash: epoch -> thing; last -> last epoch of the project),
--       claims:due (sorted set: thing by the end of its claim)

-- Claims that one call of end_silent ends.
local ENDED_AT_ONCE_MAX = contract.ENDED_AT_ONCE_MAX

-- Epoch, holder and note of the claim of a thing; nil without one.
local function read_claim(thing)
  return string.match(call('HGET', key('claims'), thing) or '', '^(%d+) (%S+) (.*)$')
end

-- Adds the claim of a thing to a reply.
local function reply_with(reply, thing)
  local len = #reply
  reply[len + 1], reply[len + 3], reply[len + 4] = read_claim(thing)
  reply[len + 2] = thing
end

local function end_claim(thing, epoch)
  call('HDEL', key('claims'), thing)
  call('HDEL', key('claims:epochs'), epoch)
  call('ZREM', key('claims:due'), thing)
  timeline.has_changed = true
end

-- claim_thing: gives a thing to a holder for a time.
--
-- Input   thing, holder, milliseconds, note
-- Output  the epoch; 0 while another holder has it
-- Keys    claims, claims:epochs, claims:due
ops.claim_thing = function()
  local thing, holder, ttl, note = read_text(), read_text(), read_number(), read_text()
  local epoch, other = read_claim(thing)
  if epoch and tonumber(call('ZSCORE', key('claims:due'), thing)) <= now then
    end_claim(thing, epoch)
    epoch = nil
  end
  if epoch and other ~= holder then
    return { '0' }
  end
  if not epoch then
    local last = tonumber(call('HGET', key('claims:epochs'), 'last') or 0)
    epoch = int_text(math.max(last + 1, now * 1000))
    call('HSET', key('claims:epochs'), 'last', epoch, epoch, thing)
    timeline.has_changed = true
  end
  call('HSET', key('claims'), thing, epoch .. ' ' .. holder .. ' ' .. note)
  call('ZADD', key('claims:due'), int_text(now + ttl), thing)
  return { epoch }
end

-- settle_claim: ends a claim.
--
-- Input   epoch
-- Output  1; 0 if it has ended before
-- Keys    claims, claims:epochs, claims:due
ops.settle_claim = function()
  local epoch = read_text()
  local thing = call('HGET', key('claims:epochs'), epoch)
  if thing then
    end_claim(thing, epoch)
  end
  return { thing and 1 or 0 }
end

-- end_silent: ends claims whose time is over.
--
-- Input   nothing
-- Output  of each: epoch, thing, holder, note
-- Keys    claims, claims:epochs, claims:due
ops.end_silent = function()
  local over = call('ZRANGE', key('claims:due'), '-inf', int_text(now), 'BYSCORE', 'LIMIT', 0, ENDED_AT_ONCE_MAX)
  local reply = {}
  for at = 1, #over do
    reply_with(reply, over[at])
    end_claim(over[at], reply[#reply - 3])
  end
  return reply
end

-- claims: the claims whose time is not over.
--
-- Input   what the things begin with
-- Output  of each: epoch, thing, holder, note
-- Keys    claims (read), claims:due (read)
ops.claims = function()
  local prefix, reply = read_text(), {}
  local things = call('ZRANGE', key('claims:due'), '(' .. int_text(now), '+inf', 'BYSCORE')
  for at = 1, #things do
    if sub(things[at], 1, #prefix) == prefix then
      reply_with(reply, things[at])
    end
  end
  return reply
end
