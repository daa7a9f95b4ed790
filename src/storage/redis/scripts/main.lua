-- Runs the operations. One that fails leaves what it did, as all of Redis does, and the others go on.

local NEEDS_ROOM = {
  append = true, put_session = true, insert_protocol = true, reserve_key = true, put_crossing = true, redrive = true,
  put_project = true,
}

-- Makes the counts what the queues say. An operation that failed half way may have counted what it did not do. Of a
-- queue that cannot be read nothing can be handed out.
local function recount()
  for session, inbox in pairs(inboxes) do
    if inbox and inbox.changed then
      inbox.waiting, inbox.leased, inbox.bytes, inbox.size = 0, 0, 0, 0
      local is_read, members = pcall(queued, session, inbox)
      for at = 1, is_read and #members or 0, 2 do
        inbox.waiting = inbox.waiting + count_of(members[at])
        inbox.size = inbox.size + bytes_of(members[at])
      end
      local are_read, entries = pcall(leased_entries, session)
      for at = 1, are_read and #entries or 0 do
        inbox.leased = inbox.leased + count_of(entries[at].member)
        inbox.bytes = inbox.bytes + bytes_of(entries[at].member)
      end
      inbox.size = inbox.size + inbox.bytes
    end
  end
end

local function run(arguments, is_full)
  ARGV = arguments
  for at = 1, #beginnings do
    beginnings[at]()
  end
  if not timeline.judge(ARGV[11], tonumber(ARGV[12])) then
    ARGV = nil
    return { timeline.bear_witness() }
  end
  if SESSIONS_LEN > 0 then
    load_inboxes()
  end
  expire(500)
  local replies = {}
  while cursor < #ARGV do
    local name, len = arg(), number_arg()
    reply_number = #replies + 1
    local last = cursor + len
    if is_full and NEEDS_ROOM[name] then
      replies[#replies + 1] = '!OOM'
    else
      local done, reply = pcall(ops[name], last)
      if not done then
        reply = '!' .. (type(reply) == 'table' and reply.err or tostring(reply))
        is_spoilt = true
        recount()
      end
      replies[#replies + 1] = reply
    end
    cursor = last
  end
  local left = read_or_leave_wanted()
  flush_gone()
  flush_posts()
  flush_inboxes()
  flush_receipts()
  flush_settled()
  flush_parcels()
  flush_frames()
  replies[#replies + 1] = left
  replies[#replies + 1] = progress
  replies[#replies + 1] = timeline.bear_witness()
  -- What is done with is not to be kept until the next call.
  ARGV = nil
  return replies
end

-- A server without room for more refuses the first at once, before anything is done; the second accepts nothing, and is
-- let have what it takes to hand out and to let go.
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
