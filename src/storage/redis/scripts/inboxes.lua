-- Inboxes. Of each session one line in 'inboxes': how many wait, how many are leased and how many bytes these are, and all; when
-- whoever claimed it takes what comes unasked, how much, who that is, and whether it acknowledges by writing; the next
-- place, the epoch of the last claim, the next lease, and the claim. What waits, by its score, and what was delivered at least once and
-- not acknowledged, by its id, are in the line too while they are few; when they are many, in 'inbox:SESSION' and in
-- 'leased:SESSION', until there are none. A member is the id (16 bytes), flags, and the length of the envelope (4 bytes).

-- Those that an operation has looked into, false for a session that is not known; and lines that none has looked into.
local inboxes, unopened

each_time(function()
  inboxes, unopened = {}, {}
end)

-- Most that waits, and most that was delivered, in a line.
local LINE_LEN_MAX = 8
-- Of a line: how many wait, are leased, and their bytes; bytes of both; how many messages and bytes may be leased unasked; the length of
-- the claim, the form, how many wait and were delivered in the line; place, epoch, lease. Then the claim, who takes, these.
local LINE, QUEUED, DELIVERED = '>ddddI4I4BBBBddd', '>dc21', '>c16c66'
-- How it begins, and where the lease and the claim are in it.
local LINE_HEAD, LEASE_AT, CLAIM_AT = '>ddddI4I4BB', 61, 69
-- Forms, which are added: there are many; writing acknowledges.
local OUTSIDE, BY_WRITING = 1, 2
-- A replica as text, by which its channel is named.
local TAKER_LEN = 36

local function new_inbox()
  return {
    waiting = 0, leased = 0, bytes = 0, size = 0, place = 0, lease = 0, epoch = 0, window = 0, room = 0, claim = '-', taker = '',
    outside = false, by_writing = false, queue = {}, delivered = {}, delivered_len = 0, changed = false,
  }
end

local function read_inbox(line)
  local queue, delivered = {}, {}
  local waiting, leased, bytes, size, window, room, claim_len, form, queue_len, delivered_len, place, epoch, lease =
    unpack_bytes(LINE, line)
  local taker_at = CLAIM_AT + claim_len
  local at = window > 0 and taker_at + TAKER_LEN or taker_at
  -- All fields at once: a table that grows with each is made several times.
  local inbox = {
    waiting = waiting, leased = leased, bytes = bytes, size = size, place = place, lease = lease, epoch = epoch, window = window,
    room = room, claim = sub(line, CLAIM_AT, taker_at - 1), taker = sub(line, taker_at, at - 1),
    outside = form % 2 == OUTSIDE, by_writing = form >= BY_WRITING, queue = queue, delivered = delivered,
    delivered_len = delivered_len, changed = false,
  }
  for score_at = 1, 2 * queue_len, 2 do
    queue[score_at], queue[score_at + 1], at = unpack_bytes(QUEUED, line, at)
  end
  for _ = 1, delivered_len do
    local id, entry
    id, entry, at = unpack_bytes(DELIVERED, line, at)
    delivered[id] = entry
  end
  return inbox
end

local open_inbox, keep_inbox
-- Of very many at once most have left the processor's cache when their turn comes, and a line is read faster.
local KEPT_AT_ONCE_MAX = 100

do -- What nobody else names.

-- Inboxes as the last call left them, by session: most lines are read again soon, and to take one apart takes longer than
-- most of what is done with it. Each holds for as long as its line is in Redis, so nothing else has to be known of it.
local kept, kept_len = {}, 0
local KEPT_LEN_MAX = 500

function open_inbox(session, line)
  local inbox = kept[session]
  if not inbox or inbox.line ~= line then
    inbox = read_inbox(line)
  end
  -- Of no use should this call break off.
  inbox.line, inbox.opened = nil, line
  inboxes[session] = inbox
  return inbox
end

-- Keeps an inbox for the next call that asks for this line.
function keep_inbox(session, inbox, line)
  if not kept[session] then
    if kept_len == KEPT_LEN_MAX then
      kept, kept_len = {}, 0
    end
    kept_len = kept_len + 1
  end
  inbox.line = line
  kept[session] = inbox
end

end

