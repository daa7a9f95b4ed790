-- Inboxes. Of each session one line in 'inboxes': how many wait, how many are leased, the next place and the next
-- lease, the epoch of the last claim (doubles) and the claim. What waits is in 'inbox:SESSION', by score; what was delivered at
-- least once and not acknowledged is in 'leased:SESSION', by id. A member is the id (16 bytes), flags, and the length
-- of the envelope (4 bytes).

local inboxes = {}

local LINE = '>ddddd'

local function read_inbox(line)
  local waiting, leased, place, lease, epoch, claim_at = unpack_bytes(LINE, line)
  return { waiting = waiting, leased = leased, place = place, lease = lease, epoch = epoch, claim = sub(line, claim_at) }
end

-- The inbox of a session; nil when it is not known.
local function inbox_of(session)
  local inbox = inboxes[session]
  if inbox == nil then
    local line = call('HGET', key('inboxes'), session)
    inbox = line and read_inbox(line) or false
    inboxes[session] = inbox
  end
  return inbox or nil
end

local function load_inboxes()
  local named = {}
  for at = 1, SESSIONS_LEN do
    named[at] = ARGV[SESSIONS_AT + at]
  end
  local lines = fields(key('inboxes'), named)
  for at = 1, #named do
    inboxes[named[at]] = lines[at] and read_inbox(lines[at]) or false
  end
end

local function inbox_line(inbox)
  return pack(LINE, inbox.waiting, inbox.leased, inbox.place, inbox.lease, inbox.epoch) .. inbox.claim
end

local function flush_inboxes()
  local lines = {}
  for session, inbox in pairs(inboxes) do
    if inbox and inbox.changed then
      lines[#lines + 1] = session
      lines[#lines + 1] = inbox_line(inbox)
    end
  end
  call_many('HSET', key('inboxes'), lines, 2)
end

-- Changes how many wait and how many are leased.
local function shift(inbox, waiting, leased)
  inbox.waiting = inbox.waiting + waiting
  inbox.leased = inbox.leased + leased
  inbox.changed = true
end

-- Where a message stands in the queue, or so many that follow each other: by priority, then by place. Odd when it was
-- delivered before.
local function score_of(inbox, priority, count)
  local score = (3 - priority) * PRIORITY_STEP + inbox.place * 2
  inbox.place = inbox.place + (count or 1)
  return score
end

-- States of what was delivered: leased under a claim, leased for a call, put back, and leased for a call that has been
-- answered and whose caller acknowledges by asking for more.
local LEASED, LEASED_FOR_CALL, RETURNED, ANSWERED = 1, 2, 3, 4

-- What is known of a message that was delivered: score, lease, deadline (0: none), deliveries, state; then the member
-- without the id, the number of the batch that leased it, and the replica.
local ENTRY = '>dddI4Bc5dc16'

local function pack_entry(entry)
  return pack(ENTRY, entry.score, entry.lease, entry.deadline, entry.deliveries, entry.state, sub(entry.member, 17),
    entry.batch, entry.replica)
end

local function read_entry(id, text)
  local score, lease, deadline, deliveries, state, rest, batch, replica = unpack_bytes(ENTRY, text)
  return {
    score = score,
    lease = lease,
    deadline = deadline,
    deliveries = deliveries,
    state = state,
    member = id .. rest,
    batch = batch,
    replica = replica,
  }
end

-- All that is leased and that 'which' is true of, in the order of the queue.
local function leased_entries(session, which)
  local all, entries = call('HGETALL', key('leased:') .. session), {}
  for at = 1, #all, 2 do
    local entry = read_entry(all[at], all[at + 1])
    if entry.state ~= RETURNED and (not which or which(entry)) then
      entries[#entries + 1] = entry
    end
  end
  table.sort(entries, function(a, b)
    return a.score < b.score
  end)
  return entries
end

-- Sessions whose queues lost a message to expiry.
local function thinned(session)
  call('ZADD', key('thinned'), call('INCR', key('serial')), session)
end

-- Buries what has waited beyond its time, up to 'most'. Returns how many deadlines have passed.
local function expire(most)
  local due = call('ZRANGE', key('expiries'), '-inf', now, 'BYSCORE', 'LIMIT', 0, most)
  if #due == 0 then
    return 0
  end
  call_many('ZREM', key('expiries'), due, 1)
  at_ms = whole(now)
  for at = 1, #due do
    local session, member = sub(due[at], 1, 36), sub(due[at], 37)
    local inbox = inbox_of(session)
    if inbox and call('ZREM', key('inbox:') .. session, member) == 1 then
      local id, deliveries = id_of(member), 0
      local known = call('HGET', key('leased:') .. session, id)
      if known then
        deliveries = read_entry(id, known).deliveries
        call('HDEL', key('leased:') .. session, id)
      end
      shift(inbox, -1, 0)
      bury(member, session, 'x', deliveries)
      thinned(session)
    end
  end
  return #due
end
