-- What is kept beside the messages under way: protocols, first results, receipts, crossings.

-- serial. Reply: the number of the last frame that was published.
ops.serial = function()
  return { call('GET', key('frames')) or '0' }
end

-- project. Reply: the record, or nothing.
ops.project = function()
  return { call('HGET', key('project:record'), 'record') or nil }
end

-- put_project: record, its revision, frame. Reply: 1 when that is the next revision.
ops.put_project = function()
  local record, revision, head = arg(), arg(), arg()
  local known = call('HGET', key('project:record'), 'revision')
  if whole(known and known + 1 or 0) ~= revision then
    return { 0 }
  end
  call('HSET', key('project:record'), 'revision', revision, 'record', record)
  publish(head, 0)
  return { 1 }
end

-- insert_protocol: name and version, record, frame, how many there may be (empty for no limit).
-- Reply: 1 when it was added; 0 when there are as many as there may be; 2 and the record when there is one already.
ops.insert_protocol = function()
  local name, record, head, len_max = arg(), arg(), arg(), tonumber(arg())
  local there = call('HGET', key('protocols'), name)
  if there then
    return { 2, there }
  end
  if len_max and call('HLEN', key('protocols')) >= len_max then
    return { 0 }
  end
  call('HSET', key('protocols'), name, record)
  publish(head, 0)
  return { 1 }
end

-- protocols. Reply: all records.
ops.protocols = function()
  return call('HVALS', key('protocols'))
end

-- protocol: name and version. Reply: the record, or nothing.
ops.protocol = function()
  return { call('HGET', key('protocols'), arg()) or nil }
end

-- settle_outcome: key, first result. Reply: nothing.
ops.settle_outcome = function()
  local name, outcome = arg(), arg()
  if taken_keys.read({ name })[name] then
    taken_keys.change(name, outcome)
  end
  return {}
end

-- reserve_key: key, project. Reply: 'first', 'again', 'elsewhere', or the first result.
ops.reserve_key = function()
  local name, target = arg(), arg()
  local known = taken_keys.read({ name })[name]
  local is_reserved = taken_keys.is_reservation(known)
  if known and not is_reserved then
    return { known }
  elseif is_reserved and sub(known, 18) ~= target then
    return { 'elsewhere' }
  end
  taken_keys.take(name, taken_keys.NO_MESSAGE .. (is_reserved and '+' or '-') .. target)
  return { is_reserved and 'again' or 'first' }
end

-- keep_outcome: key, first result. Reply: nothing.
ops.keep_outcome = function()
  local name, outcome = arg(), arg()
  local known = taken_keys.read({ name })[name]
  if taken_keys.is_reservation(known) then
    taken_keys.change(name, outcome)
  end
  return {}
end

-- free_key: key. Reply: nothing.
ops.free_key = function()
  local name = arg()
  local known = taken_keys.read({ name })[name]
  if taken_keys.is_reservation(known) and sub(known, 17, 17) == '-' then
    taken_keys.forget(name)
    call('ZREM', key('idempotency:until'), name)
  end
  return {}
end

