-- Dead letters. In 'dead' by message and recipient, in 'dead:age' by the order of their deaths; what is known of each
-- is in 'dead:letters'.

local function letter_key(id, session)
  return id .. session
end

-- The bytes that a letter adds to those that are there, or takes from them: the envelope counts once.
local function letter_bytes(member)
  local id = id_of(member)
  if has(member, SHARED) and #call('ZRANGE', key('dead'), '[' .. id, '(' .. id .. 'g', 'BYLEX', 'LIMIT', 0, 1) > 0 then
    return COPY_BYTES
  end
  return COPY_BYTES + bytes_of(member)
end

-- Takes a dead letter out. Returns its member and the rest of what is known, or nil.
local function take_letter(letter)
  local known = call('HGET', key('dead:letters'), letter)
  if not known then
    return nil
  end
  call('HDEL', key('dead:letters'), letter)
  call('ZREM', key('dead'), letter)
  call('ZREM', key('dead:age'), letter)
  local member = sub(letter, 1, 16) .. sub(known, 1, 5)
  count_bytes('dead', -letter_bytes(member))
  return member
end

-- Makes a dead letter of a message that has left its inbox. 'reason' is the status of its receipt from now on.
local function bury(member, session, reason, deliveries)
  local letter = letter_key(id_of(member), session)
  receipt(member, session, reason)
  progressed(member, reason)
  local bytes = letter_bytes(member)
  if call('ZADD', key('dead'), 0, letter) == 0 then
    -- It has died for this recipient before: one of the two copies goes.
    drop_copy(member)
  else
    count_bytes('dead', bytes)
  end
  local known = sub(member, 17) .. reason .. whole(deliveries) .. ' ' .. at_ms
  call('HSET', key('dead:letters'), letter, known)
  call('ZADD', key('dead:age'), call('INCR', key('dead:deaths')), letter)
  while call('ZCARD', key('dead')) > bounds.letters or total('dead') > bounds.letters_bytes do
    local oldest = call('ZPOPMIN', key('dead:age'))[1]
    if not oldest then
      break
    end
    local dropped = take_letter(oldest)
    if dropped then
      drop_copy(dropped)
      call('INCR', key('dead:dropped'))
    end
  end
end

-- The project that a stored message came from, or ''.
local function origin_of(stored)
  local flags, at = byte(stored, 2), 35
  if band(flags, 8) == 0 then
    return ''
  end
  if band(flags, 1) ~= 0 then
    at = at + 16
  end
  if band(flags, 4) ~= 0 then
    at = at + 8
  end
  return sub(stored, at + 1, at + byte(stored, at))
end

-- The time to live of a stored message, in milliseconds.
local function ttl_of(stored)
  local at = 35
  if band(byte(stored, 2), 1) ~= 0 then
    at = at + 16
  end
  local high, low = unpack_bytes('>I4I4', stored, at)
  return high * 2 ^ 32 + low
end
