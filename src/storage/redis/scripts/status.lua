-- Where a message is, for each of its recipients.

-- When a message was accepted, in milliseconds, as text: the time in its id.
local function accepted_at(id)
  local a, b, c, d, e, f = byte(id, 1, 6)
  return int_text(((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f)
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
      reply[#reply + 1] = sessions[at]
      reply[#reply + 1] = sub(status, 1, 1)
      reply[#reply + 1] = sub(status, 2)
    else
      add_open(reply, id, sessions[at])
    end
  end
end

-- message_status: where a message is.
--
-- Input   id
-- Output  of each recipient: session, code of the status, time of the status in milliseconds
-- Keys    receipts:BUCKET, segments, segments:index, segments:settled:BUCKET, messages, dead_letters:info, group_leases,
--         inboxes, leases:SESSION (all read)
ops.message_status = function()
  local id, reply = read_text(), {}
  receipts.flush()
  segments.flush()
  local receipt = call('HGET', receipts.key_of(id), id)
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
    reply[1], reply[2], reply[3] = sub(receipt, 2, 37), sub(receipt, 38, 38), string.match(receipt, '^%d+', 39)
  end
  return reply
end