-- The line of a session whose inbox is not open; false when the session is not known.
local function line_of(session)
  local line = unopened[session]
  if line == nil then
    line = call('HGET', key('inboxes'), session)
    unopened[session] = line
  end
  return line
end

-- See posts.lua.
local take_posts

-- The inbox of a session; nil when it is not known.
local function inbox_of(session)
  local inbox = inboxes[session]
  if inbox == nil then
    local line = line_of(session)
    if line then
      inbox = open_inbox(session, line)
      if inbox.by_writing then
        take_posts(session, inbox)
      end
    else
      inboxes[session] = false
    end
  end
  return inbox or nil
end

local function is_known(session)
  if inboxes[session] ~= nil then
    return inboxes[session] ~= false
  end
  return line_of(session) ~= false
end

local function load_inboxes()
  for first = 1, SESSIONS_LEN, VALUES_MAX do
    local before, last = SESSIONS_AT + first - 1, SESSIONS_AT + math.min(first + VALUES_MAX - 1, SESSIONS_LEN)
    local lines = call('HMGET', key('inboxes'), TOTALS_FIELD, unpack(ARGV, before + 1, last))
    if not totals then
      read_totals(lines[1])
    end
    for at = 1, last - before do
      unopened[ARGV[before + at]] = lines[at + 1]
    end
  end
end

