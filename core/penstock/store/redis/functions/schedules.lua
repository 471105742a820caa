-- Schedules: how they come into the store's maps, and what these say of a worker.

-- Begins, or goes on with, a staging over version `base` (empty for none). Over another one nothing of it counts.
local function begin_staging(p, operator, id, base, executors)
  local staging = staging_of(p, operator, id)
  if redis.call('HGET', staging.head, 'base') ~= base then
    redis.call('UNLINK', staging.head, staging.shards, staging.leaving, staging.keepers)
    redis.call('HSET', staging.head, 'base', base, 'executors', executors)
    redis.call('SADD', p .. 'stagings:' .. operator, id)
  end
  return staging
end

-- Forgets the tasks of those among the executors of before (by name) that the maps name no more.
local function forget_tasks(p, operator, before)
  for executor in pairs(before) do
    local place = redis.call('HEXISTS', p .. 'executors:' .. operator, executor)
      + redis.call('HEXISTS', p .. 'keepers:' .. operator, executor)
    if place == 0 then
      local lists = redis.call('HGET', p .. 'tasks:' .. executor, 'lists')
      for _, ready in ipairs(lists and cmsgpack.unpack(lists) or {}) do leave_list(p, ready) end
      redis.call('UNLINK', p .. 'tasks:' .. executor)
    end
  end
end

-- The version that counts (empty for none), and the answer to a schedule that is not newer.
local function outdated(p, operator, new_version, term)
  local old = redis.call('HMGET', p .. 'schedule:' .. operator, 'version', 'term')
  if not old[1] then return '' end
  if new_version < tonumber(old[1]) or term < tonumber(old[2]) then return old[1], 'STALE' end
  return old[1], new_version == tonumber(old[1]) and 'DONE' or nil
end

