-- Questions to people: their records, contents and drafts.
--
-- Ids are 16 bytes that begin with the time of asking, so that their order is that of age.
--
-- Keys  questions (hash: question -> record), questions:contents (hash: question -> content), questions:info (hash: question ->
--       INFO), questions:index (sorted set: all questions, by id), questions:open (sorted set: open ones, by id),
--       questions:closed (sorted set: closed ones by time of the end), questions:open_of (hash: session -> its open
--       questions; session and ':bytes' -> bytes of their contents), questions:keys (hash: session and idempotency key -> question), questions:bytes (hash: all, open ->
--       bytes), drafts (hash: question and person -> text), drafts:people (hash: question -> people, each on a line)

local OPEN_OF_SESSION_MAX, OPEN_MAX, DRAFTS_MAX = contract.OPEN_OF_SESSION_MAX, contract.OPEN_MAX, contract.DRAFTS_MAX
local OPEN_BYTES_DIVISOR, SESSION_BYTES_DIVISOR = contract.OPEN_BYTES_DIVISOR, contract.SESSION_BYTES_DIVISOR
local QUESTION_BYTES = contract.QUESTION_BYTES
-- Closed questions that one call forgets because of their age.
local SWEEP_LEN_MAX = 1000
-- Of a question: its revision, its bytes with those of its drafts, those of its drafts; then the session that asks, and
-- the idempotency key.
local INFO, SESSION_AT, KEY_AT = '>ddd', 25, 61

-- Replies of ask, of update_question, of put_draft.
local NEW, EXISTING, SESSION_FULL, PROJECT_FULL, BYTES_FULL, SESSION_BYTES_FULL = 0, 1, 2, 3, 4, 5
local STORED, CHANGED, UNKNOWN = 0, 1, 2
local DRAFT_STORED, DRAFT_UNKNOWN, DRAFT_FULL = 0, 1, 2

-- What is known of a question; nil for an unknown one.
local function read_info(id)
  local packed = call('HGET', key('questions:info'), id)
  if packed then
    local revision, bytes, drafts_bytes = unpack_bytes(INFO, packed)
    return {
      revision = revision, bytes = bytes, drafts_bytes = drafts_bytes,
      session = sub(packed, SESSION_AT, KEY_AT - 1), key = sub(packed, KEY_AT),
      is_open = call('ZSCORE', key('questions:open'), id) and true,
    }
  end
end

local function write_info(id, info)
  local numbers = pack(INFO, info.revision, info.bytes, info.drafts_bytes)
  call('HSET', key('questions:info'), id, numbers .. info.session .. info.key)
end

local function key_field(info)
  return info.session .. ':' .. info.key
end

local function bytes_of_questions(which)
  return tonumber(call('HGET', key('questions:bytes'), which) or 0)
end

-- The bytes of all questions.
function questions.bytes()
  return bytes_of_questions('all')
end

-- Adds a question to the open or to the closed ones, or removes it from them (`sign` is 1 or -1), with its bytes.
local function count(id, info, sign, closed_at)
  call('HINCRBY', key('questions:bytes'), 'all', int_text(sign * info.bytes))
  if not info.is_open then
    if sign > 0 then
      call('ZADD', key('questions:closed'), closed_at, id)
    else
      call('ZREM', key('questions:closed'), id)
    end
    return
  end
  call('HINCRBY', key('questions:bytes'), 'open', int_text(sign * info.bytes))
  local content_bytes = call('HSTRLEN', key('questions:contents'), id)
  call('HINCRBY', key('questions:open_of'), info.session .. ':bytes', int_text(sign * content_bytes))
  if call('HINCRBY', key('questions:open_of'), info.session, sign) <= 0 then
    call('HDEL', key('questions:open_of'), info.session, info.session .. ':bytes')
  end
  if sign > 0 then
    call('ZADD', key('questions:open'), 0, id)
  else
    call('ZREM', key('questions:open'), id)
  end
end

-- Changes the bytes of the drafts of a question.
local function count_drafts(id, info, bytes)
  info.bytes, info.drafts_bytes = info.bytes + bytes, info.drafts_bytes + bytes
  call('HINCRBY', key('questions:bytes'), 'all', int_text(bytes))
  if info.is_open then
    call('HINCRBY', key('questions:bytes'), 'open', int_text(bytes))
  end
  write_info(id, info)
end