local function inbox_line(inbox)
  local queue, claim = inbox.queue, inbox.claim
  local form = (inbox.outside and OUTSIDE or 0) + (inbox.by_writing and BY_WRITING or 0)
  local head = pack(LINE, inbox.waiting, inbox.leased, inbox.bytes, inbox.size, inbox.window, inbox.room, #claim, form, #queue / 2,
    inbox.delivered_len, inbox.place, inbox.epoch, inbox.lease) .. claim .. inbox.taker
  if #queue == 0 and inbox.delivered_len == 0 then
    return head
  end
  local parts = { head }
  for at = 1, #queue, 2 do
    parts[#parts + 1] = pack(QUEUED, queue[at], queue[at + 1])
  end
  for id, entry in pairs(inbox.delivered) do
    parts[#parts + 1] = id
    parts[#parts + 1] = entry
  end
  return table.concat(parts)
end

-- An operation failed half way: what is in the inboxes may not be what their lines say.
local is_spoilt

each_time(function()
  is_spoilt = false
end)

local function flush_inboxes()
  local lines = {}
  for session, inbox in pairs(inboxes) do
    if inbox then
      local line = inbox.opened
      if inbox.changed then
        inbox.outside = inbox.outside and inbox.waiting + inbox.leased > 0
        inbox.changed = false
        line = inbox_line(inbox)
        lines[#lines + 1] = session
        lines[#lines + 1] = line
      end
      if not is_spoilt and SESSIONS_LEN <= KEPT_AT_ONCE_MAX then
        keep_inbox(session, inbox, line)
      end
    end
  end
  local totals_now = changed_totals()
  if totals_now then
    lines[#lines + 1] = TOTALS_FIELD
    lines[#lines + 1] = totals_now
  end
  timeline.has_changed = timeline.has_changed or #lines > 0
  call_many('HSET', key('inboxes'), lines, 2)
end

local function queue_key(session)
  return key('inbox:') .. session
end

local function delivered_key(session)
  return key('leased:') .. session
end

-- Which leases the receipts of calls name: in 'calls:SESSION', by receipt, the number of the first lease and of the one
-- after the last. The oldest go first when there are more than 'most', and all when no call has leased anything for a day.
-- One table: a library has room for 200 locals.
local calls = { most = 64, kept_for_s = 24 * 3600, numbers = '>dd' }

function calls.key(session)
  return key('calls:') .. session
end

function calls.remember(session, of_call, first, after_last)
  local name = calls.key(session)
  call('HSET', name, of_call, pack(calls.numbers, first, after_last))
  call('EXPIRE', name, calls.kept_for_s)
  if call('HLEN', name) <= calls.most then
    return
  end
  local all, known, oldest = call('HGETALL', name), {}, {}
  for at = 1, #all, 2 do
    known[#known + 1] = { name = all[at], first = (unpack_bytes(calls.numbers, all[at + 1])) }
  end
  table.sort(known, function(a, b)
    return a.first < b.first
  end)
  for at = 1, #known / 2 do
    oldest[at] = known[at].name
  end
  call_many('HDEL', name, oldest, 1)
end

-- The leases that a receipt names: the first, and the one after the last. It is forgotten.
function calls.take(session, of_call)
  local numbers = call('HGET', calls.key(session), of_call)
  if not numbers then
    return 0, 0
  end
  call('HDEL', calls.key(session), of_call)
  local first, after_last = unpack_bytes(calls.numbers, numbers)
  return first, after_last
end

-- There are too many for the line from now on.
local function move_outside(session, inbox)
  local delivered = {}
  for id, entry in pairs(inbox.delivered) do
    delivered[#delivered + 1] = id
    delivered[#delivered + 1] = entry
  end
  local queue = inbox.queue
  call_many('ZADD', queue_key(session), queue, 2)
  call_many('HSET', delivered_key(session), delivered, 2)
  inbox.queue, inbox.delivered, inbox.delivered_len, inbox.outside, inbox.changed = {}, {}, 0, true, true
end

-- Puts a message in its place among those in the line, of which there must be room for one more.
local function insert(queue, score, member)
  local at = #queue + 1
  while at > 1 and queue[at - 2] > score do
    queue[at], queue[at + 1] = queue[at - 2], queue[at - 1]
    at = at - 2
  end
  queue[at], queue[at + 1] = score, member
end

-- Has these wait: scores and members, by turns.
local function enqueue(session, inbox, list)
  local queue = inbox.queue
  if not inbox.outside and #queue + #list > 2 * LINE_LEN_MAX then
    move_outside(session, inbox)
  end
  if inbox.outside then
    return call_many('ZADD', queue_key(session), list, 2)
  end
  for at = 1, #list, 2 do
    insert(queue, tonumber(list[at]), list[at + 1])
  end
  inbox.changed = true
end

-- Takes out some of those that come first: members and scores, by turns. Not very many, for the caller does not know
-- before how many messages these are, and puts back what is too much.
local function dequeue(session, inbox, most)
  if inbox.outside then
    return call('ZPOPMIN', queue_key(session), math.min(most, 32))
  end
  local queue, rest, taken = inbox.queue, {}, {}
  for at = 1, #queue, 2 do
    if at < 2 * most then
      taken[at], taken[at + 1] = queue[at + 1], queue[at]
    else
      rest[#rest + 1] = queue[at]
      rest[#rest + 1] = queue[at + 1]
    end
  end
  inbox.queue, inbox.changed = rest, true
  return taken
end

-- Takes out these members. Returns how many there were.
local function unqueue(session, inbox, members)
  if inbox.outside then
    local count = 0
    for first = 1, #members, VALUES_MAX do
      local last = math.min(first + VALUES_MAX - 1, #members)
      count = count + call('ZREM', queue_key(session), unpack(members, first, last))
    end
    return count
  end
  if #members == 0 then
    return 0
  end
  local gone_members, queue, rest = {}, inbox.queue, {}
  for at = 1, #members do
    gone_members[members[at]] = true
  end
  for at = 1, #queue, 2 do
    if not gone_members[queue[at + 1]] then
      rest[#rest + 1] = queue[at]
      rest[#rest + 1] = queue[at + 1]
    end
  end
  inbox.queue, inbox.changed = rest, true
  return (#queue - #rest) / 2
end

-- All that waits: members and scores, by turns.
local function queued(session, inbox)
  if inbox.outside then
    return call('ZRANGE', queue_key(session), 0, -1, 'WITHSCORES')
  end
  local list, queue = {}, inbox.queue
  for at = 1, #queue, 2 do
    list[at], list[at + 1] = queue[at + 1], queue[at]
  end
  return list
end

local function is_any_queued(session, inbox, members)
  local wanted_members, queue = {}, inbox.queue
  if inbox.outside then
    local scores = call('ZMSCORE', queue_key(session), unpack(members))
    for at = 1, #members do
      if scores[at] then
        return true
      end
    end
  end
  for at = 1, #members do
    wanted_members[members[at]] = true
  end
  for at = 2, #queue, 2 do
    if wanted_members[queue[at]] then
      return true
    end
  end
  return false
end

-- What is known of these messages as delivered; false of one that was not.
local function delivered_of(session, inbox, ids)
  if inbox.outside then
    return fields(delivered_key(session), ids)
  end
  local found, delivered = {}, inbox.delivered
  for at = 1, #ids do
    found[at] = delivered[ids[at]] or false
  end
  return found
end

-- Keeps what is known of delivered messages: ids and entries, by turns.
local function put_delivered(session, inbox, list)
  if not inbox.outside and inbox.delivered_len + #list / 2 > LINE_LEN_MAX then
    move_outside(session, inbox)
  end
  if inbox.outside then
    return call_many('HSET', delivered_key(session), list, 2)
  end
  local delivered = inbox.delivered
  for at = 1, #list, 2 do
    if not delivered[list[at]] then
      inbox.delivered_len = inbox.delivered_len + 1
    end
    delivered[list[at]] = list[at + 1]
  end
  inbox.changed = true
end

local function drop_delivered(session, inbox, ids)
  if inbox.outside then
    return call_many('HDEL', delivered_key(session), ids, 1)
  end
  local delivered = inbox.delivered
  for at = 1, #ids do
    if delivered[ids[at]] then
      delivered[ids[at]] = nil
      inbox.delivered_len = inbox.delivered_len - 1
    end
  end
  inbox.changed = true
end

-- Calls with the id and what is known of each message that was delivered. It must not change what is delivered.
local function each_delivered(session, inbox, see)
  if inbox.outside then
    local all = call('HGETALL', delivered_key(session))
    for at = 1, #all, 2 do
      see(all[at], all[at + 1])
    end
  else
    for id, entry in pairs(inbox.delivered) do
      see(id, entry)
    end
  end
end

-- Changes how many wait, how many are leased and their bytes, and the bytes of both.
local function shift(inbox, waiting, leased, bytes, size)
  inbox.waiting = inbox.waiting + waiting
  inbox.leased = inbox.leased + leased
  inbox.bytes = inbox.bytes + bytes
  inbox.size = inbox.size + size
  inbox.changed = true
end

-- Nobody is handed anything unasked any more.
local function close_window(inbox)
  inbox.window, inbox.room, inbox.taker, inbox.by_writing, inbox.changed = 0, 0, '', false, true
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
-- without the id, the number of the batch that leased it, the replica, and since when all this is so.
local ENTRY = '>dddI4Bc5dc16d'
-- Where the state and the flags are in it.
local STATE_AT, FLAGS_AT = 29, 30

local function pack_entry(entry)
  return pack(ENTRY, entry.score, entry.lease, entry.deadline, entry.deliveries, entry.state, sub(entry.member, 17),
    entry.batch, entry.replica, entry.since)
end

local function read_entry(id, text)
  local score, lease, deadline, deliveries, state, rest, batch, replica, since = unpack_bytes(ENTRY, text)
  return {
    score = score,
    lease = lease,
    deadline = deadline,
    deliveries = deliveries,
    state = state,
    member = id .. rest,
    batch = batch,
    replica = replica,
    since = since,
  }
end

-- All that is leased and that 'which' is true of, in the order of the queue.
local function leased_entries(session, which)
  local inbox, entries = inbox_of(session), {}
  each_delivered(session, inbox, function(id, text)
    local entry = read_entry(id, text)
    if entry.state ~= RETURNED and (not which or which(entry)) then
      entries[#entries + 1] = entry
    end
  end)
  table.sort(entries, function(a, b)
    return a.score < b.score
  end)
  return entries
end

-- Sessions whose queues lost a message to expiry.
local function thinned(session)
  call('ZADD', key('thinned'), call('INCR', key('serial')), session)
  timeline.move(1)
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
    if inbox and unqueue(session, inbox, { member }) == 1 then
      local id, deliveries = id_of(member), 0
      local known = delivered_of(session, inbox, { id })[1]
      if known then
        deliveries = read_entry(id, known).deliveries
        drop_delivered(session, inbox, { id })
      end
      shift(inbox, -1, 0, 0, -bytes_of(member))
      bury(member, session, 'x', deliveries)
      thinned(session)
    end
  end
  return #due
end
