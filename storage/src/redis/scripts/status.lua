-- Where a message is, for each of its recipients.

-- When a message was accepted, in milliseconds, as text: the time in its id.
local function accepted_at(id)
  local a, b, c, d, e, f = byte(id, 1, 6)
  return int_text(((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f)
end

-- Adds a status of a receipt: the text from the status on.
local function add_settled(reply, session, text)
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = session, sub(text, 1, 1), string.match(text, '^%d+', 2)
  reply[#reply + 1], reply[#reply + 2] = string.match(text, '^.%d+!(.*)$') or '', ''
end

-- Adds the status of a message that waits in an inbox or is leased. `id` is that of its segment.
local function add_open(reply, id, session)
  local inbox = inboxes.of(session)
  if not inbox then
    return
  end
  local text = leases.find(session, inbox, { id })[1]
  local status, since = 'q', accepted_at(id)
  if text then
    local lease = leases.read(id, text)
    status, since = lease.state == leases.RETURNED and 'q' or 'd', int_text(lease.since)
  end
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = session, status, since
  reply[#reply + 1], reply[#reply + 2] = '', ''
end

-- The only recipient of a message without receipt that is not a dead letter; nil when there is none.
local function open_recipient(id)
  local stored = call('HGET', key('messages'), id)
  local session = stored and messages.recipient(stored)
  local is_dead = session and call('HGET', key('dead_letters:info'), dead_letters.letter(id, session))
  return not is_dead and session or nil
end

-- Adds the statuses of a multi-recipient message, of whose receipt this is the text.
local function add_recipients(reply, id, receipt)
  local sessions, names = {}, {}
  for at = 2, #receipt, 36 do
    sessions[#sessions + 1] = sub(receipt, at, at + 35)
    names[#names + 1] = id .. sessions[#sessions]
  end
  local statuses, of_groups = hash_fields(receipts.key_of(id), names), group_leases.statuses(id)
  for at = 1, #sessions do
    local status = statuses[at] or of_groups[at] or of_groups[sessions[at]] or receipts.OPEN
    if status ~= receipts.OPEN then
      add_settled(reply, sessions[at], status)
    else
      add_open(reply, id, sessions[at])
    end
  end
end

-- Adds what lenses did to a message to its statuses.
local function add_transformed(reply, id)
  local fields = {}
  for at = 1, #reply, 5 do
    fields[#fields + 1] = receipts.transformed_field(id, reply[at])
  end
  local texts = hash_fields(receipts.key_of(id), fields)
  for at = 1, #fields do
    reply[5 * at] = texts[at] or ''
  end
end

-- Recipients of which one operation returns the statuses, and bytes of the texts that one returns; unless one message
-- alone has more.
local STATUSES_MAX, TEXT_BYTES_MAX = 5000, 4 * 1024 * 1024

-- The statuses of a message for all its recipients.
local function statuses_of(id)
  local reply, asked = {}, id
  local receipt, is_transformed = unpack(hash_fields(receipts.key_of(id), { id, receipts.transformed_field(id, '') }))
  if not receipt then
    local segment, its_receipt = segments.with_message(id)
    id, receipt = segment or id, its_receipt
  end
  if not receipt then
    local session = open_recipient(id)
    if session then
      add_open(reply, id, session)
    end
  elseif sub(receipt, 1, 1) == 'M' then
    add_recipients(reply, id, receipt)
  else
    add_settled(reply, sub(receipt, 2, 37), sub(receipt, 38))
  end
  if is_transformed then
    add_transformed(reply, asked)
  end
  return reply
end

-- message_statuses: where messages are.
--
-- Input   packed ids
-- Output  of the first messages, as many as one operation looks at and at least one: an array of the session, the code of the
--         status, its time in milliseconds, the outcome or '', and what lenses did or '' for each recipient
-- Keys    receipts:BUCKET, segments, segments:index, segments:settled:BUCKET, messages, dead_letters:info, group_leases,
--         inboxes, leases:SESSION (all read)
ops.message_statuses = function()
  local ids, replies, count = ids_in(read_text()), {}, 0
  receipts.flush()
  segments.flush()
  for at = 1, #ids do
    if count >= STATUSES_MAX then
      break
    end
    replies[at] = statuses_of(ids[at])
    count = count + #replies[at] / 5
  end
  return replies
end

-- note_transformed: keeps what lenses did to messages for a recipient.
--
-- Input   session; of each message its id, and what was done to it
-- Output  nothing
-- Keys    receipts (read), receipts:BUCKET
ops.note_transformed = function(last)
  local session = read_session()
  timeline.has_changed = true
  while cursor < last do
    receipts.note_transformed(read_text(), session, read_text())
  end
  return {}
end

-- The id under which the text of a message is stored, that of its segment, and the length of what is stored there.
local function stored_under(id)
  local len = call('HSTRLEN', key('messages'), id)
  if len == 0 then
    id = segments.with_message(id) or id
    len = call('HSTRLEN', key('messages'), id)
  end
  return id, len
end

-- messages: the stored text of messages that wait, are leased or are dead letters.
--
-- Input   packed ids
-- Output  of the first messages, as many as one operation reads and at least one: the stored text of the segment that
--         contains it, or the number of the earlier part of the reply that has it; nil for a message that is not kept
-- Keys    messages, segments, segments:index, segments:settled:BUCKET, receipts:BUCKET (all read)
ops.messages = function()
  local ids, reply, positions, bytes = ids_in(read_text()), {}, {}, 0
  messages.read_wanted()
  copies.flush()
  receipts.flush()
  segments.flush()
  for at = 1, #ids do
    local id, len = stored_under(ids[at])
    if bytes >= TEXT_BYTES_MAX then
      break
    elseif len == 0 then
      reply[at] = false
    elseif positions[id] then
      reply[at] = positions[id]
    else
      local count = math.max(1, #segments.ids_of(id) / 16)
      messages.want(id .. string.char((count - 1) * 16) .. pack('>I4', len), reply)
      positions[id], bytes = at, bytes + len
    end
  end
  return reply
end
