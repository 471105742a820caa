-- Workers: their starts and incarnations, and how the shards of their executors are spread over tasks.

-- mint_start: a number for a start of a worker's process, above all before it.
-- KEYS 1: prefix. ARGV: worker. Answers an integer or UNKNOWN.
local function mint_start(keys, args)
  local p, worker = keys[1], args[1]
  if retracted(p) then return 'UNKNOWN' end
  local known = redis.call('HGET', p .. 'enrolled', worker)
  local enrolled = known and tonumber(string.match(known, '/(%d+)/%d+$')) or 0
  local start = math.max(tonumber(redis.call('HGET', p .. 'starts', worker) or 0), enrolled) + 1
  redis.call('HSET', p .. 'starts', worker, string.format('%d', start))
  return start
end

-- enroll: a worker process announces its incarnation.
-- KEYS 1: prefix. ARGV: worker, uid, start, attempt. Answers OK, STALE, UNKNOWN.
local function enroll(keys, args)
  local p, worker, uid, start, attempt = keys[1], args[1], args[2], tonumber(args[3]), tonumber(args[4])
  if retracted(p) then return 'UNKNOWN' end
  local named = uid_in_map(p, worker)
  if named and named ~= uid then return 'STALE' end
  local known = redis.call('HGET', p .. 'enrolled', worker)
  if known then
    local known_uid, known_start, known_attempt = string.match(known, '^(.*)/(%d+)/(%d+)$')
    known_start, known_attempt = tonumber(known_start), tonumber(known_attempt)
    -- starts of two uids have no order: another store may have given them out
    if known_uid == uid and (known_attempt > attempt or (known_attempt == attempt and known_start > start)) then
      return 'STALE'
    end
  end
  redis.call('HSET', p .. 'enrolled', worker, uid .. '/' .. args[3] .. '/' .. args[4])
  return 'OK'
end

-- set_tasks: which task runs which shard of an executor.
-- KEYS 1: prefix. ARGV: worker, incarnation, executor, packed mapping, packed ready lists, ready list, ...
-- Answers OK, STALE, UNKNOWN.
local function set_tasks(keys, args)
  local p, incarnation = keys[1], args[2]
  if retracted(p) then return 'UNKNOWN' end
  if enrolled_incarnation(p, args[1]) ~= incarnation then return 'STALE' end
  local key = p .. 'tasks:' .. args[3]
  local before = redis.call('HGET', key, 'lists')
  redis.call('HSET', key, 'incarnation', incarnation, 'mapping', args[4], 'lists', args[5])
  local named = {}
  for i = 6, #args do
    named[args[i]] = true
    wake_list(p, args[i])
    redis.call('PERSIST', p .. 'ready:' .. args[i])
    redis.call('PERSIST', due_key(p, args[i]))
  end
  for _, ready in ipairs(before and cmsgpack.unpack(before) or {}) do
    if not named[ready] then leave_list(p, ready) end
  end
  return 'OK'
end

-- tasks: how the shards of an executor are spread over its tasks.
-- KEYS 1: prefix. ARGV: executor, operator.
-- Answers [incarnation, packed mapping, version, packed ready lists], nil for what is not there.
local function tasks(keys, args)
  local got = redis.call('HMGET', keys[1] .. 'tasks:' .. args[1], 'incarnation', 'mapping', 'lists')
  return {got[1], got[2], redis.call('HGET', keys[1] .. 'schedule:' .. args[2], 'version'), got[3]}
end

register('mint_start', mint_start, WRITES)
register('enroll', enroll, WRITES)
register('set_tasks', set_tasks, WRITES)
register('tasks', tasks, READS)
