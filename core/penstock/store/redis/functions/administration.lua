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

-- retract: put up the tombstone and drop the topology's keys, some at each call.
-- KEYS 1: prefix. ARGV none. Answers 0, or an upper bound of the number of keys still to drop.
local function retract(keys)
  local p = keys[1]
  local tombstone = p .. 'tombstone'
  local cursor = redis.call('HGET', tombstone, 'cursor')
  if not cursor then
    cursor = '0'
    redis.call('HSET', STORE, p, 'retracted')
    redis.call('HSET', tombstone, 'cursor', cursor)
    for _, worker in ipairs(redis.call('HKEYS', p .. 'workers')) do wake_worker(p, worker) end
  elseif cursor == 'end' then
    return 0
  end
  for _ = 1, 4 do
    local found = redis.call('SCAN', cursor, 'MATCH', p .. '*', 'COUNT', 200)
    cursor = found[1]
    local dropped = {}
    for _, key in ipairs(found[2]) do
      if key ~= tombstone then dropped[#dropped + 1] = key end
    end
    if #dropped > 0 then redis.call('UNLINK', unpack(dropped)) end
    if cursor == '0' then
      redis.call('HSET', tombstone, 'cursor', 'end')
      redis.call('SREM', TOPOLOGIES, uid_of(p))
      return 0
    end
  end
  redis.call('HSET', tombstone, 'cursor', cursor)
  return redis.call('DBSIZE')
end

register('open_store', open_store, WRITES)
register('retract', retract, WRITES)
