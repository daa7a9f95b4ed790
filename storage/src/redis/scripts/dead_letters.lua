-- Dead letters: messages that were given up for one recipient. A letter is the id of the message and the recipient.
--
-- Keys  dead_letters (sorted set: letters by their text), dead_letters:by_age (sorted set: letters by the order in which
--       they came), dead_letters:info (hash: letter -> flags and bytes of the entry, reason, deliveries, time),
--       dead_letters:names (hash: letter -> name that the recipient had), dead_letters:seq (counter for that order), dead_letters:dropped (letters dropped since the last sweep),
--       dead_letters:reports (hash: number of the last letter that is reported to its sender, of the last that is being
--       reported, and since when)

local COPY_BYTES = usage.COPY_BYTES
-- What one report names.
local REPORT_LEN_MAX, REPORT_BYTES_MAX = contract.REPORT_LEN_MAX, contract.REPORT_BYTES_MAX

-- How many messages the call has given up, by reason.
local counts

each_call(function()
  counts = {}
end)

-- The counts for the reply of the call: reason and number, alternately.
function dead_letters.counts()
  local list = {}
  for reason, number in pairs(counts) do
    list[#list + 1] = reason
    list[#list + 1] = number
  end
  return list
end

-- The letter of a message for a session.
function dead_letters.letter(id, session)
  return id .. session
end

-- The letters of a message. A letter is longer than the id by the text of a session id: hexadecimal digits and hyphens.
local function letters_of(id, ...)
  return call('ZRANGE', key('dead_letters'), '[' .. id, '(' .. id .. 'g', 'BYLEX', ...)
end
dead_letters.letters_of = letters_of

-- The bytes that a letter adds to the dead letters that are kept, or takes from them: an envelope counts once.
local function bytes_of_letter(entry)
  if has_flag(entry, MULTI_RECIPIENT) and #letters_of(id_of(entry), 'LIMIT', 0, 1) > 0 then
    return COPY_BYTES
  end
  return COPY_BYTES + bytes_of(entry)
end

-- The entry that a letter was in its inbox.
local function entry_of(letter, info)
  return sub(letter, 1, 16) .. sub(info, 1, 5)
end
dead_letters.entry_of = entry_of

-- Removes a letter. Returns its entry, or nil when it is unknown.
local function take(letter)
  local info = call('HGET', key('dead_letters:info'), letter)
  if not info then
    return nil
  end
  call('HDEL', key('dead_letters:info'), letter)
  call('HDEL', key('dead_letters:names'), letter)
  call('ZREM', key('dead_letters'), letter)
  call('ZREM', key('dead_letters:by_age'), letter)
  local entry = entry_of(letter, info)
  usage.count('dead_letters', -bytes_of_letter(entry))
  return entry
end
dead_letters.take = take

-- Drops the oldest letters while there are too many, or too many bytes.
local function drop_excess()
  while call('ZCARD', key('dead_letters')) > bounds.dead_letters
    or usage.of('dead_letters') > bounds.dead_letters_bytes
  do
    local oldest = call('ZPOPMIN', key('dead_letters:by_age'))[1]
    if not oldest then
      break
    end
    local entry = take(oldest)
    if entry then
      copies.drop(entry)
      call('INCR', key('dead_letters:dropped'))
    end
  end
end

-- Makes a dead letter of a message that has left its inbox. The code of the reason is the status of its receipt.
function dead_letters.add(entry, session, reason, deliveries)
  local letter = dead_letters.letter(id_of(entry), session)
  counts[reason] = (counts[reason] or 0) + 1
  receipts.settle(entry, session, reason)
  frames.report_progress(entry, reason)
  events.dead_lettered(id_of(entry), session, reason, deliveries)
  local bytes = bytes_of_letter(entry)
  if call('ZADD', key('dead_letters'), 0, letter) == 0 then
    -- It is a dead letter of this recipient already, with a copy of its own.
    copies.drop(entry)
  else
    usage.count('dead_letters', bytes)
  end
  local info = sub(entry, 17) .. reason .. int_text(deliveries) .. ' ' .. at_ms
  call('HSET', key('dead_letters:info'), letter, info)
  local name = call('HGET', key('sessions:names'), session)
  if name then
    call('HSET', key('dead_letters:names'), letter, name)
  end
  local number = call('INCR', key('dead_letters:seq'))
  call('ZADD', key('dead_letters:by_age'), number, letter)
  -- What an earlier version has given up is not reported.
  call('HSETNX', key('dead_letters:reports'), 'reported', number - 1)
  drop_excess()
end

-- Adds a letter to the reply: letter, info, name of its recipient or '', message.
local function reply_with(reply, letter, info)
  local len = #reply
  reply[len + 1], reply[len + 2] = letter, info
  reply[len + 3] = call('HGET', key('dead_letters:names'), letter) or ''
  messages.want(entry_of(letter, info), reply)
end

-- Whether a letter is one that a query asks for, besides its position.
local function is_wanted(letter, info, reason, origin)
  if not info or reason ~= '' and sub(info, 6, 6) ~= reason then
    return false
  end
  if origin == '' then
    return true
  end
  local stored = call('HGET', key('messages'), sub(letter, 1, 16))
  return stored and messages.origin(stored) == origin
end

-- dead_letters: a page of the dead letters, in the order of their letters.
--
-- Input   reason or '', origin or '', the letter after which the page begins or '', most letters, most bytes of their
--         envelopes
-- Output  the letter at which the page ends for lack of bytes or '', and its bytes; then of each letter: letter, info,
--         name of its recipient or '', message
-- Keys    dead_letters (read), dead_letters:info (read), dead_letters:names (read), messages (read)
ops.dead_letters = function()
  local reason, origin, after, letters_left, bytes_left =
    read_text(), read_text(), read_text(), read_number(), read_number()
  local reply = { '', 0 }
  while letters_left > 0 do
    local from = after == '' and '-' or '(' .. after
    local page = call('ZRANGE', key('dead_letters'), from, '+', 'BYLEX', 'LIMIT', 0, 256)
    if #page == 0 then
      break
    end
    after = page[#page]
    local info = hash_fields(key('dead_letters:info'), page)
    for at = 1, #page do
      if letters_left > 0 and is_wanted(page[at], info[at], reason, origin) then
        local bytes = bytes_of(entry_of(page[at], info[at]))
        if bytes > bytes_left then
          reply[1], reply[2] = page[at], bytes
          return reply
        end
        letters_left, bytes_left = letters_left - 1, bytes_left - bytes
        reply_with(reply, page[at], info[at])
      end
    end
  end
  return reply
end

-- The numbers of the last letter, of the last that is reported and of the last that is being reported; the last one is
-- nil where nothing is being reported.
local function report_progress()
  local reported, claimed = unpack(call('HMGET', key('dead_letters:reports'), 'reported', 'claimed'))
  local last = tonumber(call('GET', key('dead_letters:seq')) or 0)
  return last, tonumber(reported or last), claimed and tonumber(claimed)
end

-- Whether there are letters to report.
function dead_letters.has_unreported()
  local last, reported = report_progress()
  return last > reported
end

-- The letters behind a number, in their order: letter and number, alternately, as many as one report names. Those up to
-- `claimed`, where it is given: a caller had them before.
local function next_letters(reported, claimed)
  local list = call('ZRANGE', key('dead_letters:by_age'), '(' .. int_text(reported), claimed and int_text(claimed) or '+inf',
    'BYSCORE', 'LIMIT', 0, REPORT_LEN_MAX, 'WITHSCORES')
  local letters, bytes, last = {}, 0, claimed
  for at = 1, #list, 2 do
    local info = call('HGET', key('dead_letters:info'), list[at])
    if info then
      bytes = bytes + bytes_of(entry_of(list[at], info))
      if not claimed and #letters > 0 and bytes > REPORT_BYTES_MAX then
        break
      end
      letters[#letters + 1] = { letter = list[at], info = info }
    end
    last = claimed or tonumber(list[at + 1])
  end
  return letters, last
end

-- unreported: gives the next letters that are not reported.
--
-- Input   nothing
-- Output  the number by which they are marked, or 0; then of each letter: letter, info, name of its recipient or '',
--         message
-- Keys    dead_letters:by_age (read), dead_letters:info (read), dead_letters:names (read), dead_letters:seq (read),
--         dead_letters:reports, messages (read)
ops.unreported = function()
  local last, reported, claimed = report_progress()
  if last <= reported then
    return { 0 }
  end
  local letters, until_number = next_letters(reported, claimed)
  -- Letters that were redriven or dropped leave numbers without a letter.
  until_number = until_number or last
  -- An earlier version reads since when, and leaves them to this caller for ten seconds.
  call('HSET', key('dead_letters:reports'), 'reported', int_text(reported), 'claimed', int_text(until_number), 'since',
    int_text(now))
  timeline.has_changed = true
  local reply = { until_number }
  for at = 1, #letters do
    reply_with(reply, letters[at].letter, letters[at].info)
  end
  return reply
end

-- mark_reported: notes that letters are reported.
--
-- Input   the number that unreported gave
-- Output  nothing
-- Keys    dead_letters:reports
ops.mark_reported = function()
  local number = read_text()
  if call('HGET', key('dead_letters:reports'), 'claimed') == number then
    call('HDEL', key('dead_letters:reports'), 'claimed', 'since')
    call('HSET', key('dead_letters:reports'), 'reported', number)
    timeline.has_changed = true
  end
  return {}
end

-- dead_letter_count: how many dead letters are kept.
--
-- Input   nothing
-- Output  the number
-- Keys    dead_letters (read)
ops.dead_letter_count = function()
  return { call('ZCARD', key('dead_letters')) }
end
