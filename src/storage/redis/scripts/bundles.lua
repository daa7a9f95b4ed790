-- Bundles: plain messages for one recipient that were accepted together lie in its inbox as one, for as long as they are
-- delivered and acknowledged together. A bundle has the id of its first message. In 'messages' is what it holds: of each
-- message the length of what is stored (4 bytes), that of its envelope (4 bytes), what is stored. The ids of its messages
-- are in 'bundles', and in its receipt when all are acknowledged. By which bundles a message is looked for is in 'bundled',
-- and then in 'settled:BUCKET': their ids, in order.

local want_message, read_wanted, read_or_leave_wanted, count_of, parts_of, unbundle_delivered, unbundle_waiting,
  unbundle_all, settle_bundle, flush_settled, holds, bundle_with, without_dead_bundles

do -- What nobody else names.

-- Messages that are handed out, to be read in one go when all operations are done. When they are many bytes whoever called
-- does that: what comes through Lua is copied and hashed to its last byte.
local wanted, wanted_by, wanted_bytes
local WANTED_BYTES_MAX = 16 * 1024

each_time(function()
  wanted, wanted_by, wanted_bytes = {}, {}, 0
end)

-- Puts a message in the reply when it is read.
function want_message(member, reply)
  wanted[#wanted + 1] = id_of(member)
  reply[#reply + 1] = false
  wanted_by[#wanted_by + 1] = { reply, #reply, member, reply_number }
  wanted_bytes = wanted_bytes + bytes_of(member)
end

function read_wanted()
  local stored = fields(key('messages'), wanted)
  for at = 1, #wanted do
    local reply, place = wanted_by[at][1], wanted_by[at][2]
    reply[place] = stored[at]
  end
  wanted, wanted_by, wanted_bytes = {}, {}, 0
end

-- The same, or what the caller is to read.
function read_or_leave_wanted()
  local left = {}
  if wanted_bytes <= WANTED_BYTES_MAX then
    if #wanted > 0 then
      read_wanted()
    end
    return left
  end
  for at = 1, #wanted_by do
    local _, place, member, number = unpack(wanted_by[at])
    left[3 * at - 2], left[3 * at - 1], left[3 * at] = number, place, sub(member, 1, 21)
  end
  return left
end

-- How many messages a member stands for: one, unless it is a bundle.
function count_of(member)
  return math.floor(byte(member, 17) / 16) + 1
end

-- The messages of a bundle: id, member and what is stored of each.
function parts_of(bundle)
  local parts, at = {}, 1
  while at <= #bundle do
    local len, _, from = unpack_bytes('>I4I4', bundle, at)
    local id = sub(bundle, from + 2, from + 17)
    local member = id .. '\0' .. sub(bundle, at + 4, at + 7)
    parts[#parts + 1] = { id = id, member = member, stored = sub(bundle, from, from + len - 1) }
    at = from + len
  end
  return parts
end

-- Receipts of bundles that are done with, by bucket.
local settled

each_time(function()
  settled = {}
end)

-- Bundles that are no more.
local bundles_gone

each_time(function()
  bundles_gone = {}
end)

local function forget_bundle(id)
  bundles_gone[#bundles_gone + 1] = id
end

-- Makes a bundle the messages that it holds. Of one that was delivered 'entry' is what is known of it; 'score' is where
-- it waits, if it does. Returns what is known of each.
local function unbundle(session, member, entry, score)
  local inbox = inbox_of(session)
  local id, entries, stored, known, waiting = id_of(member), {}, {}, {}, {}
  if #wanted > 0 then
    -- What was handed out before this was all of it.
    read_wanted()
  end
  for at, part in ipairs(parts_of(call('HGET', key('messages'), id))) do
    stored[#stored + 1] = part.id
    stored[#stored + 1] = part.stored
    if score then
      waiting[#waiting + 1] = whole(score + 2 * (at - 1))
      waiting[#waiting + 1] = part.member
    end
    if entry then
      local of_part = {
        score = entry.score + 2 * (at - 1), lease = entry.lease + at - 1, deadline = 0, deliveries = entry.deliveries,
        state = entry.state, member = part.member, batch = entry.batch, replica = entry.replica, since = entry.since,
      }
      entries[at] = of_part
      known[#known + 1] = part.id
      known[#known + 1] = pack_entry(of_part)
    end
  end
  call_many('HSET', key('messages'), stored, 2)
  put_delivered(session, inbox, known)
  if score then
    unqueue(session, inbox, { member })
    enqueue(session, inbox, waiting)
  end
  forget_bundle(id)
  return entries
end

-- The same of a bundle that was delivered, wherever it is now.
local function unbundle_entry(session, entry)
  return unbundle(session, entry.member, entry, entry.state == RETURNED and entry.score or nil)
end

-- The same of all bundles of a session that were delivered. Returns whether there was one.
function unbundle_delivered(session)
  local found = {}
  each_delivered(session, inbox_of(session), function(id, text)
    local entry = read_entry(id, text)
    if count_of(entry.member) > 1 then
      found[#found + 1] = entry
    end
  end)
  for at = 1, #found do
    unbundle_entry(session, found[at])
  end
  return #found > 0
end

-- The same of one that waits.
function unbundle_waiting(session, member, score)
  local id = id_of(member)
  local known = score % 2 == 1 and delivered_of(session, inbox_of(session), { id })[1]
  unbundle(session, member, known and read_entry(id, known), score)
end

-- The same of all bundles of a session.
function unbundle_all(session)
  unbundle_delivered(session)
  local members = queued(session, inbox_of(session))
  for at = 1, #members, 2 do
    if count_of(members[at]) > 1 then
      unbundle_waiting(session, members[at], tonumber(members[at + 1]))
    end
  end
end

-- Says that all of a bundle is done with. Its receipt knows its messages from now on: these, if the caller knows them.
function settle_bundle(member, session, status, ids)
  local id = id_of(member)
  ids = ids or call('HGET', key('bundles'), id) or ''
  local bucket = put_receipt(id, id, 'B' .. session .. status .. at_ms .. ' ' .. ids)
  local list = settled[bucket]
  if not list then
    list = {}
    settled[bucket] = list
  end
  list[#list + 1] = 0
  list[#list + 1] = id
  forget_bundle(id)
end

function flush_settled()
  call_many('HDEL', key('bundles'), bundles_gone, 1)
  call_many('ZREM', key('bundled'), bundles_gone, 1)
  bundles_gone = {}
  for bucket, list in pairs(settled) do
    if call('HEXISTS', key('receipts'), bucket) == 1 then
      call_many('ZADD', key('settled:') .. bucket, list, 2)
      call('EXPIRE', key('settled:') .. bucket, RECEIPTS_FOR_MS / 1000 + 3600)
    end
  end
  settled = {}
end

function holds(ids, id)
  local at = string.find(ids, id, 1, true)
  while at and at % 16 ~= 1 do
    at = string.find(ids, id, at + 1, true)
  end
  return at
end

-- The bundle in which this message is, and its receipt if it has one; nil when it is in none.
function bundle_with(id)
  local moment = sub(id, 1, 6)
  local from, to = '[' .. moment, '(' .. moment .. string.rep('\255', 11)
  for _, first in ipairs(call('ZRANGE', key('bundled'), from, to, 'BYLEX')) do
    if holds(call('HGET', key('bundles'), first) or '', id) then
      return first
    end
  end
  for _, first in ipairs(call('ZRANGE', key('settled:') .. bucket_of(id), from, to, 'BYLEX')) do
    local told = call('HGET', key('receipts:') .. bucket_of(id), first)
    local ids_at = told and string.find(told, ' ', 38, true)
    if ids_at and holds(sub(told, ids_at + 1), id) then
      return first, told
    end
  end
end

-- These entries, with bundles that were delivered too often as the messages that they hold: each is a dead letter of
-- its own.
function without_dead_bundles(session, entries, delivery_limit)
  local rest = {}
  for at = 1, #entries do
    local entry = entries[at]
    if count_of(entry.member) > 1 and entry.deliveries >= delivery_limit then
      for _, part in ipairs(unbundle_entry(session, entry)) do
        rest[#rest + 1] = part
      end
    else
      rest[#rest + 1] = entry
    end
  end
  return rest
end

end