-- The people who have a draft for a question.
local function people_of(id)
  local people = {}
  for person in string.gmatch(call('HGET', key('drafts:people'), id) or '', '[^\n]+') do
    people[#people + 1] = person
  end
  return people
end

-- Forgets a question with all that is kept beside it. Returns whether it was known.
local function remove(id)
  local info = read_info(id)
  if not info then
    return false
  end
  timeline.has_changed = true
  count(id, info, -1)
  if info.key ~= '' and call('HGET', key('questions:keys'), key_field(info)) == id then
    call('HDEL', key('questions:keys'), key_field(info))
  end
  for _, person in ipairs(people_of(id)) do
    call('HDEL', key('drafts'), id .. person)
  end
  call('HDEL', key('drafts:people'), id)
  call('HDEL', key('questions:contents'), id)
  call('HDEL', key('questions:info'), id)
  call('HDEL', key('questions'), id)
  call('ZREM', key('questions:index'), id)
  return true
end

-- Forgets closed questions that are older than the retention.
function questions.sweep()
  local before = int_text(now - bounds.questions_ms)
  local old = call('ZRANGE', key('questions:closed'), '-inf', before, 'BYSCORE', 'LIMIT', 0, SWEEP_LEN_MAX)
  for at = 1, #old do
    remove(old[at])
  end
end

-- Forgets closed questions while there are too many or too many bytes, but not the one that has just changed.
local function forget_excess(changed)
  while call('ZCARD', key('questions:closed')) > bounds.closed_questions
    or bytes_of_questions('all') > bounds.questions_bytes
  do
    local oldest = call('ZRANGE', key('questions:closed'), 0, 1)
    local id = oldest[1] == changed and oldest[2] or oldest[1] ~= changed and oldest[1]
    if not id then
      break
    end
    remove(id)
  end
end

-- The question that was asked with this id, or with this key of the session within the window.
local function earlier(id, name)
  if call('HEXISTS', key('questions:info'), id) == 1 then
    return id
  end
  local known = name and call('HGET', key('questions:keys'), name)
  if known then
    local high, low = unpack_bytes('>I4I2', known)
    local asked_at = high * 65536 + low
    return now - asked_at < bounds.window_ms and known
  end
end

-- ask: stores a new question.
--
-- Input   question, session, idempotency key or '', record, content, frame, fields of the event
-- Output  NEW; EXISTING and the record of the earlier question; or the bound that is reached
-- Keys    all of this file; those of the event log
ops.ask = function()
  local id, session, name, record, content, head, event =
    read_text(), read_text(), read_text(), read_text(), read_text(), read_text(), read_text()
  local info = { revision = 0, drafts_bytes = 0, session = session, key = name, is_open = true }
  info.bytes = QUESTION_BYTES + #record + #content
  questions.sweep()
  local known = earlier(id, name ~= '' and key_field(info))
  if known then
    return { EXISTING, call('HGET', key('questions'), known) }
  elseif tonumber(call('HGET', key('questions:open_of'), session) or 0) >= OPEN_OF_SESSION_MAX then
    return { SESSION_FULL }
  elseif #content + tonumber(call('HGET', key('questions:open_of'), session .. ':bytes') or 0)
    > math.floor(bounds.questions_bytes / SESSION_BYTES_DIVISOR)
  then
    return { SESSION_BYTES_FULL }
  elseif call('ZCARD', key('questions:open')) >= OPEN_MAX then
    return { PROJECT_FULL }
  elseif bytes_of_questions('open') + info.bytes > math.floor(bounds.questions_bytes / 8) * 3 then
    return { BYTES_FULL }
  end
  call('HSET', key('questions'), id, record)
  call('HSET', key('questions:contents'), id, content)
  call('ZADD', key('questions:index'), 0, id)
  if name ~= '' then
    call('HSET', key('questions:keys'), key_field(info), id)
  end
  write_info(id, info)
  count(id, info, 1)
  forget_excess(id)
  events.question(event)
  frames.publish(head, 0)
  return { NEW }
end

-- update_question: stores the next revision of a record. If it closes the question and brings a notice, appends the
-- notice as `append` does.
--
-- Input   question, revision, record, 1 when it is open, time of the end, frame, fields of the event or '', 1 when it brings
--         a notice; then the input of append, if it does
-- Output  STORED, and the output of append if it was carried out; CHANGED and the record as it is; UNKNOWN
-- Keys    all of this file; those of the event log and of append
ops.update_question = function()
  local id, revision, record, is_open = read_text(), read_number(), read_text(), read_flag()
  local closed_at, head, event, has_notice = read_text(), read_text(), read_text(), read_flag()
  local info = read_info(id)
  if not info then
    return { UNKNOWN }
  elseif revision ~= info.revision + 1 then
    return { CHANGED, call('HGET', key('questions'), id) }
  end
  local was_open, bytes = info.is_open, #record - call('HSTRLEN', key('questions'), id)
  count(id, info, -1)
  info.revision, info.bytes, info.is_open = revision, info.bytes + bytes, is_open
  call('HSET', key('questions'), id, record)
  write_info(id, info)
  count(id, info, 1, closed_at)
  forget_excess(id)
  if event ~= '' then
    events.question(event)
  end
  frames.publish(head, 0)
  if was_open and not is_open and has_notice then
    return { STORED, ops.append() }
  end
  return { STORED }
end

-- questions: the records of questions.
--
-- Input   questions
-- Output  the record of each, or nil
-- Keys    questions (read)
ops.questions = function()
  return hash_fields(key('questions'), ids_in(read_text()))
end

-- question_content: the content of a question.
--
-- Input   question
-- Output  the content, or nil
-- Keys    questions:contents (read)
ops.question_content = function()
  return { call('HGET', key('questions:contents'), read_text()) or nil }
end

-- open_questions: the records of all open questions, the oldest first.
--
-- Input   nothing
-- Output  their records
-- Keys    questions (read), questions:open (read)
ops.open_questions = function()
  return hash_fields(key('questions'), call('ZRANGE', key('questions:open'), 0, -1))
end

-- question_page: the records of questions, the newest first.
--
-- Input   question before which the page begins, or ''; most records
-- Output  the records
-- Keys    questions (read), questions:index (read)
ops.question_page = function()
  local before, limit = read_text(), read_text()
  local newest = before == '' and '+' or '(' .. before
  local page = call('ZRANGE', key('questions:index'), newest, '-', 'BYLEX', 'REV', 'LIMIT', 0, limit)
  return hash_fields(key('questions'), page)
end

-- remove_question: forgets a question.
--
-- Input   question, frame
-- Output  1; 0 for an unknown one
-- Keys    all of this file
ops.remove_question = function()
  local id, head = read_text(), read_text()
  local is_known = remove(id)
  if is_known then
    frames.publish(head, 0)
  end
  return { is_known and 1 or 0 }
end

-- put_draft: stores the draft of a person; an empty text removes it.
--
-- Input   question, person, text
-- Output  DRAFT_STORED, DRAFT_UNKNOWN or DRAFT_FULL
-- Keys    drafts, drafts:people, questions:info, questions:bytes, and those of forgotten questions
ops.put_draft = function()
  local id, person, text = read_text(), read_text(), read_text()
  local info = read_info(id)
  if not info then
    return { DRAFT_UNKNOWN }
  end
  local len, people = call('HSTRLEN', key('drafts'), id .. person), people_of(id)
  local before, after = len > 0 and len + #person or 0, #text > 0 and #text + #person or 0
  local kept = info.is_open and bytes_of_questions('open') or 0
  if after > 0 and before == 0 and #people >= DRAFTS_MAX
    or after > before and kept + after - before > math.floor(bounds.questions_bytes / OPEN_BYTES_DIVISOR)
  then
    return { DRAFT_FULL }
  elseif after == 0 and before == 0 then
    return { DRAFT_STORED }
  end
  timeline.has_changed = true
  if after == 0 then
    call('HDEL', key('drafts'), id .. person)
    local others = {}
    for _, other in ipairs(people) do
      if other ~= person then
        others[#others + 1] = other
      end
    end
    if #others > 0 then
      call('HSET', key('drafts:people'), id, table.concat(others, '\n'))
    else
      call('HDEL', key('drafts:people'), id)
    end
  else
    call('HSET', key('drafts'), id .. person, text)
    if before == 0 then
      people[#people + 1] = person
      call('HSET', key('drafts:people'), id, table.concat(people, '\n'))
    end
  end
  count_drafts(id, info, after - before)
  forget_excess(id)
  return { DRAFT_STORED }
end

-- draft: the draft of a person for a question.
--
-- Input   question, person
-- Output  the text, or nil
-- Keys    drafts (read)
ops.draft = function()
  local id, person = read_text(), read_text()
  return { call('HGET', key('drafts'), id .. person) or nil }
end
