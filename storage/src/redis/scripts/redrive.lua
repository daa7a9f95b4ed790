-- Redrive: dead letters that go back into an inbox.

-- Gives the receipt of a message for one recipient the form of a multi-recipient one, and adds a recipient.
local function share_receipt(id, session)
  receipts.flush()
  local name = receipts.key_of(id)
  local receipt = call('HGET', name, id) or 'M'
  if sub(receipt, 1, 1) == 'S' then
    local first = sub(receipt, 2, 37)
    call('HSET', name, id .. first, sub(receipt, 38))
    receipt = 'M' .. first
  end
  if not string.find(receipt, session, 2, true) then
    call('HSET', name, id, receipt .. session)
    receipts.count(receipts.bucket_of(id), 1)
  end
end

-- Removes the receipt of a message for a session: it waits again.
local function remove_receipt(entry, session)
  receipts.flush()
  local id = id_of(entry)
  local name = receipts.key_of(id)
  receipts.forget_transformed({ id }, session)
  if not has_flag(entry, MULTI_RECIPIENT) then
    call('HDEL', name, id)
  elseif call('HEXISTS', name, id) == 1 then
    call('HSET', name, id .. session, receipts.OPEN)
  else
    call('HDEL', name, id .. session)
  end
end

-- Whether a session has a copy of a message already, in flight or waiting.
local function has_copy(entry, session, inbox)
  local id = id_of(entry)
  if leases.find(session, inbox, { id })[1] then
    return true
  end
  -- A copy from a redrive to another session has other flags.
  local deadline_flag, candidates = band(byte(entry, 17), HAS_DEADLINE), {}
  for flags = 0, MULTI_RECIPIENT + TRACKED do
    candidates[#candidates + 1] = id .. string.char(flags + deadline_flag) .. sub(entry, 18)
  end
  return queues.has_any(session, inbox, candidates)
end

-- The entry of a letter for another recipient: it is counted in 'copies' from now on, and its sender does not follow
-- it.
local function entry_for_other(entry, to)
  local id = id_of(entry)
  if not has_flag(entry, MULTI_RECIPIENT) then
    call('HSET', key('copies'), id, 1)
  end
  share_receipt(id, to)
  return id .. string.char(MULTI_RECIPIENT + band(byte(entry, 17), HAS_DEADLINE)) .. sub(entry, 18)
end

-- Puts a letter into the inbox of a session.
local function put_letter(letter, entry, to, inbox)
  local id = id_of(entry)
  dead_letters.take(letter)
  if to ~= sub(letter, 17) then
    entry = entry_for_other(entry, to)
  end
  local stored = call('HGET', key('messages'), id)
  queues.add(to, inbox, { queues.next_score(inbox, messages.priority(stored)), entry })
  if has_flag(entry, HAS_DEADLINE) then
    call('ZADD', key('expiries'), int_text(now + messages.ttl(stored)), to .. entry)
  end
  inboxes.adjust(inbox, 1, 0, 0, bytes_of(entry))
  remove_receipt(entry, to)
  events.redriven(id, to, sub(letter, 17))
  frames.wake(to)
end

-- Redrives a letter. Returns the session and the length of its queue, or '' and why it was refused.
local function redrive(letter, recipient, capacity)
  local to = recipient == '' and sub(letter, 17) or recipient
  local inbox = inboxes.of(to)
  local entry = dead_letters.entry_of(letter, call('HGET', key('dead_letters:info'), letter))
  if not inbox then
    return '', 'gone'
  elseif has_copy(entry, to, inbox) then
    -- A second copy would be a repeat: the letter is dropped.
    copies.drop(dead_letters.take(letter))
  elseif inboxes.refusal(inbox, bytes_of(entry), capacity) then
    return '', 'full'
  else
    put_letter(letter, entry, to, inbox)
  end
  return to, inbox.waiting
end

-- redrive: puts dead letters back into inboxes.
--
-- Input   time, recipient or '' (that of each letter), capacity, ids of messages
-- Output  of each letter: id, session, length of its queue; or id, '', 'gone', 'full' or 'unknown'
-- Keys    dead_letters, dead_letters:info, dead_letters:by_age, messages (read), copies, inboxes, inbox:SESSION,
--         leases:SESSION, expiries, receipts, receipts:BUCKET
ops.redrive = function()
  read_time()
  local recipient, capacity, ids, reply = read_text(), read_number(), read_text(), {}
  for _, id in ipairs(ids_in(ids)) do
    local letters = dead_letters.letters_of(id)
    if #letters == 0 then
      reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = id, '', 'unknown'
    end
    for at = 1, #letters do
      local session, result = redrive(letters[at], recipient, capacity)
      reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = id, session, result
    end
  end
  return reply
end
