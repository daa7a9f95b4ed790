-- The way of a message to its recipient: append, lease.

-- Puts a message in the reply when it is read.
local function want_message(id, reply)
  wanted[#wanted + 1] = id
  reply[#reply + 1] = false
  wanted_by[#wanted_by + 1] = { reply, #reply }
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

-- append: time, number of idempotency keys, the keys; number of messages and bundles, and of each: member, stored message,
-- priority, time to live in milliseconds (0: none), capacity, roster or '', place of its key (0: none), number of
-- recipients, the recipients; of a bundle also its ids.
-- Reply: of each message an array of the length of the queue and the places of those who refused, a first result, or nil
-- when the roster is another; of a bundle an array of the length of the queue and how many were accepted, the first ones.
ops.append = function()
  at_ms = arg()
  local keys = {}
  for at = 1, number_arg() do
    keys[at] = arg()
  end
  local known = #keys > 0 and read_outcomes(keys)
  local count, reply, outdated, roster_now = number_arg(), {}, false, nil
  local stored, copies, arrivals, timed, bundles, bundled = {}, {}, {}, {}, {}, {}

  local function arrive(session, inbox, score, member, len)
    local list = arrivals[session]
    if not list and not inbox.outside and #inbox.queue < 2 * LINE_LEN_MAX then
      insert(inbox.queue, score, member)
    else
      if not list then
        list = {}
        arrivals[session] = list
      end
      list[#list + 1] = score
      list[#list + 1] = member
    end
    shift(inbox, len, 0)
    awaken(session)
  end

  local function accept_one(session, inbox, priority, member, message)
    arrive(session, inbox, score_of(inbox, priority), member, 1)
    stored[#stored + 1] = id_of(member)
    stored[#stored + 1] = message
    count_receipts(bucket_of(member), 1)
  end

  local function accept_bundle(session, priority, capacity, member, bundle, ids)
    local inbox, len, id = inbox_of(session), count_of(member), id_of(member)
    local room = inbox and math.max(0, capacity - inbox.waiting - inbox.leased) or 0
    if room < len then
      local parts = room > 0 and parts_of(bundle)
      for at = 1, room do
        accept_one(session, inbox, priority, parts[at].member, parts[at].stored)
      end
      return { inbox and inbox.waiting or 0, room }
    end
    arrive(session, inbox, score_of(inbox, priority, len), member, len)
    stored[#stored + 1] = id
    stored[#stored + 1] = bundle
    bundles[#bundles + 1] = id
    bundles[#bundles + 1] = ids
    bundled[#bundled + 1] = 0
    bundled[#bundled + 1] = id
    count_receipts(bucket_of(id), len)
    return { inbox.waiting, len }
  end

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
    elseif byte(member, 17) == 0 and not name then
      local session = session_arg()
      local inbox = inbox_of(session)
      if inbox and inbox.waiting + inbox.leased < capacity then
        accept_one(session, inbox, priority, member, message)
        reply[at] = { inbox.waiting }
      else
        reply[at] = { 0, 1 }
      end
    elseif count_of(member) > 1 then
      reply[at] = accept_bundle(session_arg(), priority, capacity, member, message, ARGV[recipients_at + len + 1])
    else
      local answer, accepted, longest = { 0 }, {}, 0
      for place = 1, len do
        local session = session_arg()
        local inbox = inbox_of(session)
        if inbox and inbox.waiting + inbox.leased < capacity then
          arrive(session, inbox, score_of(inbox, priority), member, 1)
          longest = math.max(longest, inbox.waiting)
          accepted[#accepted + 1] = session
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
          known[name] = id .. format('0 %d 0 %d - - %s', #accepted, longest, table.concat(refused, ','))
          keep_outcome(name, known[name])
        end
      end
    end
    cursor = recipients_at + len + (count_of(member) > 1 and 1 or 0)
  end
  call_many('HSET', key('messages'), stored, 2)
  call_many('HSET', key('copies'), copies, 2)
  call_many('HSET', key('bundles'), bundles, 2)
  call_many('ZADD', key('bundled'), bundled, 2)
  for session, list in pairs(arrivals) do
    enqueue(session, inbox_of(session), list)
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
      deadlines[sub(timed[first + at - 1], 37)] = tonumber(scores[at] or 0)
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
  local entries = #ids > 0 and delivered_of(session, inbox_of(session), ids) or {}
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
  enqueue(session, inbox_of(session), rest)
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

-- Leases from a line what nobody waits for and what has no deadline. False, and nothing is done, when there is anything
-- else, or too much for the line.
local function lease_plain(inbox, limit, room, state, since, reply)
  local queue, delivered, delivered_len = inbox.queue, inbox.delivered, inbox.delivered_len
  local taken, last = 0, 0
  for at = 2, #queue, 2 do
    if taken >= limit or room <= 0 then
      break
    end
    local member = queue[at]
    local flags, bytes, len = byte(member, 17), unpack_bytes('>I4', member, 18), 1
    if flags > SHARED then
      len = count_of(member)
      if band(flags, WATCHED + TIMED) ~= 0 or taken + len > limit or bytes > room then
        return false
      end
    end
    taken, room, last = taken + len, room - bytes, at
    delivered_len = delivered_len + (queue[at - 1] % 2 == 1 and 0 or 1)
  end
  if last == 0 then
    return true
  end
  if delivered_len > LINE_LEN_MAX then
    return false
  end
  for at = 2, last, 2 do
    local score, member, deliveries = queue[at - 1], queue[at], 1
    local id = sub(member, 1, 16)
    if score % 2 == 1 then
      deliveries = read_entry(id, delivered[id]).deliveries + 1
    end
    delivered[id] = pack(ENTRY, score, inbox.lease, 0, deliveries, state, sub(member, 17), BATCH, REPLICA, since)
    inbox.lease = inbox.lease + count_of(member)
    reply[#reply + 1] = deliveries
    want_message(id, reply)
  end
  local rest = {}
  for at = last + 1, #queue do
    rest[#rest + 1] = queue[at]
  end
  inbox.queue, inbox.delivered_len = rest, delivered_len
  shift(inbox, -taken, taken)
  return true
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
  local reply, state, since = { 0, 0, 0 }, claim == '' and LEASED_FOR_CALL or LEASED, tonumber(at_ms)
  local is_done = not inbox.outside and lease_plain(inbox, limit, room, state, since, reply)
  while not is_done and limit > 0 and room > 0 and inbox.waiting > 0 do
    local popped = dequeue(session, inbox, limit)
    if #popped == 0 then
      break
    end
    local taken = 0
    for at = 1, #popped, 2 do
      local member, score = popped[at], popped[at + 1]
      local len, bytes = count_of(member), unpack_bytes('>I4', member, 18)
      local is_too_much = len > 1 and (taken + len > limit or bytes > room)
      if is_too_much or taken >= limit or room <= 0 then
        give_back(session, popped, at)
        if is_too_much and taken < limit and room > 0 then
          unbundle_waiting(session, member, tonumber(score))
        end
        break
      end
      taken = taken + len
      room = room - bytes
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
        local len = count_of(member)
        limit = limit - len
        shift(inbox, -len, len)
        known[#known + 1] = id
        known[#known + 1] = pack(ENTRY, score, inbox.lease, deadline, deliveries + 1, state, sub(member, 17), BATCH,
          REPLICA, since)
        inbox.lease = inbox.lease + len
        progressed(member, 'd')
        reply[#reply + 1] = deliveries + 1
        want_message(id, reply)
      end
    end
    put_delivered(session, inbox, known)
    drop_delivered(session, inbox, dead)
  end
  reply[1], reply[2] = inbox.waiting, inbox.leased
  return reply
end
