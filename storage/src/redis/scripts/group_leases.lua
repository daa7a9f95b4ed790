-- Group leases: one lease of one multi-recipient message for all its recipients that one replica owns and that
-- acknowledge by writing (ack: auto). They raised a broadcast to 1,000 from 0.37 to 0.66 of what one replica does on
-- memory.
--
-- The inboxes of the members are checked (nothing waits; credit and bounds hold the message and all other group leases
-- of the replica) and not written. An operation that looks into the inbox of a member first gives it a lease of its own
-- (`convert`), so no other file knows of group leases. The replica acknowledges a group lease once, when it has written
-- the message to all members or stops waiting for the rest.
--
-- Keys  group_leases (hash; three kinds of fields:
--         REPLICA           its group leases in their order: message (16 bytes), bytes (4) of each
--         MESSAGE REPLICA   a group lease: LEASE, then the address of each member: id, number of the next lease, claim
--         MESSAGE REPLICA - the members that have leases of their own since),
--       messages (read), receipts:BUCKET

local record_if_unopened = inboxes.record_if_unopened

-- Fewest members of a group lease, and most group leases of a replica at once.
group_leases.MEMBERS_MIN = 2
local LEN_MAX = 16
-- Added to the number of recipients in a delivery batch.
local GROUP_LEASE_MARK = 2 ^ 31
-- Lengths of the id of a session and of an address.
local SESSION_LEN, ADDRESS_LEN = 36, 60
-- A group lease in the list of its replica.
local LISTED, LISTED_LEN = '>c16I4', 20
-- A group lease: flags and bytes of the entry, priority, time of the lease, position of the first member in the
-- receipt.
local LEASE = '>c5BdI4'
-- A receipt of a group lease; see receipts.lua.
local RECEIPT = '>I4I4d'
-- Members that are looked for in the addresses before all of them are put into a table.
local SEARCHES_MAX = 4

-- Group leases by replica, in their order, as far as this call has read them; the replicas whose list has changed; by
-- group lease, the part of a delivery batch that publishes converted leases.
local lists, changed_lists, converted

each_call(function()
  lists, changed_lists, converted = {}, {}, {}
end)

-- Forgets what this call has read.
function group_leases.reset()
  lists = {}
end

-- The unchanging part of group leases, from one call to the next, by message and replica: a replica is a process, which
-- works on one data set.
local cache, cache_len = {}, 0

local function cache_terms(name, terms)
  if cache_len == 2 * LEN_MAX then
    cache, cache_len = {}, 0
  end
  cache[name] = terms
  cache_len = cache_len + 1
end

local function new_terms(rest, priority, since, first, addresses)
  return {
    rest = rest, priority = priority, since = since, first = first, addresses = addresses,
    count = #addresses / ADDRESS_LEN, searches = 0, members = false,
  }
end

