-- Parcels: what is handed over unasked, by who takes it. First each message by itself, as it is stored, since to put
-- strings together costs more than to publish them. Then of all of them, in their order, how many sessions get it, and
-- of each its id, the number of the lease, or of a post (below) that of the next, and its claim.
local parcels

each_time(function()
  parcels = {}
end)

local ONE = '\0\0\0\1'

-- The parcel for a replica, with one more message.
local function parcel_with(taker, message)
  local parcel = parcels[taker]
  if not parcel then
    parcel = { messages = {}, addresses = { PARCEL_HEAD } }
    parcels[taker] = parcel
  end
  parcel.messages[#parcel.messages + 1] = message
  return parcel.addresses
end

local function flush_parcels()
  for taker, parcel in pairs(parcels) do
    local channel, messages = CHANNEL .. ':' .. taker, parcel.messages
    for at = 1, #messages do
      call('PUBLISH', channel, messages[at])
    end
    call('PUBLISH', channel, table.concat(parcel.addresses))
  end
end

-- Whether a message is handed over before anybody asks: nothing waits that would come first, and whoever has claimed the
-- session takes as much as this.
local function is_taken(inbox, flags, len, bytes)
  return inbox.waiting == 0 and inbox.leased + len <= inbox.window and flags % 16 <= SHARED
    and inbox.bytes + bytes <= inbox.room
end

-- Leases a message that nobody has asked for. Returns what is said of it in a parcel.
local function hand_over(session, inbox, priority, id, rest, len, bytes, since)
  local lease = inbox.lease
  local entry = pack(ENTRY, score_of(inbox, priority, len), lease, 0, 1, LEASED, rest, 0, REPLICA, since)
  if inbox.outside or inbox.delivered_len >= LINE_LEN_MAX then
    put_delivered(session, inbox, { id, entry })
  else
    inbox.delivered[id] = entry
    inbox.delivered_len = inbox.delivered_len + 1
  end
  inbox.lease = lease + len
  shift(inbox, 0, len, bytes, bytes)
  return session .. pack('>d', lease) .. inbox.claim
end

-- Posts: a message for many whom one replica handles, and who acknowledge by writing, is leased to all of them as one. In
-- 'posts' is, under the message and the replica, what is leased to whom; after a '-' who has it as a lease of its own since,
-- because somebody wanted to know about that inbox (inbox_of); and under the replica which posts there are. Their lines say
-- nothing of it. When the replica has written it to all, or waits no longer for the rest, the post is acknowledged and is no more.

-- Fewest sessions of one.
local POST_LEN_MIN = 2
-- Session, number of the next lease and claim of each.
local SESSION_LEN, ADDRESS_LEN = 36, 60

-- By replica, in their order, as far as somebody asked.
local posts
local posts_of, read_post, has_post, end_post, is_posted, post_to, flush_posts

do -- What nobody else names.

-- Most posts of a replica at once.
local POSTS_LEN_MAX = 16
-- Message, bytes.
local POSTED = '>c16I4'
local POSTED_LEN = 20
-- What is known of a message (the member without the id), its priority, since when it is leased, and the place of the
-- first session in the receipt. Then the addresses.
local POST = '>c5BdI4'
-- Added to the number of sessions, in a parcel.
local POST_MARK = 2 ^ 31

-- Sessions that are looked for in a post before all of them are put in a table.
local FINDS_MAX = 4

-- Replicas that have others than before, and posts that somebody has as a lease of its own since.
local changed_posts, struck_posts

each_time(function()
  posts, changed_posts, struck_posts = {}, {}, {}
end)

-- What never changes of posts, from one call to the next, by message and replica.
local kept_posts, kept_posts_len = {}, 0

posts_of = function(taker)
  local list = posts[taker]
  if not list then
    list = {}
    posts[taker] = list
    local known = call('HGET', key('posts'), taker) or ''
    for at = 1, #known, POSTED_LEN do
      local id, bytes = unpack_bytes(POSTED, known, at)
      list[#list + 1] = { id = id, taker = taker, name = id .. taker, bytes = bytes }
    end
  end
  return list
end

local function keep_post(name, known)
  if kept_posts_len == 2 * POSTS_LEN_MAX then
    kept_posts, kept_posts_len = {}, 0
  end
  kept_posts[name] = known
  kept_posts_len = kept_posts_len + 1
end

local function known_post(rest, priority, since, first, addresses)
  return {
    rest = rest, priority = priority, since = since, first = first, addresses = addresses,
    count = #addresses / ADDRESS_LEN, finds = 0, members = false,
  }
end

-- Reads all of a post. False when it is no more.
read_post = function(post)
  if not post.struck then
    local known, text = kept_posts[post.name], nil
    if not known then
      text = call('HGET', key('posts'), post.name)
      if not text then
        end_post(post)
        return false
      end
      local rest, priority, since, first, addresses_at = unpack_bytes(POST, text)
      known = known_post(rest, priority, since, first, sub(text, addresses_at))
      keep_post(post.name, known)
    end
    local struck = call('HGET', key('posts'), post.name .. '-') or ''
    post.known, post.struck, post.struck_len, post.is_struck = known, { struck }, #struck / SESSION_LEN, {}
    for at = 1, #struck, SESSION_LEN do
      post.is_struck[sub(struck, at, at + SESSION_LEN - 1)] = true
    end
  end
  return not post.is_over
end

has_post = function(post, session)
  local known = post.known
  if post.is_struck[session] then
    return false
  elseif known.finds < FINDS_MAX then
    known.finds = known.finds + 1
    return string.find(known.addresses, session, 1, true) ~= nil
  elseif not known.members then
    known.members = {}
    for at = 1, #known.addresses, ADDRESS_LEN do
      known.members[sub(known.addresses, at, at + SESSION_LEN - 1)] = true
    end
  end
  return known.members[session] or false
end

end_post = function(post)
  post.is_over, changed_posts[post.taker] = true, true
  local list = {}
  for _, other in ipairs(posts[post.taker]) do
    if other ~= post then
      list[#list + 1] = other
    end
  end
  posts[post.taker] = list
  call('HDEL', key('posts'), post.name, post.name .. '-')
  if kept_posts[post.name] then
    kept_posts[post.name] = nil
    kept_posts_len = kept_posts_len - 1
  end
end

-- Makes what was posted to a session a lease of its own. The replica is told its number, with the message, though it may
-- have that already; of all that this call makes leases of one post at once.
take_posts = function(session, inbox)
  for _, post in ipairs(posts_of(inbox.taker)) do
    if read_post(post) and has_post(post, session) then
      local known, told = post.known, struck_posts[post]
      if not told then
        -- Now: whoever acknowledges it in this call may be the last. And in this place: before what comes next.
        post.message = post.message or call('HGET', key('messages'), post.id)
        local addresses = post.message and parcel_with(post.taker, post.message) or {}
        told = { addresses = addresses, place = #addresses + 1 }
        addresses[told.place], addresses[told.place + 1] = '', ''
        struck_posts[post] = told
      end
      told[#told + 1] = hand_over(session, inbox, known.priority, post.id, known.rest, 1, post.bytes, known.since)
      put_receipt(post.id, post.id .. session, STANDS)
      post.is_struck[session], post.struck_len = true, post.struck_len + 1
      post.struck[#post.struck + 1] = session
      if post.struck_len == known.count then
        end_post(post)
      end
    end
  end
end

-- What lines say about posting: nothing of an inbox that has to be looked into. The same lines come again with every
-- message for many.
local readers, readers_len = {}, 0
local READERS_LEN_MAX = 20000

local function read_reader(line)
  local waiting, leased, bytes, size, window, room, claim_len, form = unpack_bytes(LINE_HEAD, line)
  if form ~= BY_WRITING or waiting > 0 then
    return false
  end
  local taker_at = CLAIM_AT + claim_len
  local reader = {
    taker = sub(line, taker_at, taker_at + TAKER_LEN - 1), address = sub(line, LEASE_AT, taker_at - 1),
    messages = window - leased, leased = leased, bytes = room - bytes, size = size,
  }
  if readers_len == READERS_LEN_MAX then
    readers, readers_len = {}, 0
  end
  readers[line] = reader
  readers_len = readers_len + 1
  return reader
end

-- Whom a message may be posted to: adds the session to those of its replica. False when it has to be looked into the
-- inbox.
is_posted = function(groups, place, session, bytes, capacity)
  local line = inboxes[session] == nil and line_of(session)
  local reader = line and (readers[line] or read_reader(line))
  if not reader then
    return false
  end
  local taker = reader.taker
  local group = groups[taker]
  if not group then
    local list = posts_of(taker)
    group = { sessions = {}, places = {}, addresses = {}, count = 0, len = #list, bytes = bytes, is_open = #list < POSTS_LEN_MAX }
    for at = 1, #list do
      group.bytes = group.bytes + list[at].bytes
    end
    groups[taker] = group
  end
  if
    not group.is_open or group.len >= reader.messages or reader.leased + group.len >= capacity
    or group.bytes > reader.bytes or reader.size + group.bytes > bounds.queue_bytes
  then
    return false
  end
  local count = group.count + 1
  group.count = count
  group.sessions[count], group.places[count] = session, place
  group.addresses[2 * count - 1], group.addresses[2 * count] = session, reader.address
  return true
end

post_to = function(taker, group, id, rest, priority, bytes, since, first, message)
  local known = known_post(rest, priority, since, first, table.concat(group.addresses))
  local post = {
    id = id, taker = taker, name = id .. taker, bytes = bytes, known = known, struck = {}, struck_len = 0, is_struck = {},
    message = message,
  }
  local list, addresses = posts_of(taker), parcel_with(taker, message)
  list[#list + 1] = post
  changed_posts[taker] = true
  call('HSET', key('posts'), post.name, pack(POST, rest, priority, since, first) .. known.addresses)
  keep_post(post.name, known)
  addresses[#addresses + 1] = pack('>I4', POST_MARK + known.count)
  addresses[#addresses + 1] = known.addresses
end

flush_posts = function()
  for post, told in pairs(struck_posts) do
    told.addresses[told.place], told.addresses[told.place + 1] = pack('>I4', #told), table.concat(told)
    if not post.is_over then
      call('HSET', key('posts'), post.name .. '-', table.concat(post.struck))
    end
  end
  for taker in pairs(changed_posts) do
    local list, parts = posts[taker] or {}, {}
    for at = 1, #list do
      parts[at] = pack(POSTED, list[at].id, list[at].bytes)
    end
    if #parts > 0 then
      call('HSET', key('posts'), taker, table.concat(parts))
    else
      call('HDEL', key('posts'), taker)
    end
  end
  if next(struck_posts) or next(changed_posts) then
    timeline.has_changed = true
  end
end

end
