-- Idempotency keys: the name of one send, and its result or a reservation, for a while.
--
-- A value is the time until which it is kept, a space, and what takes the key: the result (send_result.rs), or a
-- reservation for a message to another project: NO_MESSAGE in the place of the id, '+' when more than one send has
-- found the reservation and '-' otherwise, the project.
--
-- Keys  idempotency (hash: key -> value), idempotency:until (sorted set: keys by the end of their time),
--       idempotency:dropped (keys dropped since the last sweep)

-- The nil id, which no message has; the bytes that a key costs beside its text, which is stored twice, and its value.
local NO_MESSAGE, KEY_BYTES = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0', 128
-- Keys that one sweep frees.
local SWEEP_LEN_MAX = 1000

-- What takes these keys, by key; nil for a free one.
function idempotency.read(names)
  local found, taken = hash_fields(key('idempotency'), names), {}
  for at = 1, #names do
    local until_ms, by = string.match(found[at] or '', '^(%d+) (.*)$')
    if until_ms and tonumber(until_ms) > now then
      taken[names[at]] = by
    end
  end
  return taken
end

local function read_one(name)
  return idempotency.read({ name })[name]
end

local function is_reservation(by)
  return by and sub(by, 1, 16) == NO_MESSAGE
end

-- Deletes a key and leaves its time to the caller.
local function delete(name)
  local len = call('HSTRLEN', key('idempotency'), name)
  if len > 0 then
    call('HDEL', key('idempotency'), name)
    usage.count('idempotency', -KEY_BYTES - 2 * #name - len)
  end
end

-- Has something take a key until then. When there are too many keys, or too many bytes, the oldest are dropped.
local function put(name, until_ms, by)
  local value = until_ms .. ' ' .. by
  timeline.has_changed = true
  delete(name)
  call('HSET', key('idempotency'), name, value)
  call('ZADD', key('idempotency:until'), until_ms, name)
  usage.count('idempotency', KEY_BYTES + 2 * #name + #value)
  while call('ZCARD', key('idempotency:until')) > bounds.keys
    or usage.of('idempotency') > bounds.idempotency_bytes
  do
    local oldest = call('ZPOPMIN', key('idempotency:until'))[1]
    if not oldest then
      break
    end
    delete(oldest)
    call('INCR', key('idempotency:dropped'))
  end
end

-- Has something take a key for the idempotency window from now on.
local function take(name, by)
  put(name, int_text(now + bounds.window_ms), by)
end
idempotency.take = take

-- Has something else take a key that is taken, until the same time.
local function replace(name, by)
  local until_ms = string.match(call('HGET', key('idempotency'), name), '^%d+')
  put(name, until_ms, by)
end

-- Frees keys whose time is over.
function idempotency.sweep()
  local free = call('ZRANGE', key('idempotency:until'), '-inf', now, 'BYSCORE', 'LIMIT', 0, SWEEP_LEN_MAX)
  for at = 1, #free do
    delete(free[at])
  end
  call_in_steps('ZREM', key('idempotency:until'), free, 1)
end

-- update_send_result: replaces the result of a send, whose delivery is known now. A free key stays free.
--
-- Input   key, result
-- Output  nothing
-- Keys    idempotency, idempotency:until
ops.update_send_result = function()
  local name, result = read_text(), read_text()
  if read_one(name) then
    replace(name, result)
  end
  return {}
end

-- reserve_key: reserves a key for a message to another project.
--
-- Input   key, project
-- Output  'first'; 'again' when it was reserved for the same project, 'elsewhere' for another; or the result of the send
-- Keys    idempotency, idempotency:until, idempotency:dropped
ops.reserve_key = function()
  local name, target = read_text(), read_text()
  local by = read_one(name)
  local is_reserved = is_reservation(by)
  if by and not is_reserved then
    return { by }
  elseif is_reserved and sub(by, 18) ~= target then
    return { 'elsewhere' }
  end
  take(name, NO_MESSAGE .. (is_reserved and '+' or '-') .. target)
  return { is_reserved and 'again' or 'first' }
end

-- complete_reservation: replaces a reservation by the result of the send. A key without reservation stays as it is.
--
-- Input   key, result
-- Output  nothing
-- Keys    idempotency, idempotency:until
ops.complete_reservation = function()
  local name, result = read_text(), read_text()
  if is_reservation(read_one(name)) then
    replace(name, result)
  end
  return {}
end

-- cancel_reservation: frees a reserved key that one send alone has found.
--
-- Input   key
-- Output  nothing
-- Keys    idempotency, idempotency:until
ops.cancel_reservation = function()
  local name = read_text()
  local by = read_one(name)
  if is_reservation(by) and sub(by, 17, 17) == '-' then
    delete(name)
    call('ZREM', key('idempotency:until'), name)
  end
  return {}
end
