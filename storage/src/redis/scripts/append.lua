-- The way of messages into the inboxes of their recipients: read -> admit -> place -> store -> reply.

local inbox_of, adjust, refusal_of = inboxes.of, inboxes.adjust, inboxes.refusal
local next_score, insert, has_inline_room, wake = queues.next_score, queues.insert, queues.has_inline_room, frames.wake
local can_push, push_lease, add_message = pushes.can_push, pushes.lease, pushes.add_message
local has_room, count_usage, bucket_of, admit = usage.has_room, usage.count, receipts.bucket_of, group_leases.admit
local COPY_BYTES, ONE_RECIPIENT = usage.COPY_BYTES, pushes.ONE_RECIPIENT

-- The head of an item in the plain form: place of the recipient, entry, priority, capacity.
local PLAIN_HEAD = '>I4c21BI4'
-- A refusal beside those of inboxes.lua: the inboxes of the project have no room for so many bytes.
local PROJECT_FULL = -4

-- What is written with one command each at the end of the append: messages, numbers of copies, deadlines, ids and index
-- of segments (names and values, alternately); by session, entries for queues outside the record.
local stored, copy_counts, deadlines, segment_ids, segment_index, arrivals
-- When the messages were accepted, by the clock of the caller.
local accepted_at
-- The idempotency keys of the append, and what takes them.
local key_names, taken_keys
-- The version of the roster, once it is read, and whether an item has named another: it and what follows it is refused.
local roster, is_outdated

local function begin()
  stored, copy_counts, deadlines, segment_ids, segment_index, arrivals = {}, {}, {}, {}, {}, {}
  accepted_at, roster, is_outdated = tonumber(at_ms), false, false
end

local function read_keys()
  key_names = {}
  for at = 1, read_number() do
    key_names[at] = read_text()
  end
  taken_keys = #key_names > 0 and idempotency.read(key_names) or {}
end

-- An item in the general form: what is read, and what becomes of it.
local function read_general()
  local entry, text, priority, ttl = read_text(), read_text(), read_number(), read_number()
  local capacity, roster_version, key_at, recipients = read_number(), read_text(), read_number(), read_text()
  return {
    id = id_of(entry), entry = entry, flags = byte(entry, 17), rest = sub(entry, 17), bytes = bytes_of(entry),
    text = text, priority = priority, ttl = ttl, capacity = capacity, roster = roster_version,
    key = key_names[key_at], recipients = recipients,
    -- Sessions that accepted it: in the order of the receipt; those with a copy of their own; by replica, addresses of
    -- pushed copies. Places of those that refused it, and why. The longest queue.
    accepted = {}, with_copy = {}, pushed = {}, refused = {}, refusal = 0, longest = 0,
    -- Bytes of the envelope until the first copy is charged.
    uncharged = bytes_of(entry),
  }
end

local function recipient_at(recipients, position)
  local a, b, c, d = byte(recipients, 4 * position - 3, 4 * position)
  return ARGV[SESSIONS_AT + ((a * 256 + b) * 256 + c) * 256 + d]
end

