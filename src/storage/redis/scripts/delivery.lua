-- The way of a message to its recipient: append, lease.

-- What idempotency keys are taken by. A key that is reserved for a message to another project has, in the place of a
-- first result: the nil id, which no message has, '+' when more than one send has found the reservation and else '-',
-- the project. BYTES is what a key costs beside its text, which is there twice, and what takes it.
local taken_keys = { NO_MESSAGE = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0', BYTES = 128 }

-- By what those of these keys are taken that are not free; by key.
function taken_keys.read(keys)
  local found, known = fields(key('idempotency'), keys), {}
  for at = 1, #keys do
    local until_ms, by = string.match(found[at] or '', '^(%d+) (.*)$')
    if until_ms and tonumber(until_ms) > now then
      known[keys[at]] = by
    end
  end
  return known
end

function taken_keys.is_reservation(by)
  return by and sub(by, 1, 16) == taken_keys.NO_MESSAGE
end

-- Frees a key, for those who take its time out of 'idempotency:until'.
function taken_keys.forget(name)
  local len = call('HSTRLEN', key('idempotency'), name)
  if len > 0 then
    call('HDEL', key('idempotency'), name)
    count_bytes('outcomes', -taken_keys.BYTES - 2 * #name - len)
  end
end

-- Takes a key until then, whatever it was taken by. When there are too many the oldest go.
function taken_keys.put(name, until_ms, by)
  local value = until_ms .. ' ' .. by
  timeline.has_changed = true
  taken_keys.forget(name)
  call('HSET', key('idempotency'), name, value)
  call('ZADD', key('idempotency:until'), until_ms, name)
  count_bytes('outcomes', taken_keys.BYTES + 2 * #name + #value)
  while call('ZCARD', key('idempotency:until')) > bounds.outcomes or total('outcomes') > bounds.outcomes_bytes do
    local oldest = call('ZPOPMIN', key('idempotency:until'))[1]
    if not oldest then
      break
    end
    taken_keys.forget(oldest)
    call('INCR', key('idempotency:dropped'))
  end
end

-- The same for the window from now on.
function taken_keys.take(name, by)
  taken_keys.put(name, whole(now + bounds.window_ms), by)
end

-- Changes by what a key is taken that is not free; it is free again when it would have been.
function taken_keys.change(name, by)
  local until_ms = string.match(call('HGET', key('idempotency'), name), '^%d+')
  taken_keys.put(name, until_ms, by)
end

-- Why an inbox does not take so many bytes more; nil when it does. -1: its session is not known; -2: it has as many messages
-- as it may have; -3: it has no room for the bytes. (-4: the project has none.)
local function refusal_of(inbox, bytes, capacity)
  if not inbox then
    return -1
  elseif inbox.waiting + inbox.leased >= capacity then
    return -2
  elseif inbox.size + bytes > bounds.queue_bytes then
    return -3
  end
end

-- The head of a plain message or bundle: recipient, member, priority, capacity.
local HEAD = '>I4c21BI4'

-- append: time, number of idempotency keys, the keys; number of messages and bundles, and of each: of a plain message its
-- head and what is stored of it; of a bundle also its ids; of any other '', member, stored message, priority,
-- time to live in milliseconds (0: none), capacity, roster or '', place of its key (0: none), the places of its recipients
-- (4 bytes each).
-- Reply: of a plain message the length of the queue (0: it does not wait), or why it was refused (refusal_of); of a bundle
-- the length of the queue, or when not all were accepted an array of the reply to each of its messages; of any other an
-- array of the length of the queue, why some refused (0: none did) and their places, or a first result or reservation.
-- Nil when the roster is another.
ops.append = function()
  at_ms = arg()
  local keys, since = {}, tonumber(at_ms)
  for at = 1, number_arg() do
    keys[at] = arg()
  end
  local known = #keys > 0 and taken_keys.read(keys)
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
    shift(inbox, len, 0, 0, bytes_of(member))
    awaken(session)
  end

  -- Of one that only this session gets.
  local function arrive_or_hand_over(session, inbox, priority, member, id, len, message)
    local bytes = bytes_of(member)
    if not is_taken(inbox, byte(member, 17), len, bytes) then
      return arrive(session, inbox, score_of(inbox, priority, len), member, len)
    end
    local addresses = parcel_with(inbox.taker, message)
    addresses[#addresses + 1] = ONE
    addresses[#addresses + 1] = hand_over(session, inbox, priority, id, sub(member, 17), len, bytes, since)
  end

  local function accept_one(session, priority, capacity, member, message)
    local inbox, id, bytes = inbox_of(session), id_of(member), bytes_of(member)
    local refusal = refusal_of(inbox, bytes, capacity) or not has_room(bytes + COPY_BYTES) and -4
    if refusal then
      return refusal
    end
    count_bytes('held', bytes + COPY_BYTES)
    arrive_or_hand_over(session, inbox, priority, member, id, 1, message)
    stored[#stored + 1] = id
    stored[#stored + 1] = message
    count_receipts(bucket_of(id), 1)
    return inbox.waiting
  end

  local function accept_bundle(session, priority, capacity, member, bundle, ids)
    local inbox, len, id = inbox_of(session), count_of(member), id_of(member)
    local bytes = bytes_of(member) + len * COPY_BYTES
    if refusal_of(inbox, bytes_of(member), capacity - len + 1) or not has_room(bytes) then
      local answers = {}
      for at, part in ipairs(parts_of(bundle)) do
        answers[at] = accept_one(session, priority, capacity, part.member, part.stored)
      end
      return answers
    end
    count_bytes('held', bytes)
    arrive_or_hand_over(session, inbox, priority, member, id, len, bundle)
    stored[#stored + 1] = id
    stored[#stored + 1] = bundle
    bundles[#bundles + 1] = id
    bundles[#bundles + 1] = ids
    bundled[#bundled + 1] = 0
    bundled[#bundled + 1] = id
    count_receipts(bucket_of(id), len)
    return inbox.waiting
  end

  local function accept_plain(head)
    local place, member, priority, capacity = unpack_bytes(HEAD, head)
    local session, message, is_bundle = ARGV[SESSIONS_AT + place], arg(), byte(member, 17) > 0
    local ids = is_bundle and arg()
    if outdated then
      return false
    elseif is_bundle then
      return accept_bundle(session, priority, capacity, member, message, ids)
    end
    return accept_one(session, priority, capacity, member, message)
  end

  local function accept_any(at)
    local member, message, priority, ttl = arg(), arg(), number_arg(), number_arg()
    local capacity, roster, key_at, recipients = number_arg(), arg(), number_arg(), arg()
    local name = keys[key_at]
    local function recipient(place)
      local a, b, c, d = byte(recipients, 4 * place - 3, 4 * place)
      return ARGV[SESSIONS_AT + ((a * 256 + b) * 256 + c) * 256 + d]
    end
    if roster ~= '' and not outdated then
      roster_now = roster_now or call('GET', key('roster')) or '0'
      outdated = roster_now ~= roster
    end
    if outdated then
      reply[at] = false
    elseif name and known[name] then
      reply[at] = known[name]
    else
      local answer, accepted, others, longest, takers, groups = { 0, 0 }, {}, {}, 0, {}, {}
      local id, flags, rest, bytes = id_of(member), byte(member, 17), sub(member, 17), bytes_of(member)
      local envelope = bytes
      -- Counts one more copy. The first brings the envelope.
      local function charge()
        if not has_room(COPY_BYTES + envelope) then
          return -4
        end
        count_bytes('held', COPY_BYTES + envelope)
        envelope = 0
      end
      local function accept(place, session, is_charged)
        local inbox = inbox_of(session)
        local refusal = not is_charged and (refusal_of(inbox, bytes, capacity) or charge())
        if refusal then
          answer[2] = refusal
          answer[#answer + 1] = place
        else
          if is_taken(inbox, flags, 1, bytes) then
            local taker = inbox.taker
            local told = takers[taker]
            if not told then
              told = {}
              takers[taker] = told
            end
            told[#told + 1] = hand_over(session, inbox, priority, id, rest, 1, bytes, since)
          else
            arrive(session, inbox, score_of(inbox, priority), member, 1)
          end
          longest = math.max(longest, inbox.waiting)
          others[#others + 1] = session
          if ttl > 0 then
            timed[#timed + 1] = whole(now + ttl)
            timed[#timed + 1] = session .. member
          end
        end
      end
      for place = 1, #recipients / 4 do
        local session = recipient(place)
        local may_post = flags == SHARED and has_room(COPY_BYTES + envelope)
        if may_post and is_posted(groups, place, session, bytes, capacity) then
          charge()
        else
          accept(place, session)
        end
      end
      local posted = {}
      for taker, group in pairs(groups) do
        local sessions = group.sessions
        if group.count < POST_LEN_MIN then
          for at = 1, #sessions do
            accept(group.places[at], sessions[at], true)
          end
        else
          posted[taker], group.first = group, #accepted
          for at = 1, #sessions do
            accepted[#accepted + 1] = sessions[at]
          end
        end
      end
      for at = 1, #others do
        accepted[#accepted + 1] = others[at]
      end
      for taker, told in pairs(takers) do
        local addresses = parcel_with(taker, message)
        addresses[#addresses + 1] = pack('>I4', #told)
        addresses[#addresses + 1] = table.concat(told)
      end
      answer[1] = longest
      reply[at] = answer
      if next(posted) then
        -- It is there before anybody has it.
        call('HSET', key('messages'), id, message)
        call('HSET', key('copies'), id, whole(#accepted))
        for taker, group in pairs(posted) do
          post_to(taker, group, id, rest, priority, bytes, since, group.first, message)
        end
      elseif #accepted > 0 then
        stored[#stored + 1] = id
        stored[#stored + 1] = message
        if has(member, SHARED) then
          copies[#copies + 1] = id
          copies[#copies + 1] = whole(#accepted)
        end
      end
      if #accepted > 0 then
        local bucket = bucket_of(id)
        if has(member, SHARED) then
          put_receipt(id, id, 'M' .. table.concat(accepted))
        end
        count_receipts(bucket, #accepted)
        if name then
          local refused = {}
          for place = 3, #answer do
            refused[#refused + 1] = recipient(answer[place])
          end
          known[name] = id .. format('0 %d 0 %d - - %s', #accepted, longest, table.concat(refused, ','))
          taken_keys.take(name, known[name])
        end
      end
    end
  end

  for at = 1, count do
    local head = arg()
    if head ~= '' then
      reply[at] = accept_plain(head)
    else
      accept_any(at)
    end
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

local earlier_deliveries

do -- What nobody else names.

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
earlier_deliveries = function(session, popped)
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

each_time(function()
  given_up = nil
end)

local function is_given_up()
  if given_up == nil then
    local last = call('HGET', key('given_up'), REPLICA)
    given_up = last and BATCH <= tonumber(last)
  end
  return given_up
end

-- Leases from a line what nobody waits for and what has no deadline. False, and nothing is done, when there is anything
-- else, or too much for the line. Then the bytes of what had no room, or nil.
local function lease_plain(inbox, limit, room, state, since, reply)
  local queue, delivered, delivered_len = inbox.queue, inbox.delivered, inbox.delivered_len
  local taken, last, room_before, beyond = 0, 0, room, nil
  for at = 2, #queue, 2 do
    if taken >= limit then
      break
    end
    local member = queue[at]
    local flags, bytes, len = byte(member, 17), bytes_of(member), 1
    if flags > SHARED then
      len = count_of(member)
      if band(flags, WATCHED + TIMED) ~= 0 or taken + len > limit or len > 1 and bytes > room then
        return false
      end
    end
    if bytes > room then
      beyond = bytes
      break
    end
    taken, room, last = taken + len, room - bytes, at
    delivered_len = delivered_len + (queue[at - 1] % 2 == 1 and 0 or 1)
  end
  if last == 0 then
    return true, beyond
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
    want_message(member, reply)
  end
  local rest = {}
  for at = last + 1, #queue do
    rest[#rest + 1] = queue[at]
  end
  inbox.queue, inbox.delivered_len = rest, delivered_len
  shift(inbox, -taken, taken, room_before - room, 0)
  return true, beyond
end

-- lease: time, session, claim or '', receipt of the call that it is for or '', most messages, most bytes.
-- Reply: how many wait, how many are leased, 1 when the claim is not the last, 2 when nothing is handed over unasked, the
-- numbers of the first lease and of the one after the last, the bytes of the message that had no room (0: the lease
-- did not end for that); then of each message its deliveries and the stored message.
ops.lease = function()
  at_ms = arg()
  local session, claim, call_receipt, limit, room = session_arg(), arg(), arg(), number_arg(), number_arg()
  local inbox = inbox_of(session)
  if not inbox or is_given_up() then
    return { 0, 0, 0, 0, 0, 0 }
  end
  if claim ~= '' and claim ~= inbox.claim then
    return { inbox.waiting, inbox.leased, 1, 0, 0, 0 }
  end
  if claim ~= '' and inbox.window > 0 then
    -- The caller may not have heard yet of all that was handed over.
    limit = math.min(limit, inbox.window - inbox.leased)
  end
  local reply = { 0, 0, inbox.window > 0 and 0 or 2, inbox.lease, 0, 0 }
  local state, since = claim == '' and LEASED_FOR_CALL or LEASED, tonumber(at_ms)
  local is_done, beyond = false, nil
  if not inbox.outside then
    is_done, beyond = lease_plain(inbox, limit, room, state, since, reply)
  end
  while not is_done and not beyond and limit > 0 and inbox.waiting > 0 do
    local popped = dequeue(session, inbox, limit)
    if #popped == 0 then
      break
    end
    local taken = 0
    for at = 1, #popped, 2 do
      local member, score = popped[at], popped[at + 1]
      local len, bytes = count_of(member), bytes_of(member)
      if taken + len > limit or bytes > room then
        give_back(session, popped, at)
        if taken < limit and len > 1 then
          unbundle_waiting(session, member, tonumber(score))
        elseif taken < limit then
          beyond = bytes
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
        shift(inbox, -1, 0, 0, -bytes_of(member))
        bury(member, session, 'x', deliveries)
        thinned(session)
      else
        local len = count_of(member)
        limit = limit - len
        shift(inbox, -len, len, bytes_of(member), 0)
        known[#known + 1] = id
        known[#known + 1] = pack(ENTRY, score, inbox.lease, deadline, deliveries + 1, state, sub(member, 17), BATCH,
          REPLICA, since)
        inbox.lease = inbox.lease + len
        progressed(member, 'd')
        reply[#reply + 1] = deliveries + 1
        want_message(member, reply)
      end
    end
    put_delivered(session, inbox, known)
    drop_delivered(session, inbox, dead)
  end
  if call_receipt ~= '' and inbox.lease > reply[4] then
    calls.remember(session, call_receipt, reply[4], inbox.lease)
  end
  reply[1], reply[2], reply[5], reply[6] = inbox.waiting, inbox.leased, inbox.lease, beyond or 0
  return reply
end

-- stand_by: session, claim, most messages and bytes that may be leased, who takes, 1 when writing acknowledges, number of
-- a lease. From now on messages are handed over unasked.
-- Reply: as of lease; with all that is leased from this number on, which is not more than is handed over unasked.
ops.stand_by = function()
  local session, claim, window, room, taker = session_arg(), arg(), number_arg(), number_arg(), arg()
  local by_writing, from = arg() == '1', number_arg()
  local inbox = inbox_of(session)
  if not inbox then
    return { 0, 0, 0, 0, 0, 0 }
  end
  if claim ~= inbox.claim then
    return { inbox.waiting, inbox.leased, 1, 0, 0, 0 }
  end
  inbox.window, inbox.room, inbox.taker, inbox.by_writing, inbox.changed = window, room, taker, by_writing, true
  if from > inbox.lease then
    -- What was counted before is lost.
    from = 0
  end
  local entries = leased_entries(session, function(entry)
    return entry.lease >= from and entry.state == LEASED
  end)
  table.sort(entries, function(a, b)
    return a.lease < b.lease
  end)
  local reply = { inbox.waiting, inbox.leased, 0, from, inbox.lease, 0 }
  for at = 1, #entries do
    reply[#reply + 1] = entries[at].deliveries
    want_message(entries[at].member, reply)
  end
  return reply
end

end