-- The group leases of a replica.
local function of_replica(replica)
  local list = lists[replica]
  if not list then
    list = {}
    lists[replica] = list
    local stored = call('HGET', key('group_leases'), replica) or ''
    for at = 1, #stored, LISTED_LEN do
      local id, bytes = unpack_bytes(LISTED, stored, at)
      list[#list + 1] = { id = id, replica = replica, name = id .. replica, bytes = bytes }
    end
  end
  return list
end

-- Deletes a group lease.
local function remove(group)
  group.is_removed, changed_lists[group.replica] = true, true
  local list = {}
  for _, other in ipairs(lists[group.replica]) do
    if other ~= group then
      list[#list + 1] = other
    end
  end
  lists[group.replica] = list
  call('HDEL', key('group_leases'), group.name, group.name .. '-')
  if cache[group.name] then
    cache[group.name] = nil
    cache_len = cache_len - 1
  end
end

-- Reads all of a group lease. Returns false when it is deleted.
local function load(group)
  if not group.left then
    local terms = cache[group.name]
    if not terms then
      local text = call('HGET', key('group_leases'), group.name)
      if not text then
        remove(group)
        return false
      end
      local rest, priority, since, first, addresses_at = unpack_bytes(LEASE, text)
      terms = new_terms(rest, priority, since, first, sub(text, addresses_at))
      cache_terms(group.name, terms)
    end
    local left = call('HGET', key('group_leases'), group.name .. '-') or ''
    group.terms, group.left, group.left_len, group.has_left = terms, { left }, #left / SESSION_LEN, {}
    for at = 1, #left, SESSION_LEN do
      group.has_left[sub(left, at, at + SESSION_LEN - 1)] = true
    end
  end
  return not group.is_removed
end

-- Whether a session is a member that has no lease of its own yet.
local function has_member(group, session)
  local terms = group.terms
  if group.has_left[session] then
    return false
  elseif terms.searches < SEARCHES_MAX then
    terms.searches = terms.searches + 1
    return string.find(terms.addresses, session, 1, true) ~= nil
  elseif not terms.members then
    terms.members = {}
    for at = 1, #terms.addresses, ADDRESS_LEN do
      terms.members[sub(terms.addresses, at, at + SESSION_LEN - 1)] = true
    end
  end
  return terms.members[session] or false
end

-- Calls `see` with each member of a group lease that has no lease of its own.
local function each_member(group, see)
  local addresses = load(group) and group.terms.addresses or ''
  for at = 1, #addresses, ADDRESS_LEN do
    local session = sub(addresses, at, at + SESSION_LEN - 1)
    if has_member(group, session) then
      see(session)
    end
  end
end

-- The part of a delivery batch that publishes the converted leases of a group lease. It is reserved at once: it comes
-- before what this call publishes next, and the message may be deleted by a later operation of the call.
local function conversion_of(group)
  local part = converted[group]
  if not part then
    group.message = group.message or call('HGET', key('messages'), group.id)
    local addresses = group.message and pushes.add_message(group.replica, group.message) or {}
    part = { addresses = addresses, position = #addresses + 1 }
    addresses[part.position], addresses[part.position + 1] = '', ''
    converted[group] = part
  end
  return part
end

-- Gives a session a lease of its own for each group lease of which it is a member, and publishes the number of the
-- lease with the message. The replica drops the message if it has it already.
function group_leases.convert(session, inbox)
  for _, group in ipairs(of_replica(inbox.replica)) do
    if load(group) and has_member(group, session) then
      local terms, part = group.terms, conversion_of(group)
      part[#part + 1] =
        pushes.lease(session, inbox, terms.priority, group.id, terms.rest, 1, group.bytes, terms.since)
      receipts.put(group.id, group.id .. session, receipts.OPEN)
      group.has_left[session], group.left_len = true, group.left_len + 1
      group.left[#group.left + 1] = session
      if group.left_len == terms.count then
        remove(group)
      end
    end
  end
end

-- Converts all group leases of a replica.
function group_leases.convert_all(replica)
  for _, group in ipairs(of_replica(replica)) do
    each_member(group, inboxes.of)
  end
end

-- What records say about readers (inboxes.read_reader), by record: the same records come again with every broadcast. It
-- follows from the record alone and is the same in each data set.
local readers, readers_len = {}, 0
local READERS_LEN_MAX = 20000

local function read_reader(record)
  local reader = inboxes.read_reader(record)
  if reader then
    if readers_len == READERS_LEN_MAX then
      readers, readers_len = {}, 0
    end
    readers[record] = reader
    readers_len = readers_len + 1
  end
  return reader
end

-- The group of a replica for a new message, with the bytes of the message and of its other group leases.
local function new_group(replica, bytes)
  local list = of_replica(replica)
  local group = {
    sessions = {}, positions = {}, addresses = {}, count = 0, len = #list, bytes = bytes, is_open = #list < LEN_MAX,
  }
  for at = 1, #list do
    group.bytes = group.bytes + list[at].bytes
  end
  return group
end

-- Adds a recipient to the group of its replica. Returns false when it has to get a copy of its own.
function group_leases.admit(groups, position, session, bytes, capacity)
  local record = record_if_unopened(session)
  local reader = record and (readers[record] or read_reader(record))
  if not reader then
    return false
  end
  local group = groups[reader.replica]
  if not group then
    group = new_group(reader.replica, bytes)
    groups[reader.replica] = group
  end
  if
    not group.is_open or group.len >= reader.messages or reader.in_flight + group.len >= capacity
    or group.bytes > reader.credit_bytes or reader.bytes + group.bytes > bounds.queue_bytes
  then
    return false
  end
  local count = group.count + 1
  group.count = count
  group.sessions[count], group.positions[count] = session, position
  group.addresses[2 * count - 1], group.addresses[2 * count] = session, reader.address
  return true
end

-- Makes the group of a replica a group lease of a message, and publishes it. `first` is the position of the first
-- member in the receipt, counted from 0.
function group_leases.create(replica, group, id, rest, priority, bytes, since, first, message)
  local terms = new_terms(rest, priority, since, first, table.concat(group.addresses))
  local lease = {
    id = id, replica = replica, name = id .. replica, bytes = bytes, terms = terms, left = {}, left_len = 0,
    has_left = {}, message = message,
  }
  local list, addresses = of_replica(replica), pushes.add_message(replica, message)
  list[#list + 1] = lease
  changed_lists[replica] = true
  call('HSET', key('group_leases'), lease.name, pack(LEASE, rest, priority, since, first) .. terms.addresses)
  cache_terms(lease.name, terms)
  addresses[#addresses + 1] = pack('>I4', GROUP_LEASE_MARK + terms.count)
  addresses[#addresses + 1] = terms.addresses
end

function group_leases.flush()
  for group, part in pairs(converted) do
    part.addresses[part.position], part.addresses[part.position + 1] = pack('>I4', #part), table.concat(part)
    if not group.is_removed then
      call('HSET', key('group_leases'), group.name .. '-', table.concat(group.left))
    end
  end
  for replica in pairs(changed_lists) do
    local list, parts = lists[replica] or {}, {}
    for at = 1, #list do
      parts[at] = pack(LISTED, list[at].id, list[at].bytes)
    end
    if #parts > 0 then
      call('HSET', key('group_leases'), replica, table.concat(parts))
    else
      call('HDEL', key('group_leases'), replica)
    end
  end
  if next(converted) or next(changed_lists) then
    timeline.has_changed = true
  end
end

-- The statuses of a message by group leases: by position of the recipient in the receipt for acknowledged ones, by
-- session for those in flight.
function group_leases.statuses(id)
  local statuses, acknowledged = {}, call('HGET', receipts.key_of(id), id .. '*') or ''
  for at = 1, #acknowledged, 16 do
    local first, count, since = unpack_bytes(RECEIPT, acknowledged, at)
    for position = first + 1, first + count do
      statuses[position] = 'a' .. int_text(since)
    end
  end
  for _, name in ipairs(call('HKEYS', key('group_leases'))) do
    local is_of_message = #name == 52 and sub(name, 1, 16) == id
    for _, group in ipairs(is_of_message and of_replica(sub(name, 17)) or {}) do
      if group.id == id then
        each_member(group, function(session)
          statuses[session] = 'd' .. int_text(group.terms.since)
        end)
      end
    end
  end
  return statuses
end

-- The group lease of this name (message and replica); nil when there is none.
local function find(name)
  for _, group in ipairs(of_replica(sub(name, 17))) do
    if group.name == name then
      return group
    end
  end
end

-- acknowledge_group_lease: acknowledges a group lease for the members to whom the message was written.
--
-- Input   time, message and replica, places of the members to whom it was not written (4 bytes each): they have leases of
--         their own from now on
-- Output  1; 0 when there is no such group lease: all members have leases of their own
-- Keys    group_leases, copies, messages, receipts, receipts:BUCKET, inboxes, leases:SESSION
ops.acknowledge_group_lease = function()
  read_time()
  local name, late = read_text(), read_text()
  local group, is_late = find(name), {}
  if not group then
    return { 0 }
  end
  for at = 1, #late, 4 do
    local session = session_at((unpack_bytes('>I4', late, at)))
    is_late[session] = true
    inboxes.of(session)
  end
  local is_kept = load(group)
  for session in pairs(group.has_left or {}) do
    if not is_late[session] then
      acknowledgements.acknowledge(session, group.id)
    end
  end
  if is_kept then
    local id, count = group.id, group.terms.count
    copies.drop_shared(id, count - group.left_len, group.bytes)
    receipts.flush()
    local field = id .. '*'
    local before = call('HGET', receipts.key_of(id), field) or ''
    receipts.put(id, field, before .. pack(RECEIPT, group.terms.first, count, tonumber(at_ms)))
    remove(group)
  end
  return { 1 }
end
