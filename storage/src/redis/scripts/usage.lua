-- Bytes that the project keeps, and the copies of messages that are dropped.
--
-- 'messages' counts the envelope of each message once and COPY_BYTES for each recipient; 'dead_letters' the part of
-- these that are dead letters; 'sessions' the records of sessions; 'idempotency' the keys with their results. The
-- totals are a field of 'inboxes', so that they are read and written by the same commands as the inboxes.
--
-- Keys  inboxes (field totals), copies, messages

usage.COPY_BYTES, usage.FIELD = contract.COPY_BYTES, 'totals'
local COPY_BYTES = usage.COPY_BYTES
local TOTALS = '>dddd'

-- The totals, once they are read.
local totals

each_call(function()
  totals = false
end)

-- Sets the totals to what is stored; all are 0 where `text` is nil or false.
local function read(text)
  totals = { messages = 0, dead_letters = 0, sessions = 0, idempotency = 0, is_changed = false }
  if text then
    totals.messages, totals.dead_letters, totals.sessions, totals.idempotency = unpack_bytes(TOTALS, text)
  end
end
usage.read = read

-- Sets the totals unless they are known.
function usage.read_once(text)
  if not totals then
    read(text)
  end
end

local function known()
  if not totals then
    read(call('HGET', key('inboxes'), usage.FIELD))
  end
  return totals
end

-- A total, by its name.
function usage.of(name)
  return (totals or known())[name]
end

local function count(name, bytes)
  local all = totals or known()
  all[name], all.is_changed = all[name] + bytes, true
end
usage.count = count

-- Whether the project may keep so many bytes more in inboxes.
function usage.has_room(bytes)
  local all = totals or known()
  return all.messages + bytes <= bounds.waiting_bytes + all.dead_letters
end

-- The totals to write; nil when they are unchanged.
function usage.changed()
  if totals and totals.is_changed then
    totals.is_changed = false
    return pack(TOTALS, totals.messages, totals.dead_letters, totals.sessions, totals.idempotency)
  end
end

-- Ids of messages to delete; by id, how many copies of a multi-recipient message to drop, and its bytes.
local deleted, dropped

each_call(function()
  deleted, dropped = {}, {}
end)

-- Drops copies of a multi-recipient message of so many bytes.
local function drop_shared(id, number, bytes)
  local drop = dropped[id]
  if drop then
    drop.count = drop.count + number
  else
    dropped[id] = { count = number, bytes = bytes }
  end
  count('messages', -number * COPY_BYTES)
end
copies.drop_shared = drop_shared

-- Drops the copy of one recipient. `bytes` are those of all envelopes of the entry.
local function drop_of(id, flags, bytes)
  if flags % 2 == MULTI_RECIPIENT then
    drop_shared(id, 1, bytes)
  else
    deleted[#deleted + 1] = id
    count('messages', -bytes - (math.floor(flags / 16) + 1) * COPY_BYTES)
  end
end
copies.drop_of = drop_of

function copies.drop(entry)
  drop_of(id_of(entry), byte(entry, 17), bytes_of(entry))
end

function copies.flush()
  local without_copies = {}
  for id, drop in pairs(dropped) do
    if call('HINCRBY', key('copies'), id, -drop.count) <= 0 then
      count('messages', -drop.bytes)
      without_copies[#without_copies + 1] = id
      deleted[#deleted + 1] = id
    end
  end
  call_in_steps('HDEL', key('copies'), without_copies, 1)
  call_in_steps('HDEL', key('messages'), deleted, 1)
  deleted, dropped = {}, {}
end

-- usage: the bytes that the project keeps.
--
-- Input   nothing
-- Output  bytes of messages, of dead letters, of the records of sessions, of idempotency keys with their results, of
--         questions
-- Keys    inboxes (field totals), copies, messages, questions:bytes (read)
ops.usage = function()
  -- A message that an earlier operation of this call hands out may be deleted by copies.flush: it is read first.
  messages.read_wanted()
  copies.flush()
  return { usage.of('messages'), usage.of('dead_letters'), usage.of('sessions'), usage.of('idempotency'), questions.bytes() }
end