-- publish_part: stage some shards of one operator's schedule.
-- KEYS 1: prefix. ARGV: operator, version, term, id, packed names of executors; shard, packed (executor, home) ...
-- Answers OK, DONE, STALE, UNKNOWN.
local function publish_part(keys, args)
  local p, operator = keys[1], args[1]
  if retracted(p) then return 'UNKNOWN' end
  if #args % 2 == 0 then return redis.error_reply('ERR penstock publish_part: wrong number of arguments') end
  local base, refusal = outdated(p, operator, tonumber(args[2]), tonumber(args[3]))
  if refusal then return refusal end
  stage_shards(p, operator, begin_staging(p, operator, args[4], base, args[5]), args, 6, #args)
  return 'OK'
end

-- publish: stage the rest of one operator's schedule, and write it into the maps.
-- KEYS 1: prefix. ARGV: operator, version, term, id, packed names of executors, packed names of workers, counts of
-- workers, executors, shards in this call and shards in all; worker, packed (node, host, uid), packed assignment ...;
-- executor, packed (worker, tasks) ...; shard, packed (executor, home) ...
-- Answers OK, DONE, STALE, UNKNOWN, AGAIN (parts are missing).
local function publish(keys, args)
  local p, operator = keys[1], args[1]
  if retracted(p) then return 'UNKNOWN' end
  local workers, executors, shards = tonumber(args[7]), tonumber(args[8]), tonumber(args[9])
  if #args ~= 10 + 3 * workers + 2 * executors + 2 * shards then
    return redis.error_reply('ERR penstock publish: wrong number of arguments')
  end
  local base, refusal = outdated(p, operator, tonumber(args[2]), tonumber(args[3]))
  if refusal then return refusal end
  local first_executor = 11 + 3 * workers
  local first_shard = first_executor + 2 * executors
  local staging = begin_staging(p, operator, args[4], base, args[5])
  if shards > 0 then stage_shards(p, operator, staging, args, first_shard, #args) end
  if redis.call('HLEN', staging.shards) ~= tonumber(args[10]) then return 'AGAIN' end

  local key = p .. 'schedule:' .. operator
  local workers_before = redis.call('HGET', key, 'workers')
  local named, is_new, places = {}, {}, places_of(p, operator)
  redis.call('SADD', TOPOLOGIES, uid_of(p))
  for at = 11, first_executor - 1, 3 do
    local worker = args[at]
    named[worker] = true
    redis.call('HSET', p .. 'workers', worker, args[at + 1])
    redis.call('HSET', p .. 'assigned:' .. worker, operator, args[at + 2])
    wake_worker(p, worker)
  end
  for at = first_executor, first_shard - 1, 2 do is_new[args[at]] = true end
  local keepers, names = {}, cmsgpack.unpack(args[6])
  for _, keeper in ipairs(redis.call('SMEMBERS', staging.keepers)) do
    if not is_new[keeper] then
      keepers[#keepers + 1], keepers[#keepers + 2] = keeper, places[keeper]
      local worker = cmsgpack.unpack(places[keeper])[1]
      if not named[worker] then
        named[worker] = true
        names[#names + 1] = worker
        redis.call('HSET', p .. 'assigned:' .. worker, operator, cmsgpack.pack({tonumber(args[2]), {}}))
        wake_worker(p, worker)
      end
    end
  end
  redis.call('UNLINK', p .. 'executors:' .. operator, p .. 'keepers:' .. operator)
  call_chunked('HSET', p .. 'executors:' .. operator, args, first_executor, first_shard - 1)
  call_chunked('HSET', p .. 'keepers:' .. operator, keepers, 1, #keepers)
  forget_tasks(p, operator, places)
  for name, staged in pairs({shards = staging.shards, leaving = staging.leaving}) do
    local counts = p .. name .. ':' .. operator
    redis.call('UNLINK', counts)
    if redis.call('EXISTS', staged) == 1 then
      redis.call('RENAME', staged, counts)
      redis.call('PERSIST', counts)
    end
  end
  know_strangers(p, operator)
  redis.call('UNLINK', staging.head, staging.keepers)
  redis.call('SREM', p .. 'stagings:' .. operator, args[4])
  redis.call('HSET', key, 'version', args[2], 'term', args[3], 'workers', cmsgpack.pack(names))
  for _, worker in ipairs(workers_before and cmsgpack.unpack(workers_before) or {}) do
    if not named[worker] then
      redis.call('HDEL', p .. 'assigned:' .. worker, operator)
      if redis.call('EXISTS', p .. 'assigned:' .. worker) == 0 then redis.call('HDEL', p .. 'workers', worker) end
      wake_worker(p, worker)
    end
  end
  return 'OK'
end

-- assignment: what the maps say of a worker.
-- KEYS 1: prefix. ARGV: worker. Answers [retracted (0, 1), generation, packed (node, host, uid) or nil,
-- [operator, packed assignment, ...], the store's id, [shard, executor that keeps it until it departs, ...] of those,
-- [operator, executor that it names no more, tasks, ...]].
local function assignment(keys, args)
  local p, worker = keys[1], args[1]
  local assigned, keepers, leaving = redis.call('HGETALL', p .. 'assigned:' .. worker), {}, {}
  for i = 1, #assigned, 2 do
    local of_operator = redis.call('HGETALL', p .. 'leaving:' .. assigned[i])
    if #leaving == 0 then
      leaving = of_operator
    else
      for _, value in ipairs(of_operator) do leaving[#leaving + 1] = value end
    end
    for executor, packed in pairs(pairs_of(redis.call('HGETALL', p .. 'keepers:' .. assigned[i]))) do
      local place = cmsgpack.unpack(packed)
      if place[1] == worker then
        for _, value in ipairs({assigned[i], executor, place[2]}) do keepers[#keepers + 1] = value end
      end
    end
  end
  return {
    retracted(p) and 1 or 0,
    generation(),
    redis.call('HGET', p .. 'workers', worker),
    assigned,
    redis.call('HGET', STORE, 'id') or '',
    leaving,
    keepers,
  }
end

register('publish_part', publish_part, WRITES)
register('publish', publish, WRITES)
register('assignment', assignment, READS)