-- Adds an entry to a queue.
local function enqueue(session, inbox, score, entry, len)
  local list = arrivals[session]
  if not list and has_inline_room(inbox) then
    insert(inbox.queue, score, entry)
  else
    if not list then
      list = {}
      arrivals[session] = list
    end
    list[#list + 1] = score
    list[#list + 1] = entry
  end
  adjust(inbox, len, 0, 0, bytes_of(entry))
  wake(session)
end

-- Pushes a segment to its only recipient, or adds it to the queue.
local function place_segment(session, inbox, priority, entry, len, text)
  local bytes = bytes_of(entry)
  if not can_push(inbox, byte(entry, 17), len, bytes) then
    return enqueue(session, inbox, next_score(inbox, priority, len), entry, len)
  end
  local addresses = add_message(inbox.replica, text)
  addresses[#addresses + 1] = ONE_RECIPIENT
  addresses[#addresses + 1] =
    push_lease(session, inbox, priority, id_of(entry), sub(entry, 17), len, bytes, accepted_at)
end

-- Appends a segment. `ids` are those of its messages; nil for a single message. Returns the length of the queue, or why
-- it was refused; where a segment of several is refused, an array of these for each message by itself.
local function append_segment(session, priority, capacity, entry, text, ids)
  local inbox, len, bytes = inbox_of(session), ids and count_of(entry) or 1, bytes_of(entry)
  local charged = bytes + len * COPY_BYTES
  local refusal = refusal_of(inbox, bytes, capacity - len + 1) or not has_room(charged) and PROJECT_FULL
  if refusal and len == 1 then
    return refusal
  elseif refusal then
    local replies = {}
    for at, part in ipairs(messages.parts(text)) do
      replies[at] = append_segment(session, priority, capacity, part.entry, part.stored)
    end
    return replies
  end
  count_usage('messages', charged)
  place_segment(session, inbox, priority, entry, len, text)
  local id = id_of(entry)
  stored[#stored + 1] = id
  stored[#stored + 1] = text
  if ids then
    segment_ids[#segment_ids + 1] = id
    segment_ids[#segment_ids + 1] = ids
    segment_index[#segment_index + 1] = 0
    segment_index[#segment_index + 1] = id
  end
  receipts.count(bucket_of(id), len)
  return inbox.waiting
end

-- Reads and appends an item in the plain form.
local function append_plain(head)
  local place, entry, priority, capacity = unpack_bytes(PLAIN_HEAD, head)
  local text = read_text()
  local ids = byte(entry, 17) > 0 and read_text() or nil
  if is_outdated then
    return false
  end
  return append_segment(session_at(place), priority, capacity, entry, text, ids)
end

-- Charges one more copy to the project. The first brings the envelope. Returns a refusal, or nil.
local function charge_copy(item)
  local bytes = COPY_BYTES + item.uncharged
  if not has_room(bytes) then
    return PROJECT_FULL
  end
  count_usage('messages', bytes)
  item.uncharged = 0
end

-- Gives a recipient a copy of its own, or notes its refusal.
local function place_copy(item, position, session, is_charged)
  local inbox, entry = inbox_of(session), item.entry
  local refusal = not is_charged and (refusal_of(inbox, item.bytes, item.capacity) or charge_copy(item))
  if refusal then
    item.refusal = refusal
    item.refused[#item.refused + 1] = position
    return
  end
  if can_push(inbox, item.flags, 1, item.bytes) then
    local addresses = item.pushed[inbox.replica]
    if not addresses then
      addresses = {}
      item.pushed[inbox.replica] = addresses
    end
    addresses[#addresses + 1] =
      push_lease(session, inbox, item.priority, item.id, item.rest, 1, item.bytes, accepted_at)
  else
    enqueue(session, inbox, next_score(inbox, item.priority), entry, 1)
  end
  item.longest = math.max(item.longest, inbox.waiting)
  item.with_copy[#item.with_copy + 1] = session
  if item.ttl > 0 then
    expiry.push(deadlines, session, entry, now + item.ttl)
  end
end

-- Gives each recipient a place in the group of its replica, or a copy. Returns the groups, by replica.
local function place_item(item)
  local recipients, groups = item.recipients, {}
  for position = 1, #recipients / 4 do
    local session = recipient_at(recipients, position)
    local may_group = item.flags == MULTI_RECIPIENT and has_room(COPY_BYTES + item.uncharged)
    if may_group and admit(groups, position, session, item.bytes, item.capacity) then
      charge_copy(item)
    else
      place_copy(item, position, session)
    end
  end
  return groups
end

-- Turns groups that are too small into copies. Returns the others, by replica.
local function close_groups(item, groups)
  local accepted, large = item.accepted, {}
  for replica, group in pairs(groups) do
    local sessions = group.sessions
    if group.count < group_leases.MEMBERS_MIN then
      for at = 1, #sessions do
        place_copy(item, group.positions[at], sessions[at], true)
      end
    else
      large[replica], group.first = group, #accepted
      for at = 1, #sessions do
        accepted[#accepted + 1] = sessions[at]
      end
    end
  end
  for at = 1, #item.with_copy do
    accepted[#accepted + 1] = item.with_copy[at]
  end
  return large
end

local function publish_copies(item)
  for replica, pushed in pairs(item.pushed) do
    local addresses = add_message(replica, item.text)
    addresses[#addresses + 1] = pack('>I4', #pushed)
    addresses[#addresses + 1] = table.concat(pushed)
  end
end

-- Stores the message of an item that was accepted, and makes its group leases.
local function store_item(item, groups)
  local id, count = item.id, int_text(#item.accepted)
  if next(groups) then
    -- Now, since a later operation of this call may convert the group leases.
    call('HSET', key('messages'), id, item.text)
    call('HSET', key('copies'), id, count)
    for replica, group in pairs(groups) do
      group_leases.create(replica, group, id, item.rest, item.priority, item.bytes, accepted_at, group.first, item.text)
    end
  else
    stored[#stored + 1] = id
    stored[#stored + 1] = item.text
    if has_flag(item.entry, MULTI_RECIPIENT) then
      copy_counts[#copy_counts + 1] = id
      copy_counts[#copy_counts + 1] = count
    end
  end
  if has_flag(item.entry, MULTI_RECIPIENT) then
    receipts.put(id, id, 'M' .. table.concat(item.accepted))
  end
  receipts.count(bucket_of(id), #item.accepted)
end

-- Has the result of an item take its idempotency key (send_result.rs).
local function keep_result(item)
  local refused = {}
  for at = 1, #item.refused do
    refused[at] = recipient_at(item.recipients, item.refused[at])
  end
  local counts = format('0 %d 0 %d - - ', #item.accepted, item.longest)
  taken_keys[item.key] = item.id .. counts .. table.concat(refused, ',')
  idempotency.take(item.key, taken_keys[item.key])
end

-- Reads and appends an item in the general form.
local function append_general()
  local item = read_general()
  if item.roster ~= '' and not is_outdated then
    roster = roster or call('GET', key('roster')) or '0'
    is_outdated = roster ~= item.roster
  end
  if is_outdated then
    return false
  elseif item.key and taken_keys[item.key] then
    return taken_keys[item.key]
  end
  local groups = close_groups(item, place_item(item))
  publish_copies(item)
  if #item.accepted > 0 then
    store_item(item, groups)
    if item.key then
      keep_result(item)
    end
  end
  local reply, refused = { item.longest, item.refusal }, item.refused
  for at = 1, #refused do
    reply[at + 2] = refused[at]
  end
  return reply
end

local function flush()
  call_in_steps('HSET', key('messages'), stored, 2)
  call_in_steps('HSET', key('copies'), copy_counts, 2)
  call_in_steps('HSET', key('segments'), segment_ids, 2)
  call_in_steps('ZADD', key('segments:index'), segment_index, 2)
  for session, list in pairs(arrivals) do
    queues.add(session, inbox_of(session), list)
  end
  expiry.add(deadlines)
end

-- append: stores messages and segments in the inboxes of their recipients, and pushes them where it can.
--
-- Input   time; number of idempotency keys, the keys; number of items; then of each item
--           in the plain form (one recipient, no deadline, no key, not tracked): its head (PLAIN_HEAD), the stored text, and
--           for a segment of several the ids of its messages;
--           in the general form: '', entry, stored text, priority, time to live in ms (0: none), capacity, version of the
--           roster or '', place of its key (0: none), places of the recipients (4 bytes each)
-- Output  of each item
--           in the plain form: the length of the queue (0: it was pushed), or a refusal (below 0); of a segment of which not
--           all was accepted an array of these, one for each message;
--           in the general form: an array of the length of the longest queue, a refusal (0: none) and the places of the
--           recipients that refused; or what takes its key: a result or a reservation;
--           nil when the roster has another version
-- Keys    inboxes, inbox:SESSION, leases:SESSION, messages, copies, segments, segments:index, expiries, receipts,
--         receipts:BUCKET, group_leases, idempotency, idempotency:until, roster (read)
ops.append = function()
  read_time()
  begin()
  read_keys()
  local reply = {}
  for at = 1, read_number() do
    local head = read_text()
    if head ~= '' then
      reply[at] = append_plain(head)
    else
      reply[at] = append_general()
    end
  end
  flush()
  return reply
end
