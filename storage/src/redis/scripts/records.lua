-- Records: texts by table and key, changed by compare and set (actors/src/storage/records.rs). Each table is a hash.
--
-- Keys  protocols (hash: name and version -> record), added_backends (hash: backend -> table), backend_lists (hash: backend -> what it is and offers), targets (hash: target ->
--       how far events were sent to it), lenses (hash: name and both versions -> record)

-- The keys of a table that begin with a prefix.
local function keys_of(name, prefix)
  local all, found = call('HKEYS', key(name)), {}
  for at = 1, #all do
    if sub(all[at], 1, #prefix) == prefix then
      found[#found + 1] = all[at]
    end
  end
  return found
end

-- get_record: the text of a record.
--
-- Input   table, key
-- Output  the text, or nil
-- Keys    that of the table (read)
ops.get_record = function()
  return { call('HGET', key(read_text()), read_text()) or nil }
end

-- record_keys: the keys of a table.
--
-- Input   table, what the keys begin with
-- Output  the keys
-- Keys    that of the table (read)
ops.record_keys = function()
  return keys_of(read_text(), read_text())
end

-- list_records: the records of a table.
--
-- Input   table, what the keys begin with
-- Output  key and text of each
-- Keys    that of the table (read)
ops.list_records = function()
  local name, prefix = read_text(), read_text()
  local keys, reply = keys_of(name, prefix), {}
  local texts = hash_fields(key(name), keys)
  for at = 1, #keys do
    reply[2 * at - 1], reply[2 * at] = keys[at], texts[at]
  end
  return reply
end

-- put_record: stores a text, or removes a record, if the text that is stored is the one before.
--
-- Input   table, key, 1 to replace any text, text before or '' for none, text or '' for none, frame or '', most records,
--         1 to change nothing and say what the change would do
-- Output  1; 0 when there are as many as may be; 2 and the stored text, if any, when it is another one
-- Keys    that of the table
ops.put_record = function()
  local name, field, is_any, before, after = read_text(), read_text(), read_flag(), read_text(), read_text()
  local head, most, is_trial = read_text(), read_number(), read_flag()
  local stored = call('HGET', key(name), field) or ''
  if not is_any and stored ~= before then
    return stored == '' and { 2 } or { 2, stored }
  end
  if after ~= '' and stored == '' and call('HLEN', key(name)) >= most then
    return { 0 }
  elseif is_trial then
    return { 1 }
  elseif after == '' then
    call('HDEL', key(name), field)
  else
    call('HSET', key(name), field, after)
  end
  if head ~= '' then
    frames.publish(head, 0)
  else
    timeline.has_changed = true
  end
  return { 1 }
end

-- change_record: as put_record, also on a server without memory: what is stored grows by almost nothing.
ops.change_record = ops.put_record
