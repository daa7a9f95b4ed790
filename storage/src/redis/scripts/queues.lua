-- What waits in an inbox, by score: in the record, or in 'inbox:SESSION' (inboxes.lua).
--
-- Keys  inbox:SESSION

local INLINE_LEN_MAX, queue_key = inboxes.INLINE_LEN_MAX, inboxes.queue_key
-- Entries that one message is looked for among, and those that are read at once.
local FOUND_MAX, FOUND_STEP = 4096, 128

-- The distance of two priorities. The place of a message among those of equal priority is below half of it.
local PRIORITY_STEP = 2 ^ 50

-- The score of `count` messages that come next: by priority, then by place. An odd score was delivered before.
function queues.next_score(inbox, priority, count)
  local score = (3 - priority) * PRIORITY_STEP + inbox.next_place * 2
  inbox.next_place = inbox.next_place + (count or 1)
  return score
end

-- The place of a score in the order of arrival: the score without its priority.
function queues.place_of(score)
  return score % PRIORITY_STEP
end

-- Whether the record has room for one more waiting entry.
function queues.has_inline_room(inbox)
  return not inbox.is_outside and #inbox.queue < 2 * INLINE_LEN_MAX
end

-- Inserts an entry by its score in the record, which has room for it.
local function insert(queue, score, entry)
  local at = #queue + 1
  while at > 1 and queue[at - 2] > score do
    queue[at], queue[at + 1] = queue[at - 2], queue[at - 1]
    at = at - 2
  end
  queue[at], queue[at + 1] = score, entry
end
queues.insert = insert

-- Adds to the queue: scores and entries, alternately.
function queues.add(session, inbox, list)
  local queue = inbox.queue
  if not inbox.is_outside and #queue + #list > 2 * INLINE_LEN_MAX then
    inboxes.move_outside(session, inbox)
  end
  if inbox.is_outside then
    return call_in_steps('ZADD', queue_key(session), list, 2)
  end
  for at = 1, #list, 2 do
    insert(queue, tonumber(list[at]), list[at + 1])
  end
  inbox.is_changed = true
end

-- Takes out some from the front: entries and scores, alternately. At most 32 of an inbox outside: the caller does
-- not know how many messages they are, and puts back what is too much.
function queues.take_first(session, inbox, most)
  if inbox.is_outside then
    return call('ZPOPMIN', queue_key(session), math.min(most, 32))
  end
  local queue, rest, taken = inbox.queue, {}, {}
  for at = 1, #queue, 2 do
    if at < 2 * most then
      taken[at], taken[at + 1] = queue[at + 1], queue[at]
    else
      rest[#rest + 1] = queue[at]
      rest[#rest + 1] = queue[at + 1]
    end
  end
  inbox.queue, inbox.is_changed = rest, true
  return taken
end

-- The first that wait, at most so many: entries and scores, alternately.
function queues.first(session, inbox, most)
  if inbox.is_outside then
    return call('ZRANGE', queue_key(session), 0, most - 1, 'WITHSCORES')
  end
  local list, queue = {}, inbox.queue
  for at = 1, math.min(#queue, 2 * most), 2 do
    list[at], list[at + 1] = queue[at + 1], queue[at]
  end
  return list
end

-- Takes out these entries. Returns how many of them waited.
function queues.remove(session, inbox, entries)
  if inbox.is_outside then
    local count = 0
    for first = 1, #entries, VALUES_MAX do
      local last = math.min(first + VALUES_MAX - 1, #entries)
      count = count + call('ZREM', queue_key(session), unpack(entries, first, last))
    end
    return count
  end
  if #entries == 0 then
    return 0
  end
  local removed, queue, rest = {}, inbox.queue, {}
  for at = 1, #entries do
    removed[entries[at]] = true
  end
  for at = 1, #queue, 2 do
    if not removed[queue[at + 1]] then
      rest[#rest + 1] = queue[at]
      rest[#rest + 1] = queue[at + 1]
    end
  end
  inbox.queue, inbox.is_changed = rest, true
  return (#queue - #rest) / 2
end

-- The waiting entry of one message; nil without one, and behind the first FOUND_MAX.
function queues.find(session, inbox, id)
  if inbox.is_outside then
    for first = 0, FOUND_MAX - FOUND_STEP, FOUND_STEP do
      local entries = call('ZRANGE', queue_key(session), first, first + FOUND_STEP - 1)
      for at = 1, #entries do
        if id_of(entries[at]) == id and count_of(entries[at]) == 1 then
          return entries[at]
        end
      end
      if #entries < FOUND_STEP then
        break
      end
    end
    return nil
  end
  local queue = inbox.queue
  for at = 2, #queue, 2 do
    if id_of(queue[at]) == id and count_of(queue[at]) == 1 then
      return queue[at]
    end
  end
end

-- All that waits: entries and scores, alternately.
function queues.all(session, inbox)
  if inbox.is_outside then
    return call('ZRANGE', queue_key(session), 0, -1, 'WITHSCORES')
  end
  local list, queue = {}, inbox.queue
  for at = 1, #queue, 2 do
    list[at], list[at + 1] = queue[at + 1], queue[at]
  end
  return list
end

-- Whether one of these entries waits.
function queues.has_any(session, inbox, entries)
  if inbox.is_outside then
    local scores = call('ZMSCORE', queue_key(session), unpack(entries))
    for at = 1, #entries do
      if scores[at] then
        return true
      end
    end
  end
  local wanted, queue = {}, inbox.queue
  for at = 1, #entries do
    wanted[entries[at]] = true
  end
  for at = 2, #queue, 2 do
    if wanted[queue[at]] then
      return true
    end
  end
  return false
end
