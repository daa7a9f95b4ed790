-- Finds out when the data set of a project has gone back: after FLUSHALL, a restart from an older snapshot, a failover
-- to a Redis replica that lagged. docs/decisions/0018-timelines.md explains it.
--
-- The epoch of a data set changes when something is lost, and only then; it begins with a number that grows. A timeline
-- begins with each process of the server that writes. On one timeline the position, the sum of three counters, only
-- grows unless the data set goes back. A witness has seen a position on a timeline: this process of the server, and
-- each replica of the broker, which sends what it has seen with each batch. Something is lost when a witness has seen
-- more than its timeline holds.
--
-- Keys  epoch (string: the token of the epoch, a space, the token of the timeline), forks (list: token and last position of
--       earlier timelines), frame_seq, poll_seq, write_seq (counter of calls that changed something and neither of these)

-- Earlier timelines that are remembered. A witness of an older one is taken for the witness of a loss.
local FORKS_MAX = 64
-- Projects of all data sets of which this process remembers what it has seen. Beyond that it begins a new timeline in each.
local SEEN_MAX = 10000

-- What this process has seen, by data set and project: tokens, position. A restart of the server forgets it.
local seen, seen_len = {}, 0

local function own_name()
  return DATA_SET .. ' ' .. PREFIX
end

local function new_token()
  return uuid_text(REPLICA) .. '.' .. int_text(BATCH)
end

local function epoch_of(tokens)
  return string.match(tokens, '^%S+')
end

local function timeline_of(tokens)
  return string.match(tokens, '%S+$')
end

-- The epoch of the data set.
function timeline.epoch()
  return epoch_of(timeline.tokens)
end

local function epoch_number(tokens)
  return tokens and tonumber(string.match(tokens, '^%d+')) or 0
end

local function remember()
  local name = own_name()
  local own = seen[name]
  if not own then
    if seen_len == SEEN_MAX then
      seen, seen_len = {}, 0
    end
    own, seen_len = {}, seen_len + 1
    seen[name] = own
  end
  own.tokens, own.position = timeline.tokens, timeline.position
end

-- The last position of an earlier timeline of this epoch; nil when it is not remembered.
local function end_of(token)
  for _, fork in ipairs(call('LRANGE', key('forks'), 0, -1)) do
    local known, last = string.match(fork, '^(%S+) (%d+)$')
    if known == token then
      return tonumber(last)
    end
  end
end

-- Whether a witness has seen what this data set does not hold.
local function has_lost(tokens, position)
  local current = timeline.tokens
  if not current or epoch_of(tokens) ~= epoch_of(current) then
    return epoch_number(tokens) >= epoch_number(current)
  end
  local last = tokens == current and timeline.position or end_of(timeline_of(tokens))
  return not last or position > last
end

local function begin_timeline(epoch)
  timeline.tokens = epoch .. ' ' .. new_token()
  call('SET', key('epoch'), timeline.tokens)
end

local function read_position()
  local stored = call('MGET', key('epoch'), key('frame_seq'), key('poll_seq'), key('write_seq'))
  timeline.tokens = stored[1]
  timeline.position = tonumber(stored[2] or 0) + tonumber(stored[3] or 0) + tonumber(stored[4] or 0)
end

-- Compares the data set with what the witnesses have seen, and begins an epoch or a timeline where it has to. Returns
-- whether the calling replica knows the epoch: otherwise its operations rest on data that may be lost, and are not
-- carried out. A replica that has seen nothing ('') rests on nothing.
function timeline.judge(tokens, position)
  read_position()
  local own, has_seen = seen[own_name()], tokens ~= ''
  if own and own.tokens == timeline.tokens and own.position <= timeline.position then
    if not has_seen or tokens == timeline.tokens and position <= timeline.position then
      return true
    end
  end
  if own and has_lost(own.tokens, own.position) or has_seen and has_lost(tokens, position) then
    local number = math.max(epoch_number(timeline.tokens), own and epoch_number(own.tokens) or 0, epoch_number(tokens))
    call('DEL', key('forks'))
    begin_timeline(int_text(number + 1) .. '-' .. new_token())
  elseif not timeline.tokens then
    begin_timeline('1-' .. new_token())
  elseif not own then
    call('RPUSH', key('forks'), timeline_of(timeline.tokens) .. ' ' .. int_text(timeline.position))
    call('LTRIM', key('forks'), -FORKS_MAX, -1)
    begin_timeline(epoch_of(timeline.tokens))
  end
  return not has_seen or epoch_of(tokens) == epoch_of(timeline.tokens)
end

-- Notes that frame_seq or poll_seq has grown by so much.
function timeline.move(count)
  timeline.position, timeline.has_moved = timeline.position + count, true
end

-- Counts a call that changed something and moved neither counter. Returns what the calling replica has seen now.
function timeline.witness()
  if timeline.has_changed and not timeline.has_moved then
    call('INCR', key('write_seq'))
    timeline.position = timeline.position + 1
  end
  remember()
  return timeline.tokens .. ' ' .. int_text(timeline.position)
end
