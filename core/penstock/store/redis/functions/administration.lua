-- The store's opening, and the end of a topology.

-- open_store: raise the store's generation, unless this run of the server was opened last.
-- KEYS 1: penstock:store. ARGV: store id, run id of the server or empty. Answers [id, generation]; when the id is
-- another, generation is unchanged.
local function open_store(keys, args)
  local got = redis.call('HMGET', keys[1], 'id', 'generation', 'run')
  local id, run = got[1], args[2]
  if id and (id ~= args[1] or run ~= '' and run == got[3]) then return {id, tonumber(got[2])} end
  redis.call('HSET', keys[1], 'id', args[1], 'run', run)
  return {args[1], redis.call('HINCRBY', keys[1], 'generation', 1)}
end

-- Tells the workers that their topology is gone, as far as the maps name any: its own workers may have written there
-- what is none, or more than there can be.
local WOKEN_MAX = 1000
local function wake_all_workers(p)
  local found = redis.call('HSCAN', p .. 'workers', 0, 'COUNT', WOKEN_MAX)[2]
  for i = 1, math.min(#found, 2 * WOKEN_MAX), 2 do wake_worker(p, found[i]) end
end

-- retract: say that the topology is gone, and drop its keys, some at each call. How far that is stands with the store's
-- own, where no worker writes: a cursor, "end", or "retracted", which the version before has there whatever is left.
-- KEYS 1: prefix. ARGV none. Answers 0, or an upper bound of the number of keys still to drop.
local function retract(keys)
  local p = keys[1]
  local cursor = redis.call('HGET', STORE, p)
  if cursor == 'end' then
    -- somebody may have named it again
    redis.call('SREM', TOPOLOGIES, uid_of(p))
    return 0
  elseif not cursor or cursor == 'retracted' then
    cursor = '0'
    redis.call('HSET', STORE, p, cursor)
    pcall(wake_all_workers, p)
  end
  for _ = 1, 4 do
    local found = redis.call('SCAN', cursor, 'MATCH', p .. '*', 'COUNT', 200)
    cursor = found[1]
    if #found[2] > 0 then redis.call('UNLINK', unpack(found[2])) end
    if cursor == '0' then
      redis.call('HSET', STORE, p, 'end')
      redis.call('SREM', TOPOLOGIES, uid_of(p))
      return 0
    end
  end
  redis.call('HSET', STORE, p, cursor)
  return redis.call('DBSIZE')
end

-- keep_topologies: forget what else is in the set; anybody's workers may have added any number.
-- KEYS 1: penstock:topologies. ARGV: uid, ... Answers OK.
local function keep_topologies(keys, args)
  local kept = {}
  for first = 1, #args, CHUNK do
    local last = math.min(first + CHUNK - 1, #args)
    local is_in = redis.call('SMISMEMBER', keys[1], unpack(args, first, last))
    for i = first, last do
      if is_in[i - first + 1] == 1 then kept[#kept + 1] = args[i] end
    end
  end
  redis.call('UNLINK', keys[1])
  call_chunked('SADD', keys[1], kept, 1, #kept)
  return 'OK'
end

register('open_store', open_store, WRITES)
register('keep_topologies', keep_topologies, WRITES)
register('retract', retract, WRITES)
