-- Notices when the data set of a project has gone back: after FLUSHALL, a restart from an older snapshot, a failover to a
-- replica that lagged.
--
-- 'epoch' holds two tokens. The epoch changes when something is lost, and only then; it begins with a number that grows. The
-- timeline changes with each process of the server that writes: on one timeline the position (frames, signs and other
-- changes that were counted) only grows, unless the data set goes back. 'forks' lists where the last timelines ended. A
-- witness has seen a position on a timeline: this process of the server, and each replica of the broker, which tells what it
-- has seen with each batch. Something is lost when a witness has seen more than its timeline holds.

-- Timelines that are remembered. A witness of an older one is taken for one of a data set that is lost.
local FORKS_MAX = 64
-- Projects of which this process remembers what it has seen. Beyond that it begins a new timeline in each.
local SEEN_MAX = 10000

-- What this process has seen, by project: the value of 'epoch', position. A restart of the server forgets it.
local seen, seen_len = {}, 0

local function new_token()
  return uuid_text(REPLICA) .. '.' .. whole(BATCH)
end

local function epoch_of(tokens)
  return string.match(tokens, '^%S+')
end

local function number_of(tokens)
  return tokens and tonumber(string.match(tokens, '^%d+')) or 0
end

local function remember()
  local own = seen[PREFIX]
  if not own then
    if seen_len == SEEN_MAX then
      seen, seen_len = {}, 0
    end
    own, seen_len = {}, seen_len + 1
    seen[PREFIX] = own
  end
  own.tokens, own.position = timeline.tokens, timeline.position
end

-- Where a timeline of this epoch ended; nil of one that is not remembered.
local function end_of(token)
  for _, fork in ipairs(call('LRANGE', key('forks'), 0, -1)) do
    local known, last = string.match(fork, '^(%S+) (%d+)$')
    if known == token then
      return tonumber(last)
    end
  end
end

-- Whether a witness has seen what is not in this data set.
local function has_lost(tokens, position)
  local current = timeline.tokens
  if not current or epoch_of(tokens) ~= epoch_of(current) then
    return number_of(tokens) >= number_of(current)
  end
  local last = tokens == current and timeline.position or end_of(string.match(tokens, '%S+$'))
  return not last or position > last
end

local function begin_timeline(epoch)
  timeline.tokens = epoch .. ' ' .. new_token()
  call('SET', key('epoch'), timeline.tokens)
end

-- Finds out which data set this is, for a replica that has seen this. Returns whether the replica knows the epoch: what it
-- asks for is not to be carried out if it believes what may be lost. A replica that has seen nothing ('') believes nothing.
function timeline.judge(tokens, position)
  local stored = call('MGET', key('epoch'), key('frames'), key('serial'), key('changes'))
  timeline.tokens = stored[1]
  timeline.position = tonumber(stored[2] or 0) + tonumber(stored[3] or 0) + tonumber(stored[4] or 0)
  local own, is_told = seen[PREFIX], tokens ~= ''
  if own and own.tokens == timeline.tokens and own.position <= timeline.position then
    if not is_told or tokens == timeline.tokens and position <= timeline.position then
      return true
    end
  end
  if own and has_lost(own.tokens, own.position) or is_told and has_lost(tokens, position) then
    local number = math.max(number_of(timeline.tokens), own and number_of(own.tokens) or 0, number_of(tokens)) + 1
    call('DEL', key('forks'))
    begin_timeline(whole(number) .. '-' .. new_token())
  elseif not timeline.tokens then
    begin_timeline('1-' .. new_token())
  elseif not own then
    call('RPUSH', key('forks'), string.match(timeline.tokens, '%S+$') .. ' ' .. whole(timeline.position))
    call('LTRIM', key('forks'), -FORKS_MAX, -1)
    begin_timeline(epoch_of(timeline.tokens))
  end
  return not is_told or epoch_of(tokens) == epoch_of(timeline.tokens)
end

-- So many frames or signs were counted.
function timeline.move(count)
  timeline.position, timeline.has_moved = timeline.position + count, true
end

-- Counts a call that changed something and moved nothing. Returns what the replica has seen now.
function timeline.bear_witness()
  if timeline.has_changed and not timeline.has_moved then
    call('INCR', key('changes'))
    timeline.position = timeline.position + 1
  end
  remember()
  return timeline.tokens .. ' ' .. whole(timeline.position)
end
