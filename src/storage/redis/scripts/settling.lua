-- What becomes of messages that were delivered: acknowledge, release, claim; and how many wait.

-- Puts leased messages back where they were in the queue, but for those that have outlived their time or were
-- delivered too often. Returns how many were put back, and how many are dead.
local function put_back(session, inbox, entries, delivery_limit)
  local waiting, known, dead, timed, returned, bytes, dead_bytes, since = {}, {}, {}, {}, 0, 0, 0, tonumber(at_ms)
  entries = without_dead_bundles(session, entries, delivery_limit)
  for at = 1, #entries do
    local entry = entries[at]
    local expired = entry.deadline > 0 and entry.deadline <= now
    bytes = bytes + bytes_of(entry.member)
    if expired or entry.deliveries >= delivery_limit then
      dead[#dead + 1] = id_of(entry.member)
      dead_bytes = dead_bytes + bytes_of(entry.member)
      bury(entry.member, session, expired and 'x' or 'l', entry.deliveries)
    else
      returned = returned + count_of(entry.member)
      entry.score = entry.score - entry.score % 2 + 1
      entry.state, entry.since = RETURNED, since
      waiting[#waiting + 1] = whole(entry.score)
      waiting[#waiting + 1] = entry.member
      known[#known + 1] = id_of(entry.member)
      known[#known + 1] = pack_entry(entry)
      if entry.deadline > 0 then
        timed[#timed + 1] = whole(entry.deadline)
        timed[#timed + 1] = session .. entry.member
      end
    end
  end
  enqueue(session, inbox, waiting)
  put_delivered(session, inbox, known)
  drop_delivered(session, inbox, dead)
  call_many('ZADD', key('expiries'), timed, 2)
  shift(inbox, returned, -returned - #dead, -bytes, -dead_bytes)
  if returned > 0 then
    awaken(session)
  end
  return returned, #dead
end

-- Takes delivered messages out of an inbox, for good. Returns how many, and the ids of the watched ones.
local function finish(session, inbox, entries)
  local done, waiting, timed, watched, count, waited, bytes, size = {}, {}, {}, {}, 0, 0, 0, 0
  for at = 1, #entries do
    local entry = entries[at]
    local of_entry = count_of(entry.member)
    done[at] = id_of(entry.member)
    count = count + of_entry
    size = size + bytes_of(entry.member)
    if entry.state == RETURNED then
      waited = waited + of_entry
      waiting[#waiting + 1] = entry.member
      if entry.deadline > 0 then
        timed[#timed + 1] = session .. entry.member
      end
    else
      bytes = bytes + bytes_of(entry.member)
    end
    drop_copy(entry.member)
    if of_entry > 1 then
      settle_bundle(entry.member, session, 'a', entry.ids)
    else
      receipt(entry.member, session, 'a')
      progressed(entry.member, 'a')
    end
    if has(entry.member, WATCHED) then
      watched[#watched + 1] = done[at]
    end
  end
  drop_delivered(session, inbox, done)
  unqueue(session, inbox, waiting)
  call_many('ZREM', key('expiries'), timed, 1)
  if count > 0 then
    shift(inbox, -waited, waited - count, -bytes, -size)
  end
  return count, watched
end

-- The reply to an acknowledgement: how many, how many wait, how many are leased, number of unknown ids, these; then the
-- watched ones.
local function acknowledged(inbox, unknown, count, watched)
  local reply = { count, inbox and inbox.waiting or 0, inbox and inbox.leased or 0, #unknown }
  for at = 1, #unknown do
    reply[#reply + 1] = unknown[at]
  end
  for at = 1, #watched do
    reply[#reply + 1] = watched[at]
  end
  return reply
end

-- How many entries are looked for at once where none is a bundle.
local ENTRIES_AT_ONCE = 64

-- What is known of these messages of a session, those that were never delivered to it or are done with left out; which
-- ids these are; nil when only a part of a bundle is meant.
local function entries_of(session, packed)
  local inbox, entries, unknown, found, in_bundles = inbox_of(session), {}, {}, {}, false
  local at = 1
  while at <= #packed do
    local id, entry, count = sub(packed, at, at + 15), nil, 1
    if found[id] == nil then
      local ids = in_bundles and { id } or ids_in(sub(packed, at, at + 16 * ENTRIES_AT_ONCE - 1))
      local texts = delivered_of(session, inbox, ids)
      for place = 1, #ids do
        if found[ids[place]] == nil then
          found[ids[place]] = texts[place]
        end
      end
    end
    if found[id] then
      entry = read_entry(id, found[id])
      count = count_of(entry.member)
      if count > 1 then
        entry.ids = call('HGET', key('bundles'), id)
        if entry.ids ~= sub(packed, at, at + 16 * count - 1) then
          return nil
        end
      end
      entries[#entries + 1] = entry
      -- A second time it is not known.
      found[id] = false
    else
      unknown[#unknown + 1] = id
    end
    in_bundles = count > 1
    at = at + 16 * count
  end
  return entries, unknown
end

-- The same, if need be with all bundles of the session opened: of some only a part may be meant.
local function delivered_entries(session, packed)
  local entries, unknown = entries_of(session, packed)
  if (not entries or #unknown > 0) and unbundle_delivered(session) then
    entries, unknown = entries_of(session, packed)
  end
  return entries, unknown
end

local NONE = {}

-- Takes leased messages, for which nobody waits, out of a line, for good. Returns how many, and the ids given twice; nil,
-- and nothing is done, when there is anything else among them.
local function finish_plain(session, inbox, packed)
  local delivered = inbox.delivered
  for at = 1, #packed, 16 do
    local entry = delivered[sub(packed, at, at + 15)]
    if not entry then
      return nil
    end
    local flags = byte(entry, FLAGS_AT)
    if byte(entry, STATE_AT) == RETURNED or flags >= 16 or band(flags, WATCHED) ~= 0 then
      return nil
    end
  end
  local count, twice, bytes = 0, NONE, 0
  for at = 1, #packed, 16 do
    local id = sub(packed, at, at + 15)
    local entry = delivered[id]
    if not entry then
      twice = #twice > 0 and twice or {}
      twice[#twice + 1] = id
    else
      count = count + 1
      delivered[id] = nil
      local flags, of_entry = unpack_bytes('>BI4', entry, FLAGS_AT)
      bytes = bytes + of_entry
      drop_copy_of(id, flags, of_entry)
      receipt_of(id, flags, session, 'a')
    end
  end
  inbox.delivered_len = inbox.delivered_len - count
  shift(inbox, 0, -count, -bytes, -bytes)
  return count, twice
end

local function acknowledge(session, packed, and_before)
  local inbox = inbox_of(session)
  if not inbox then
    return acknowledged(nil, ids_in(packed), 0, NONE)
  end
  if not and_before and not inbox.outside then
    local count, twice = finish_plain(session, inbox, packed)
    if count then
      return acknowledged(inbox, twice, count, NONE)
    end
  end
  local entries, unknown = delivered_entries(session, packed)
  if and_before and entries[1] then
    local last_lease = entries[1].lease
    local before = leased_entries(session, function(entry)
      return entry.lease < last_lease
    end)
    for at = 1, #before do
      entries[#entries + 1] = before[at]
    end
  end
  return acknowledged(inbox, unknown, finish(session, inbox, entries))
end

-- acknowledge: time, session, 'ids' or 'up_to', the ids. Reply: see acknowledged.
ops.acknowledge = function()
  at_ms = arg()
  local session, which = session_arg(), arg()
  return acknowledge(session, arg(), which == 'up_to')
end

-- acknowledge_written: time, then of each session its place (4 bytes) and ids. Reply: as to acknowledge, of each session.
ops.acknowledge_written = function(last)
  at_ms = arg()
  local replies = {}
  while cursor < last do
    local written = arg()
    replies[#replies + 1] = acknowledge(ARGV[SESSIONS_AT + unpack_bytes('>I4', written)], sub(written, 5))
  end
  return replies
end

-- acknowledge_post: time, message and replica, places of sessions (4 bytes each) to which it has not been written. These
-- have it as leases of their own from now on.
-- Reply: 1, or 0 when there is no such post: whoever has the message has it as a lease of its own.
ops.acknowledge_post = function()
  at_ms = arg()
  local name, late, is_late, post = arg(), arg(), {}, nil
  for _, known in ipairs(posts_of(sub(name, 17))) do
    if known.name == name then
      post = known
    end
  end
  if not post then
    return { 0 }
  end
  for at = 1, #late, 4 do
    local session = ARGV[SESSIONS_AT + unpack_bytes('>I4', late, at)]
    is_late[session] = true
    inbox_of(session)
  end
  local is_open = read_post(post)
  for session in pairs(post.is_struck or {}) do
    if not is_late[session] then
      acknowledge(session, post.id)
    end
  end
  if is_open then
    local id, count = post.id, post.known.count
    drop_shared(id, count - post.struck_len, post.bytes)
    flush_receipts()
    local field, bucket = id .. '*', bucket_of(id)
    local told = call('HGET', key('receipts:') .. bucket, field) or ''
    put_receipt(id, field, told .. pack(POSTS_RECEIPT, post.known.first, count, tonumber(at_ms)))
    end_post(post)
  end
  return { 1 }
end

-- release: time, session, delivery limit, then 'ids' and the ids, 'claimed' and the claim, or 'silent' and
-- milliseconds.
-- Reply: how many were put back, how many are dead, how many wait, how many are leased.
ops.release = function()
  at_ms = arg()
  local session, delivery_limit, which = session_arg(), number_arg(), arg()
  local inbox, entries = inbox_of(session), {}
  if not inbox then
    return { 0, 0, 0, 0 }
  end
  if which == 'ids' then
    local delivered = delivered_entries(session, arg())
    for at = 1, #delivered do
      if delivered[at].state ~= RETURNED then
        entries[#entries + 1] = delivered[at]
      end
    end
  elseif which == 'claimed' then
    if arg() == inbox.claim then
      entries = leased_entries(session)
      close_window(inbox)
    end
  else
    local seen = call('ZSCORE', key('seen'), session)
    if not seen or tonumber(seen) <= now - number_arg() then
      entries = leased_entries(session)
      close_window(inbox)
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

-- release_of: time, a replica that is no more: what it leased for calls that were not answered waits again, and nothing is
-- handed to it any more.
-- Reply: how many were put back, how many are dead.
ops.release_of = function()
  at_ms = arg()
  local replica, returned, dead, lines = arg(), 0, 0, call('HGETALL', key('inboxes'))
  local taker = uuid_text(replica)
  for _, post in ipairs(posts_of(taker)) do
    local addresses = read_post(post) and post.known.addresses or ''
    for at = 1, #addresses, ADDRESS_LEN do
      inbox_of(sub(addresses, at, at + SESSION_LEN - 1))
    end
  end
  for at = 1, #lines, 2 do
    local session = lines[at]
    local known = session ~= TOTALS_FIELD and read_inbox(lines[at + 1])
    local inbox = known and (known.leased > 0 or known.taker == taker) and inbox_of(session)
    if inbox and inbox.taker == taker then
      close_window(inbox)
    end
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
  close_window(inbox)
  local returned, dead = put_back(session, inbox, leased_entries(session), delivery_limit)
  publish(head, inbox.epoch)
  return { inbox.epoch, returned, dead, inbox.waiting, inbox.leased }
end

-- depth: session. Reply: how many wait, how many are leased.
ops.depth = function()
  local inbox = inbox_of(session_arg())
  return inbox and { inbox.waiting, inbox.leased } or { 0, 0 }
end
