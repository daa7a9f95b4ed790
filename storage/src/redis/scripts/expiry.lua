-- Deadlines of messages that wait.
--
-- Keys  expiries (sorted set: session and entry by deadline), expired_in (sorted set: sessions that lost messages to
--       expiry, by poll_seq), poll_seq (counter of what replicas ask for: presence and expiry)

-- Deadlines that one call handles before its operations, and rounds of a sweep.
local DUE_LEN_MAX, ROUNDS_MAX = 500, 20

-- The next number of what replicas ask for.
function expiry.next_poll_seq()
  timeline.move(1)
  return int_text(call('INCR', key('poll_seq')))
end

-- Notes that an inbox has lost messages to expiry.
local function mark_expired_in(session)
  call('ZADD', key('expired_in'), expiry.next_poll_seq(), session)
end

-- Makes a dead letter of a message that waited beyond its deadline.
function expiry.dead_letter(session, inbox, entry, deliveries)
  inboxes.adjust(inbox, -1, 0, 0, -bytes_of(entry))
  dead_letters.add(entry, session, 'x', deliveries)
  mark_expired_in(session)
end

-- Adds a deadline to a list of deadlines: score and name, alternately.
function expiry.push(list, session, entry, deadline)
  list[#list + 1] = int_text(deadline)
  list[#list + 1] = session .. entry
end

-- Adds deadlines that were pushed to a list.
function expiry.add(list)
  call_in_steps('ZADD', key('expiries'), list, 2)
end

-- Removes the deadlines of these names (session and entry).
function expiry.remove(names)
  call_in_steps('ZREM', key('expiries'), names, 1)
end

-- Removes and returns the deadlines of what was taken out of the queue (entries and scores, alternately), by entry.
function expiry.take(session, taken)
  local names, deadlines = {}, {}
  for at = 1, #taken, 2 do
    if has_flag(taken[at], HAS_DEADLINE) then
      names[#names + 1] = session .. taken[at]
    end
  end
  local scores = values_of('ZMSCORE', key('expiries'), names)
  for at = 1, #scores do
    deadlines[sub(names[at], 37)] = tonumber(scores[at] or 0)
  end
  expiry.remove(names)
  return deadlines
end

-- Dead-letters messages that have waited beyond their deadline. Returns how many deadlines have passed.
function expiry.run()
  local due = call('ZRANGE', key('expiries'), '-inf', now, 'BYSCORE', 'LIMIT', 0, DUE_LEN_MAX)
  if #due == 0 then
    return 0
  end
  expiry.remove(due)
  at_ms = int_text(now)
  for at = 1, #due do
    local session, entry = sub(due[at], 1, 36), sub(due[at], 37)
    local inbox = inboxes.of(session)
    if inbox and queues.remove(session, inbox, { entry }) == 1 then
      local id, deliveries = id_of(entry), 0
      local lease = leases.find(session, inbox, { id })[1]
      if lease then
        deliveries = leases.read(id, lease).deliveries
        leases.remove(session, inbox, { id })
      end
      expiry.dead_letter(session, inbox, entry, deliveries)
    end
  end
  return #due
end

-- The milliseconds until the next deadline of a waiting message; -1 without one.
local function next_deadline()
  local first = call('ZRANGE', key('expiries'), 0, 0, 'WITHSCORES')
  return first[2] and math.max(tonumber(first[2]) - now, 0) or -1
end

-- sweep: ends what has outlived its time: messages, receipts, idempotency keys, events, questions, yaps.
--
-- Input   the poll_seq up to which the caller knows expired_in
-- Output  the poll_seq up to which it knows it now; dead letters and idempotency keys that were dropped since the last
--         sweep because there were too many; 1 if dead letters are to be reported; the milliseconds until the next
--         deadline of a waiting message, or -1; then of each inbox that has lost messages: session, messages that wait
-- Keys    expiries, receipts, receipts:BUCKET, segments:settled:BUCKET, idempotency, idempotency:until,
--         idempotency:dropped, dead_letters:dropped, dead_letters:seq (read), dead_letters:reports (read), events,
--         events:blocks, events:log, those of questions.lua and yaps.lua, expired_in (read)
ops.sweep = function()
  local known_seq = read_text()
  for _ = 1, ROUNDS_MAX do
    if expiry.run() < DUE_LEN_MAX then
      break
    end
  end
  receipts.sweep()
  idempotency.sweep()
  events.sweep()
  questions.sweep()
  yaps.sweep()
  local letters, keys = call('GETDEL', key('dead_letters:dropped')), call('GETDEL', key('idempotency:dropped'))
  local reply = {
    tonumber(known_seq),
    tonumber(letters or 0),
    tonumber(keys or 0),
    dead_letters.has_unreported() and 1 or 0,
    next_deadline(),
  }
  local lost = call('ZRANGE', key('expired_in'), '(' .. known_seq, '+inf', 'BYSCORE', 'WITHSCORES')
  for at = 1, #lost, 2 do
    local inbox = inboxes.of(lost[at])
    reply[1] = tonumber(lost[at + 1])
    if inbox then
      reply[#reply + 1] = lost[at]
      reply[#reply + 1] = inbox.waiting
    end
  end
  return reply
end
