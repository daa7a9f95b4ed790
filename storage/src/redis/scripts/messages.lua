-- Stored messages: how their text is taken apart, and how they come into replies.
--
-- 'messages' holds, under the id of a segment (that of its first message), for each of its messages: bytes of what is
-- stored (4), bytes of its envelope (4), what is stored. A single message is a segment of one. Lua looks only at the
-- beginning of what is stored of a message: format (1 byte), flags (1), id (16), ..., see Message::write_stored.
--
-- Keys  messages (read)

-- Where what is stored of the first message begins, less one.
local HEAD_LEN = 8
local FLAGS_AT = HEAD_LEN + 2
-- Bits of the flags: has one recipient, has a time to live, comes from another project. The two highest are the
-- priority.
local HAS_RECIPIENT, HAS_TTL, HAS_ORIGIN = 1, 4, 8
-- Where the id of the recipient is, if it has one; what follows it begins here otherwise.
local RECIPIENT_AT, RECIPIENT_LEN, TTL_LEN = HEAD_LEN + 35, 16, 8

function messages.priority(stored)
  return math.floor(byte(stored, FLAGS_AT) / 64)
end

-- The only recipient of a message; nil for a message to many.
function messages.recipient(stored)
  if band(byte(stored, FLAGS_AT), HAS_RECIPIENT) ~= 0 then
    return uuid_text(sub(stored, RECIPIENT_AT, RECIPIENT_AT + RECIPIENT_LEN - 1))
  end
end

local function after_recipient(stored)
  local has_recipient = band(byte(stored, FLAGS_AT), HAS_RECIPIENT) ~= 0
  return has_recipient and RECIPIENT_AT + RECIPIENT_LEN or RECIPIENT_AT
end

-- The time to live of a message that has one, in milliseconds.
function messages.ttl(stored)
  local high, low = unpack_bytes('>I4I4', stored, after_recipient(stored))
  return high * 2 ^ 32 + low
end

-- The project that a message came from, or ''.
function messages.origin(stored)
  local flags, at = byte(stored, FLAGS_AT), after_recipient(stored)
  if band(flags, HAS_ORIGIN) == 0 then
    return ''
  end
  if band(flags, HAS_TTL) ~= 0 then
    at = at + TTL_LEN
  end
  return sub(stored, at + 1, at + byte(stored, at))
end

-- The messages of a segment: id and entry of each, and the segment of one that it is by itself.
function messages.parts(stored)
  local parts, at = {}, 1
  while at <= #stored do
    local len, _, from = unpack_bytes('>I4I4', stored, at)
    local id = sub(stored, from + 2, from + 17)
    local entry = id .. '\0' .. sub(stored, at + 4, at + 7)
    parts[#parts + 1] = { id = id, entry = entry, stored = sub(stored, at, from + len - 1) }
    at = from + len
  end
  return parts
end

-- Messages of replies, read with one command when all operations are done. Where they are many bytes, the caller reads
-- them itself (HMGET): Redis copies and hashes to its last byte what comes through Lua. Draining a queue got 8 %
-- faster.
local wanted, wanted_by, wanted_bytes
local WANTED_BYTES_MAX = 16 * 1024

each_call(function()
  wanted, wanted_by, wanted_bytes = {}, {}, 0
end)

-- Adds a message to a reply: false until it is read.
function messages.want(entry, reply)
  wanted[#wanted + 1] = id_of(entry)
  reply[#reply + 1] = false
  wanted_by[#wanted_by + 1] = { reply, #reply, entry, reply_number }
  wanted_bytes = wanted_bytes + bytes_of(entry)
end

-- Reads what is wanted so far. Called before something of it may be deleted or split.
function messages.read_wanted()
  if #wanted == 0 then
    return
  end
  local stored = hash_fields(key('messages'), wanted)
  for at = 1, #wanted do
    local reply, position = wanted_by[at][1], wanted_by[at][2]
    reply[position] = stored[at]
  end
  wanted, wanted_by, wanted_bytes = {}, {}, 0
end

-- Reads what is wanted, or returns what the caller is to read: number of the reply, position in it, entry.
function messages.read_or_defer()
  local deferred = {}
  if wanted_bytes <= WANTED_BYTES_MAX then
    messages.read_wanted()
    return deferred
  end
  for at = 1, #wanted_by do
    local _, position, entry, number = unpack(wanted_by[at])
    deferred[3 * at - 2], deferred[3 * at - 1], deferred[3 * at] = number, position, sub(entry, 1, 21)
  end
  return deferred
end
