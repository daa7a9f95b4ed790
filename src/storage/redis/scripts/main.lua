-- Runs the operations. One that fails leaves what it did, as all of Redis does, and the others go on.

local NEEDS_ROOM = {
  append = true, put_session = true, insert_protocol = true, keep_outcome = true, put_crossing = true, redrive = true,
  put_project = true,
}

local function run(arguments, is_full)
  ARGV = arguments
  for at = 1, #beginnings do
    beginnings[at]()
  end
  if SESSIONS_LEN > 0 then
    load_inboxes()
  end
  expire(500)
  local replies = {}
  while cursor < #ARGV do
    local name, len = arg(), number_arg()
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
  if #wanted > 0 then
    read_wanted()
  end
  flush_gone()
  flush_inboxes()
  flush_receipts()
  flush_settled()
  flush_parcels()
  flush_frames()
  replies[#replies + 1] = progress
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
