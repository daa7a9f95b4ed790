-- The way of a message: append, lease, acknowledge, release.

-- Messages that are handed out, to be read in one go when all operations are done.
local wanted, wanted_by = {}, {}

-- Puts a message in the reply when it is read.
local function want_message(id, reply)
  wanted[#wanted + 1] = id
  reply[#reply + 1] = false
  wanted_by[#wanted_by + 1] = { reply, #reply }
end

local function read_wanted()
  local stored = fields(key('messages'), wanted)
  for at = 1, #wanted do
    local reply, place = wanted_by[at][1], wanted_by[at][2]
    reply[place] = stored[at]
  end
end

-- The first results of these idempotency keys that are not free; by key.
local function read_outcomes(keys)
  local found, known = fields(key('idempotency'), keys), {}
  for at = 1, #keys do
    local until_ms, outcome = string.match(found[at] or '', '^(%d+) (.*)$')
    if until_ms and tonumber(until_ms) > now then
      known[keys[at]] = outcome
    end
  end
  return known
end

local function keep_outcome(name, outcome)
  local until_ms = whole(now + WINDOW_MS)
  call('HSET', key('idempotency'), name, until_ms .. ' ' .. outcome)
  call('ZADD', key('idempotency:until'), until_ms, name)
  while call('ZCARD', key('idempotency:until')) > OUTCOMES_MAX do
    call('HDEL', key('idempotency'), call('ZPOPMIN', key('idempotency:until'))[1])
  end
end

-- append: time, number of idempotency keys, the keys; number of messages, and of each: member, stored message,
-- priority, time to live in milliseconds (0: none), capacity, roster or '', place of its key (0: none), number of
-- recipients, the recipients.
-- Reply: of each an array of the length of the queue and the places of those who refused, a first result, or nil when
-- the roster is another.
ops.append = function()
  at_ms = arg()
  local keys = {}
  for at = 1, number_arg() do
    keys[at] = arg()
  end
  local known = #keys > 0 and read_outcomes(keys)
  local count, reply, outdated, roster_now = number_arg(), {}, false, nil
  local stored, copies, arrivals, timed = {}, {}, {}, {}
  for at = 1, count do
    local member, message, priority, ttl = arg(), arg(), number_arg(), number_arg()
    local capacity, roster, key_at, len = number_arg(), arg(), number_arg(), number_arg()
    local recipients_at, name = cursor, keys[key_at]
    if roster ~= '' and not outdated then
      roster_now = roster_now or call('GET', key('roster')) or '0'
      outdated = roster_now ~= roster
    end
    if outdated then
      reply[at] = false
    elseif name and known[name] then
      reply[at] = known[name]
    else
      local answer, accepted, longest = { 0 }, {}, 0
      for place = 1, len do
        local session = session_arg()
        local inbox = inbox_of(session)
        if inbox and inbox.waiting + inbox.leased < capacity then
          local list = arrivals[session]
          if not list then
            list = {}
            arrivals[session] = list
          end
          list[#list + 1] = whole(score_of(inbox, priority))
          list[#list + 1] = member
          shift(inbox, 1, 0)
          longest = math.max(longest, inbox.waiting)
          accepted[#accepted + 1] = session
          awaken(session)
          if ttl > 0 then
            timed[#timed + 1] = whole(now + ttl)
            timed[#timed + 1] = session .. member
          end
        else
          answer[#answer + 1] = place
        end
      end
      answer[1] = longest
      reply[at] = answer
      local id = id_of(member)
      if #accepted > 0 then
        stored[#stored + 1] = id
        stored[#stored + 1] = message
        for place = 1, #accepted do
          receipt(member, accepted[place], 'q')
        end
        local bucket = bucket_of(id)
        if has(member, SHARED) then
          copies[#copies + 1] = id
          copies[#copies + 1] = whole(#accepted)
          put_receipt(id, id, 'M' .. table.concat(accepted))
        end
        count_receipts(bucket, #accepted)
        if name then
          local refused = {}
          for place = 2, #answer do
            refused[#refused + 1] = ARGV[SESSIONS_AT + tonumber(ARGV[recipients_at + answer[place]])]
          end
          known[name] = id .. string.format('0 %d 0 %d - - %s', #accepted, longest, table.concat(refused, ','))
          keep_outcome(name, known[name])
        end
      end
    end
    cursor = recipients_at + len
  end
  call_many('HSET', key('messages'), stored, 2)
  call_many('HSET', key('copies'), copies, 2)
  for session, list in pairs(arrivals) do
    call_many('ZADD', key('inbox:') .. session, list, 2)
  end
  call_many('ZADD', key('expiries'), timed, 2)
  return reply
end

-- The deadlines of popped messages that have one, by member. They wait no more.
local function take_deadlines(session, popped)
  local timed, deadlines = {}, {}
  for at = 1, #popped, 2 do
    if has(popped[at], TIMED) then
      timed[#timed + 1] = session .. popped[at]
    end
  end
  for first = 1, #timed, VALUES_MAX do
    local scores = call('ZMSCORE', key('expiries'), unpack(timed, first, math.min(first + VALUES_MAX - 1, #timed)))
    for at = 1, #scores do
      deadlines[string.sub(timed[first + at - 1], 37)] = tonumber(scores[at] or 0)
    end
  end
  call_many('ZREM', key('expiries'), timed, 1)
  return deadlines
end

-- What is known of popped messages that were delivered before, by id.
local function earlier_deliveries(session, popped)
  local ids, known = {}, {}
  for at = 1, #popped, 2 do
    if tonumber(popped[at + 1]) % 2 == 1 then
      ids[#ids + 1] = id_of(popped[at])
    end
  end
  local entries = fields(key('leased:') .. session, ids)
  for at = 1, #ids do
    known[ids[at]] = entries[at] and read_entry(ids[at], entries[at]).deliveries
  end
  return known
end

-- Puts popped messages back, from this one on.
local function give_back(session, popped, first)
  local rest = {}
  for at = first, #popped, 2 do
    rest[#rest + 1] = popped[at + 1]
    rest[#rest + 1] = popped[at]
  end
  for at = #popped, first, -1 do
    popped[at] = nil
  end
  call_many('ZADD', key('inbox:') .. session, rest, 2)
end

-- Whether this batch comes so late that whoever sent it has given it up, and what it would lease with it.
local given_up

local function is_given_up()
  if given_up == nil then
    local last = call('HGET', key('given_up'), REPLICA)
    given_up = last and BATCH <= tonumber(last)
  end
  return given_up
end

-- lease: time, session, claim or '', most messages, most bytes.
-- Reply: how many wait, how many are leased, 1 when the claim is not the last; then of each message its deliveries and
-- the stored message.
ops.lease = function()
  at_ms = arg()
  local session, claim, limit, room = session_arg(), arg(), number_arg(), number_arg()
  local inbox = inbox_of(session)
  if not inbox or is_given_up() then
    return { 0, 0, 0 }
  end
  if claim ~= '' and claim ~= inbox.claim then
    return { inbox.waiting, inbox.leased, 1 }
  end
  local reply, state = { 0, 0, 0 }, claim == '' and LEASED_FOR_CALL or LEASED
  while limit > 0 and room > 0 and inbox.waiting > 0 do
    local popped = call('ZPOPMIN', key('inbox:') .. session, math.min(limit, VALUES_MAX / 2))
    if #popped == 0 then
      break
    end
    for at = 1, #popped, 2 do
      if room <= 0 then
        give_back(session, popped, at)
        break
      end
      room = room - struct.unpack('>I4', popped[at], 18)
    end
    local deadlines, earlier = take_deadlines(session, popped), earlier_deliveries(session, popped)
    local known, dead = {}, {}
    for at = 1, #popped, 2 do
      local member, score = popped[at], tonumber(popped[at + 1])
      local id, deadline = id_of(member), deadlines[member] or 0
      local deliveries = earlier[id] or 0
      if deadline > 0 and deadline <= now then
        dead[#dead + 1] = id
        shift(inbox, -1, 0)
        bury(member, session, 'x', deliveries)
        thinned(session)
      else
        limit = limit - 1
        shift(inbox, -1, 1)
        known[#known + 1] = id
        known[#known + 1] = pack_entry({
          score = score, lease = inbox.lease, deadline = deadline, deliveries = deliveries + 1, state = state,
          member = member, batch = BATCH, replica = REPLICA,
        })
        inbox.lease = inbox.lease + 1
        receipt(member, session, 'd')
        progressed(member, 'd')
        reply[#reply + 1] = deliveries + 1
        want_message(id, reply)
      end
    end
    call_many('HSET', key('leased:') .. session, known, 2)
    call_many('HDEL', key('leased:') .. session, dead, 1)
  end
  reply[1], reply[2] = inbox.waiting, inbox.leased
  return reply
end

-- Takes delivered messages out of an inbox, for good. Returns the ids of the watched ones.
local function finish(session, inbox, entries)
  local done, waiting, timed, watched = {}, {}, {}, {}
  for at = 1, #entries do
    local entry = entries[at]
    done[at] = id_of(entry.member)
    if entry.state == RETURNED then
      waiting[#waiting + 1] = entry.member
      if entry.deadline > 0 then
        timed[#timed + 1] = session .. entry.member
      end
    end
    drop_copy(entry.member)
    receipt(entry.member, session, 'a')
    progressed(entry.member, 'a')
    if has(entry.member, WATCHED) then
      watched[#watched + 1] = done[at]
    end
  end
  call_many('HDEL', key('leased:') .. session, done, 1)
  call_many('ZREM', key('inbox:') .. session, waiting, 1)
  call_many('ZREM', key('expiries'), timed, 1)
  if #entries > 0 then
    shift(inbox, -#waiting, #waiting - #entries)
  end
  return watched
end

-- The reply to an acknowledgement: how many, how many wait, how many are leased, number of unknown ids, these; then the
-- watched ones.
local function acknowledged(inbox, entries, unknown, watched)
  local reply = { #entries, inbox and inbox.waiting or 0, inbox and inbox.leased or 0, #unknown }
  for _, list in ipairs({ unknown, watched }) do
    for at = 1, #list do
      reply[#reply + 1] = list[at]
    end
  end
  return reply
end

-- What is known of these messages of a session, those that were never delivered to it or are done with left out; which
-- ids these are.
local function delivered_entries(session, ids)
  local found, entries, unknown, seen = fields(key('leased:') .. session, ids), {}, {}, {}
  for at = 1, #ids do
    if found[at] and not seen[ids[at]] then
      seen[ids[at]] = true
      entries[#entries + 1] = read_entry(ids[at], found[at])
    else
      unknown[#unknown + 1] = ids[at]
    end
  end
  return entries, unknown
end

local function args_until(last)
  local list = {}
  while cursor < last do
    list[#list + 1] = arg()
  end
  return list
end

-- acknowledge: time, session, 'ids' or 'up_to', the ids. Reply: see acknowledged.
ops.acknowledge = function(last)
  at_ms = arg()
  local session, which, ids = session_arg(), arg(), args_until(last)
  local inbox = inbox_of(session)
  if not inbox then
    return acknowledged(nil, {}, ids, {})
  end
  local entries, unknown = delivered_entries(session, ids)
  if which == 'up_to' and entries[1] then
    local last_lease = entries[1].lease
    local before = leased_entries(session, function(entry)
      return entry.lease < last_lease
    end)
    for at = 1, #before do
      entries[#entries + 1] = before[at]
    end
  end
  return acknowledged(inbox, entries, unknown, finish(session, inbox, entries))
end

-- release: time, session, delivery limit, then 'ids' and the ids, 'claimed' and the claim, or 'silent' and milliseconds.
-- Reply: how many were put back, how many are dead, how many wait, how many are leased.
ops.release = function(last)
  at_ms = arg()
  local session, delivery_limit, which = session_arg(), number_arg(), arg()
  local inbox, entries = inbox_of(session), {}
  if not inbox then
    return { 0, 0, 0, 0 }
  end
  if which == 'ids' then
    local delivered = delivered_entries(session, args_until(last))
    for at = 1, #delivered do
      if delivered[at].state ~= RETURNED then
        entries[#entries + 1] = delivered[at]
      end
    end
  elseif which == 'claimed' then
    if arg() == inbox.claim then
      entries = leased_entries(session)
    end
  else
    local seen = call('ZSCORE', key('seen'), session)
    if not seen or tonumber(seen) <= now - number_arg() then
      entries = leased_entries(session)
    end
  end
  local returned, dead = put_back(session, inbox, entries, delivery_limit)
  return { returned, dead, inbox.waiting, inbox.leased }
end

-- give_back: time, number of a batch of this replica whose answer never came, sessions: what it leased of these waits
-- again, and that was no delivery. Should the batch come after all, it leases nothing.
-- Reply: nothing.
ops.give_back = function(last)
  at_ms = arg()
  local batch = number_arg()
  call('HSET', key('given_up'), REPLICA, whole(batch))
  while cursor < last do
    local session = session_arg()
    local inbox = inbox_of(session)
    if inbox then
      local entries = leased_entries(session, function(entry)
        return entry.batch == batch and entry.replica == REPLICA
      end)
      for at = 1, #entries do
        entries[at].deliveries = entries[at].deliveries - 1
      end
      put_back(session, inbox, entries, math.huge)
    end
  end
  return {}
end

-- release_of: time, a replica that is no more: what it leased for calls that were not answered waits again.
-- Reply: how many were put back, how many are dead.
ops.release_of = function()
  at_ms = arg()
  local replica, returned, dead, lines = arg(), 0, 0, call('HGETALL', key('inboxes'))
  for at = 1, #lines, 2 do
    local session = lines[at]
    local inbox = read_inbox(lines[at + 1]).leased > 0 and inbox_of(session)
    if inbox then
      local entries = leased_entries(session, function(entry)
        return entry.state == LEASED_FOR_CALL and entry.replica == replica
      end)
      -- Whether it was delivered too often is seen when it is released the next time.
      local back, buried = put_back(session, inbox, entries, math.huge)
      returned, dead = returned + back, dead + buried
    end
  end
  call('HDEL', key('given_up'), replica)
  return { returned, dead }
end

-- claim: time, session, claim, delivery limit, frame.
-- Reply: epoch, how many were put back, how many are dead, how many wait, how many are leased.
ops.claim = function()
  at_ms = arg()
  local session, claim, delivery_limit, head = session_arg(), arg(), number_arg(), arg()
  local inbox = inbox_of(session)
  if not inbox then
    return { 0, 0, 0, 0, 0 }
  end
  inbox.epoch = call('INCR', key('epochs'))
  inbox.claim = claim
  local returned, dead = put_back(session, inbox, leased_entries(session), delivery_limit)
  publish(head, inbox.epoch)
  return { inbox.epoch, returned, dead, inbox.waiting, inbox.leased }
end

-- depth: session. Reply: how many wait, how many are leased.
ops.depth = function()
  local inbox = inbox_of(session_arg())
  return inbox and { inbox.waiting, inbox.leased } or { 0, 0 }
end
