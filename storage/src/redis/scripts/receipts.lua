-- Receipts: what has become of messages. A message that waits or is leased has none: its inbox says where it is.
--
-- Receipts lie in hashes by the time in the id of the message (buckets of 16 s), which are deleted whole. Fields:
--   id           'S', recipient, status, time: a message or segment for one recipient; after a space the ids of the
--                messages of a segment of several; or after '!' the outcome: the code of its kind, and the note
--   id           'M', all recipients: a multi-recipient message
--   id recipient status, time of one recipient of it, and after '!' the outcome; OPEN where its inbox says where the
--                message is
--   id '#' session  what lenses did to it for this recipient at the last delivery; then there is id '#' as well
--   id '*'       group leases that were acknowledged as one (group_leases.lua): position of the first recipient, number
--                of recipients, time, for each of them
--
-- Keys  receipts (hash: bucket -> number of receipts; len: their sum; first: the oldest bucket), receipts:BUCKET,
--       segments:settled:BUCKET

receipts.KEPT_FOR_MS, receipts.OPEN = 24 * 3600 * 1000, '-'
local KEPT_FOR_MS = receipts.KEPT_FOR_MS
local BUCKET_MS = 16384

-- By bucket: fields and values to write, alternately; how many receipts are new.
local pending, added
-- The bucket of a time in an id: many ids of a batch have the same.
local buckets

each_call(function()
  pending, added, buckets = {}, {}, {}
end)

local function bucket_of(id)
  local moment = sub(id, 1, 6)
  local bucket = buckets[moment]
  if not bucket then
    local a, b, c, d, e, f = byte(moment, 1, 6)
    bucket = int_text(math.floor((((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) / BUCKET_MS))
    buckets[moment] = bucket
  end
  return bucket
end
receipts.bucket_of = bucket_of

-- The key of the receipts of a message.
function receipts.key_of(id)
  return key('receipts:') .. bucket_of(id)
end

-- Writes a field of a receipt at the end of the call. Returns the bucket.
local function put(id, field, value)
  local bucket = bucket_of(id)
  local list = pending[bucket]
  if not list then
    list = {}
    pending[bucket] = list
  end
  list[#list + 1] = field
  list[#list + 1] = value
  return bucket
end
receipts.put = put

-- Counts the receipts that an accepted message will have.
function receipts.count(bucket, number)
  added[bucket] = (added[bucket] or 0) + number
end

-- Writes what has become of a message, or of a segment with these ids, for a recipient.
local function settle_id(id, flags, session, status, ids)
  if flags % 2 == MULTI_RECIPIENT then
    return put(id, id .. session, status .. at_ms)
  end
  return put(id, id, 'S' .. session .. status .. at_ms .. (ids and ' ' .. ids or ''))
end
receipts.settle_id = settle_id

function receipts.settle(entry, session, status)
  settle_id(id_of(entry), byte(entry, 17), session, status)
end

-- Writes what has become of a message for a recipient, and the outcome. `len` is the room of the outcome, in receipts.
function receipts.conclude(entry, session, status, outcome, len)
  local id = id_of(entry)
  local value = status .. at_ms .. '!' .. outcome
  if has_flag(entry, MULTI_RECIPIENT) then
    put(id, id .. session, value)
  else
    put(id, id, 'S' .. session .. value)
  end
  local bucket = bucket_of(id)
  if added[bucket] or receipts.is_kept(bucket) then
    receipts.count(bucket, len)
  end
end

local function set_first(bucket)
  call('HSET', key('receipts'), 'first', int_text(bucket))
end

-- Deletes whole buckets, the oldest first: those beyond KEPT_FOR_MS, and as many as exceed the bound on their number.
-- The newest bucket stays.
function receipts.delete_oldest(len)
  local all, numbers, counts = call('HGETALL', key('receipts')), {}, {}
  for at = 1, #all, 2 do
    local bucket = tonumber(all[at])
    if bucket then
      numbers[#numbers + 1] = bucket
      counts[bucket] = tonumber(all[at + 1])
    end
  end
  table.sort(numbers)
  local oldest = math.floor((now - KEPT_FOR_MS) / BUCKET_MS)
  for at = 1, #numbers - 1 do
    local bucket = numbers[at]
    if bucket >= oldest and len <= bounds.receipts then
      return set_first(bucket)
    end
    len = len - counts[bucket]
    call('UNLINK', key('receipts:') .. int_text(bucket), key('segments:settled:') .. int_text(bucket))
    call('HDEL', key('receipts'), int_text(bucket))
    call('HINCRBY', key('receipts'), 'len', -counts[bucket])
  end
  set_first(numbers[#numbers] or oldest)
end

-- Deletes what is older than receipts are kept.
function receipts.sweep()
  local first, len = unpack(call('HMGET', key('receipts'), 'first', 'len'))
  if len and (not first or tonumber(first) * BUCKET_MS < now - KEPT_FOR_MS) then
    receipts.delete_oldest(tonumber(len))
  end
end

-- Whether a bucket is kept. A receipt in a deleted bucket would never be deleted again.
local function is_kept(bucket)
  return call('HEXISTS', key('receipts'), bucket) == 1
end
receipts.is_kept = is_kept

-- The field that says what lenses did to a message for a recipient; with '' the one that says that there may be such.
function receipts.transformed_field(id, session)
  return id .. '#' .. session
end
local transformed_field = receipts.transformed_field

-- Bytes of what lenses did that take the room of one receipt.
local BYTES_PER_RECEIPT = 64

-- Keeps what lenses did to a message for a recipient, unless its receipts are forgotten.
function receipts.note_transformed(id, session, text)
  local bucket = bucket_of(id)
  if not added[bucket] and not receipts.is_kept(bucket) then
    return
  end
  local is_new = call('HSET', receipts.key_of(id), transformed_field(id, session), text) == 1
  if is_new then
    call('HSET', receipts.key_of(id), transformed_field(id, ''), '')
    receipts.count(bucket, 1 + math.floor(#text / BYTES_PER_RECEIPT))
  end
end

-- Forgets what lenses did to messages for a recipient.
function receipts.forget_transformed(ids, session)
  for at = 1, #ids do
    call('HDEL', receipts.key_of(ids[at]), transformed_field(ids[at], session))
  end
end

-- Has a key of a bucket expire with its receipts.
function receipts.expire_with_bucket(name)
  call('EXPIRE', name, KEPT_FOR_MS / 1000 + 3600)
end

function receipts.flush()
  for bucket, list in pairs(pending) do
    if added[bucket] or is_kept(bucket) then
      call_in_steps('HSET', key('receipts:') .. bucket, list, 2)
    end
  end
  pending = {}
  for bucket, number in pairs(added) do
    receipts.expire_with_bucket(key('receipts:') .. bucket)
    call('HINCRBY', key('receipts'), bucket, number)
    local len = call('HINCRBY', key('receipts'), 'len', number)
    if len > bounds.receipts then
      receipts.delete_oldest(len)
    end
  end
  added = {}
end
