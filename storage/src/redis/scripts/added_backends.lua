-- The tables of the backends that administrators have added to the project (actors/src/storage/added_backends.rs).
--
-- Keys  added_backends (hash: backend -> table)

-- added_backends: all tables.
--
-- Input   nothing
-- Output  backend and table of each
-- Keys    added_backends (read)
ops.added_backends = function()
  return call('HGETALL', key('added_backends'))
end

-- change_added_backend: stores a table, or removes it, if the one that is stored is still the one before.
--
-- Input   backend, table before or '', table or '', frame, most tables
-- Output  1; 0 when there are as many as may be; 2 and the stored table, if any, when it is another one
-- Keys    added_backends
ops.change_added_backend = function()
  local backend, before, after, head, most = read_text(), read_text(), read_text(), read_text(), read_number()
  local stored = call('HGET', key('added_backends'), backend) or ''
  if stored ~= before then
    return stored == '' and { 2 } or { 2, stored }
  end
  if before == '' and call('HLEN', key('added_backends')) >= most then
    return { 0 }
  end
  if after == '' then
    call('HDEL', key('added_backends'), backend)
  else
    call('HSET', key('added_backends'), backend, after)
  end
  frames.publish(head, 0)
  return { 1 }
end