-- When a message was accepted, in milliseconds: the time in its id.
local function accepted_at(id)
  local a, b, c, d, e, f = byte(id, 1, 6)
  return whole(((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f)
end

-- Adds where a message stands for a session, if it waits there or is leased: that is no receipt. 'id' is that of its
-- bundle, if it is in one.
local function add_standing(reply, id, session)
  local inbox = inbox_of(session)
  local known = inbox and delivered_of(session, inbox, { id })[1]
  local status, since = 'q', nil
  if known then
    local entry = read_entry(id, known)
    status, since = entry.state == RETURNED and 'q' or 'd', whole(entry.since)
  end
  if inbox then
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = session, status, since or accepted_at(id)
  end
end

-- The only recipient of a message that is neither done with nor dead; nil when there is none.
local function recipient_of(id)
  local stored = call('HGET', key('messages'), id)
  if stored and byte(stored, 1) == 0 then
    stored = parts_of(stored)[1].stored
  end
  if not stored or band(byte(stored, 2), 1) == 0 then
    return nil
  end
  local session = uuid_text(sub(stored, 35, 50))
  return not call('HGET', key('dead:letters'), letter_key(id, session)) and session or nil
end

-- Where a message stands as a post: by the place of the recipient, or by recipient.
local function posted_statuses(receipts_name, id)
  local statuses, told = {}, call('HGET', receipts_name, id .. '*') or ''
  for at = 1, #told, 16 do
    local first, count, since = unpack_bytes(POSTS_RECEIPT, told, at)
    for place = first + 1, first + count do
      statuses[place] = 'a' .. whole(since)
    end
  end
  for _, name in ipairs(call('HKEYS', key('posts'))) do
    local is_one = #name == 52 and sub(name, 1, 16) == id
    for _, post in ipairs(is_one and posts_of(sub(name, 17)) or {}) do
      local addresses = post.id == id and read_post(post) and post.known.addresses or ''
      for at = 1, #addresses, ADDRESS_LEN do
        local session = sub(addresses, at, at + SESSION_LEN - 1)
        if has_post(post, session) then
          statuses[session] = 'd' .. whole(post.known.since)
        end
      end
    end
  end
  return statuses
end

-- message_status: id. Reply: of each recipient: session, status, time.
ops.message_status = function()
  local id, reply = arg(), {}
  flush_receipts()
  flush_settled()
  local name = key('receipts:') .. bucket_of(id)
  local known = call('HGET', name, id)
  if not known then
    local bundle, told = bundle_with(id)
    id, known = bundle or id, told
  end
  if not known then
    local session = recipient_of(id)
    if session then
      add_standing(reply, id, session)
    end
  elseif sub(known, 1, 1) ~= 'M' then
    reply[1], reply[2], reply[3] = sub(known, 2, 37), sub(known, 38, 38), string.match(known, '^%d+', 39)
  else
    local sessions, places = {}, {}
    for at = 2, #known, 36 do
      sessions[#sessions + 1] = sub(known, at, at + 35)
      places[#places + 1] = id .. sessions[#sessions]
    end
    local statuses, posted = fields(name, places), posted_statuses(name, id)
    for at = 1, #sessions do
      local status = statuses[at] or posted[at] or posted[sessions[at]] or STANDS
      if status ~= STANDS then
        reply[#reply + 1] = sessions[at]
        reply[#reply + 1] = sub(status, 1, 1)
        reply[#reply + 1] = sub(status, 2)
      else
        add_standing(reply, id, sessions[at])
      end
    end
  end
  return reply
end

-- Gives the receipt of a message with one copy the form of a shared one, and adds a recipient.
local function share_receipt(id, session)
  flush_receipts()
  local bucket = bucket_of(id)
  local name = key('receipts:') .. bucket
  local known = call('HGET', name, id) or 'M'
  if sub(known, 1, 1) == 'D' then
    local first = sub(known, 2, 37)
    call('HSET', name, id .. first, sub(known, 38))
    known = 'M' .. first
  end
  if not string.find(known, session, 2, true) then
    call('HSET', name, id, known .. session)
    count_receipts(bucket, 1)
  end
end

-- It is no more what its receipt says: it waits again.
local function forget_receipt(member, session)
  flush_receipts()
  local id = id_of(member)
  local name = key('receipts:') .. bucket_of(id)
  if not has(member, SHARED) then
    call('HDEL', name, id)
  elseif call('HEXISTS', name, id) == 1 then
    call('HSET', name, id .. session, STANDS)
  else
    call('HDEL', name, id .. session)
  end
end

-- Whether a message is still on its way to a session.
local function is_open(member, session)
  local id = id_of(member)
  local inbox = inbox_of(session)
  if delivered_of(session, inbox, { id })[1] then
    return true
  end
  -- Whoever has it from a redrive to somebody else has it with other flags.
  local timed, candidates = band(byte(member, 17), TIMED), {}
  for flags = 0, SHARED + WATCHED do
    candidates[#candidates + 1] = id .. string.char(flags + timed) .. sub(member, 18)
  end
  return is_any_queued(session, inbox, candidates)
end

-- redrive: time, recipient or '', capacity, the ids of the messages.
-- Reply: of each letter: id, session, and the length of its queue, or 'gone', 'full' or 'unknown'.
ops.redrive = function()
  at_ms = arg()
  local recipient, capacity, reply = arg(), number_arg(), {}
  local function answer(id, session, what)
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = id, session, what
  end
  for _, id in ipairs(ids_in(arg())) do
    -- A letter is longer than the id by the id of a session: hexadecimal digits and hyphens.
    local letters = call('ZRANGE', key('dead'), '[' .. id, '(' .. id .. 'g', 'BYLEX')
    if #letters == 0 then
      answer(id, '', 'unknown')
    end
    for at = 1, #letters do
      local from = sub(letters[at], 17)
      local to = recipient == '' and from or recipient
      local inbox, known = inbox_of(to), call('HGET', key('dead:letters'), letters[at])
      local member = id .. sub(known, 1, 5)
      if not inbox then
        answer(id, '', 'gone')
      elseif is_open(member, to) then
        -- It has its own copy. A second one would be a repeat.
        drop_copy(take_letter(letters[at]))
        answer(id, to, inbox.waiting)
      elseif refusal_of(inbox, bytes_of(member), capacity) then
        answer(id, '', 'full')
      else
        take_letter(letters[at])
        if to ~= from then
          if not has(member, SHARED) then
            call('HSET', key('copies'), id, 1)
          end
          -- Nobody waits for what becomes of it there.
          member = id .. string.char(SHARED + band(byte(member, 17), TIMED)) .. sub(member, 18)
          share_receipt(id, to)
        end
        local stored = call('HGET', key('messages'), id)
        local priority = math.floor(byte(stored, 2) / 64)
        enqueue(to, inbox, { score_of(inbox, priority), member })
        if has(member, TIMED) then
          call('ZADD', key('expiries'), whole(now + ttl_of(stored)), to .. member)
        end
        shift(inbox, 1, 0, 0, bytes_of(member))
        forget_receipt(member, to)
        awaken(to)
        answer(id, to, inbox.waiting)
      end
    end
  end
  return reply
end

-- sweep: the last of the thinned queues that was heard of.
-- Reply: the last one now, how many dead letters and how many idempotency keys were dropped; of each queue: session, how many wait.
ops.sweep = function()
  local heard = arg()
  for _ = 1, 20 do
    if expire(500) < 500 then
      break
    end
  end
  local first, len = unpack(call('HMGET', key('receipts'), 'first', 'len'))
  if len and (not first or tonumber(first) * BUCKET_MS < now - RECEIPTS_FOR_MS) then
    forget_receipts(tonumber(len))
  end
  local free = call('ZRANGE', key('idempotency:until'), '-inf', now, 'BYSCORE', 'LIMIT', 0, 1000)
  for at = 1, #free do
    taken_keys.forget(free[at])
  end
  call_many('ZREM', key('idempotency:until'), free, 1)
  local dead_dropped, keys_dropped = call('GETDEL', key('dead:dropped')), call('GETDEL', key('idempotency:dropped'))
  local reply = { tonumber(heard), tonumber(dead_dropped or 0), tonumber(keys_dropped or 0) }
  local lost = call('ZRANGE', key('thinned'), '(' .. heard, '+inf', 'BYSCORE', 'WITHSCORES')
  for at = 1, #lost, 2 do
    local inbox = inbox_of(lost[at])
    reply[1] = tonumber(lost[at + 1])
    if inbox then
      reply[#reply + 1] = lost[at]
      reply[#reply + 1] = inbox.waiting
    end
  end
  return reply
end

-- put_crossing: message, project. Reply: nothing.
ops.put_crossing = function()
  local id, target = arg(), arg()
  if call('HSETNX', key('crossings'), id, target) == 1 then
    timeline.has_changed = true
    call('RPUSH', key('crossings:age'), id)
    call('HINCRBY', key('crossings:targets'), target, 1)
    while call('HLEN', key('crossings')) > bounds.crossings do
      local oldest = call('LPOP', key('crossings:age'))
      local went_to = call('HGET', key('crossings'), oldest)
      call('HDEL', key('crossings'), oldest)
      if call('HINCRBY', key('crossings:targets'), went_to, -1) <= 0 then
        call('HDEL', key('crossings:targets'), went_to)
      end
    end
  end
  return {}
end

-- usage. Reply: bytes of messages, of dead letters, of the records of sessions, of idempotency keys with their results.
ops.usage = function()
  -- What was handed out before this may be gone after it.
  read_wanted()
  flush_gone()
  return { total('held'), total('dead'), total('sessions'), total('outcomes') }
end

-- crossing: message. Reply: the project, or nothing.
ops.crossing = function()
  return { call('HGET', key('crossings'), arg()) or nil }
end

-- crossing_targets. Reply: the projects.
ops.crossing_targets = function()
  return call('HKEYS', key('crossings:targets'))
end

local OF_THE_PROJECT = {
  'sessions', 'names', 'named', 'messages', 'copies', 'expiries', 'thinned', 'dead', 'dead:letters', 'dead:age',
  'dead:deaths', 'dead:dropped', 'idempotency', 'idempotency:until', 'idempotency:dropped', 'protocols', 'crossings', 'crossings:age',
  'crossings:targets', 'seen', 'left', 'signs', 'given_up', 'bundles', 'bundled', 'posts',
}

-- clear: deletes what the project holds but for its record and what counts on: frames, rosters, claims, signs. A step
-- at a time.
-- Reply: 1 when there is more.
ops.clear = function()
  inboxes, unopened, posts = {}, {}, {}
  read_totals(nil)
  call('HDEL', key('inboxes'), TOTALS_FIELD)
  for _, name in ipairs(OF_THE_PROJECT) do
    call('UNLINK', key(name))
  end
  local sessions = call('HSCAN', key('inboxes'), 0, 'COUNT', 500)[2]
  for at = 1, #sessions, 2 do
    call('UNLINK', queue_key(sessions[at]), delivered_key(sessions[at]), calls.key(sessions[at]))
    call('HDEL', key('inboxes'), sessions[at])
  end
  local buckets = call('HSCAN', key('receipts'), 0, 'COUNT', 500)[2]
  for at = 1, #buckets, 2 do
    call('UNLINK', key('receipts:') .. buckets[at], key('settled:') .. buckets[at])
    call('HDEL', key('receipts'), buckets[at])
  end
  return { #sessions + #buckets > 0 and 1 or 0 }
end

-- dead_letters: reason or '', origin or '', the letter after which it begins or '', most letters, most bytes of their
-- envelopes.
-- Reply: the letter before which the list ends for lack of bytes, or '', and its bytes; then for each the letter, what is
-- known of it, the message.
ops.dead_letters = function()
  local reason, origin, after, left, bytes_left = arg(), arg(), arg(), number_arg(), number_arg()
  local reply = { '', 0 }
  while left > 0 do
    local from = after == '' and '-' or '(' .. after
    local page = call('ZRANGE', key('dead'), from, '+', 'BYLEX', 'LIMIT', 0, 256)
    if #page == 0 then
      break
    end
    after = page[#page]
    local known = fields(key('dead:letters'), page)
    for at = 1, #page do
      local is_asked_for = known[at] and (reason == '' or sub(known[at], 6, 6) == reason) and left > 0
      if is_asked_for and origin ~= '' then
        local stored = call('HGET', key('messages'), sub(page[at], 1, 16))
        is_asked_for = stored and origin_of(stored) == origin
      end
      if is_asked_for then
        local member = sub(page[at], 1, 16) .. sub(known[at], 1, 5)
        local bytes = bytes_of(member)
        if bytes > bytes_left then
          reply[1], reply[2] = page[at], bytes
          return reply
        end
        left = left - 1
        bytes_left = bytes_left - bytes
        reply[#reply + 1] = page[at]
        reply[#reply + 1] = known[at]
        want_message(member, reply)
      end
    end
  end
  return reply
end

ops.dead_letter_count = function()
  return { call('ZCARD', key('dead')) }
end
