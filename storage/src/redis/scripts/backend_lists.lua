-- The kept lists of the backends of the project (actors/src/storage/backend_lists.rs).
--
-- Keys  backend_lists (hash: backend -> lists)

-- keep_backend_lists: keeps the lists of a backend, or forgets them.
--
-- Input   backend, lists or ''
-- Output  nothing
-- Keys    backend_lists
ops.keep_backend_lists = function()
  local backend, lists = read_text(), read_text()
  timeline.has_changed = true
  if lists == '' then
    call('HDEL', key('backend_lists'), backend)
  else
    call('HSET', key('backend_lists'), backend, lists)
  end
  return {}
end

-- backend_lists: the kept lists of a backend.
--
-- Input   backend
-- Output  the lists, or nil
-- Keys    backend_lists (read)
ops.backend_lists = function()
  return { call('HGET', key('backend_lists'), read_text()) or nil }
end

-- retain_backend_lists: forgets the lists of all backends but these.
--
-- Input   backends
-- Output  nothing
-- Keys    backend_lists
ops.retain_backend_lists = function(last)
  local retained = {}
  while cursor < last do
    retained[read_text()] = true
  end
  local kept = call('HKEYS', key('backend_lists'))
  for at = 1, #kept do
    if not retained[kept[at]] then
      timeline.has_changed = true
      call('HDEL', key('backend_lists'), kept[at])
    end
  end
  return {}
end
