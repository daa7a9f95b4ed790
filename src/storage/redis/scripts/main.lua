-- Runs the operations. One that fails leaves what it did, as all of Redis does, and the others go on.

-- The first write decides: a server that follows another refuses it, and with it the whole script. And whether there is
-- room is known only before anything is written: after that a script is let have more.
local refused = ACCEPTS and redis.pcall('SETNX', key('roster'), 0)
local full = type(refused) == 'table'
if full and not string.find(refused.err, 'OOM', 1, true) then
  return refused
end
if not ACCEPTS or full then
  call('DEL', key('nothing'))
end
local NEEDS_ROOM = {
  append = true, put_session = true, insert_protocol = true, keep_outcome = true, put_crossing = true, redrive = true,
  put_project = true,
}

if SESSIONS_LEN > 0 then
  load_inboxes()
end
expire(500)

local replies = {}
while cursor < #ARGV do
  local name, len = arg(), number_arg()
  local last = cursor + len
  if full and NEEDS_ROOM[name] then
    replies[#replies + 1] = '!OOM'
  else
    if not ops[name] then
      define_more()
    end
    local done, reply = pcall(ops[name], last)
    if not done then
      reply = '!' .. (type(reply) == 'table' and reply.err or tostring(reply))
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
return replies
