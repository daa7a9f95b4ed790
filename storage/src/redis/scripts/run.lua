-- Runs the operations of a call. One that fails leaves what it has done, as all of Redis does; the others go on.

-- Operations that store something new. A server without memory refuses them.
local NEEDS_MEMORY = {
  append = true, put_session = true, reserve_key = true, put_cross_project_target = true, redrive = true,
  put_project = true, ask = true, update_question = true, put_draft = true, hold_yap = true,
  put_record = true,
}

-- Sets the counts of the changed inboxes to what their queues and leases hold: an operation that failed half way may
-- have counted what it did not do. What cannot be read counts as empty.
local function recount()
  inboxes.each_changed(function(session, inbox)
    inbox.waiting, inbox.in_flight, inbox.in_flight_bytes, inbox.bytes = 0, 0, 0, 0
    local is_read, entries = pcall(queues.all, session, inbox)
    for at = 1, is_read and #entries or 0, 2 do
      inbox.waiting = inbox.waiting + count_of(entries[at])
      inbox.bytes = inbox.bytes + bytes_of(entries[at])
    end
    local are_read, list = pcall(leases.in_flight, session)
    for at = 1, are_read and #list or 0 do
      inbox.in_flight = inbox.in_flight + count_of(list[at].entry)
      inbox.in_flight_bytes = inbox.in_flight_bytes + bytes_of(list[at].entry)
    end
    inbox.bytes = inbox.bytes + inbox.in_flight_bytes
  end)
end

-- Carries out one operation, whose arguments end at `last`. Returns its reply.
local function run_operation(name, last)
  local done, reply = pcall(ops[name], last)
  if not done then
    reply = '!' .. (type(reply) == 'table' and reply.err or tostring(reply))
    inboxes.mark_inconsistent()
    recount()
  end
  return reply
end

-- Writes and publishes what the operations have gathered. Returns the progress of tracked messages.
local function flush()
  copies.flush()
  group_leases.flush()
  inboxes.flush()
  receipts.flush()
  segments.flush()
  events.flush()
  pushes.flush()
  return frames.flush()
end

local function run(arguments, is_out_of_memory)
  ARGV = arguments
  for at = 1, #beginnings do
    beginnings[at]()
  end
  if not timeline.judge(ARGV[12], tonumber(ARGV[13])) then
    ARGV = nil
    return { timeline.witness() }
  end
  if SESSIONS_LEN > 0 then
    inboxes.load()
  end
  expiry.run()
  local replies = {}
  while cursor < #ARGV do
    local name, len = read_text(), read_number()
    local last = cursor + len
    reply_number = #replies + 1
    if is_out_of_memory and NEEDS_MEMORY[name] then
      replies[reply_number] = '!OOM'
    else
      replies[reply_number] = run_operation(name, last)
    end
    cursor = last
  end
  local deferred = messages.read_or_defer()
  local progress = flush()
  replies[#replies + 1] = deferred
  replies[#replies + 1] = progress
  replies[#replies + 1] = dead_letters.counts()
  replies[#replies + 1] = timeline.witness()
  -- The arguments are garbage from here on.
  ARGV = nil
  return replies
end

-- The first function is refused at once by a server without memory, before anything is done. The second may exceed
-- `maxmemory` and refuses what needs memory itself: it leases, acknowledges and releases.
redis.register_function('LIBRARY', function(_, arguments)
  return run(arguments, false)
end)
redis.register_function({
  function_name = 'LIBRARY_full',
  callback = function(_, arguments)
    return run(arguments, true)
  end,
  flags = { 'allow-oom' },
})
