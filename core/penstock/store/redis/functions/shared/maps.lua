-- What the schedules say of this store: workers, the executors on them, who keeps which shard, and the task that runs
-- it; also of a schedule that is being staged.

-- Raises the number in a worker's control stream; the stream keeps only its last entry.
local function wake_worker(p, worker)
  local key = p .. 'control:' .. worker
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)
  local number = last[1] and tonumber(string.match(last[1][1], '^%d+')) or 0
  redis.call('XADD', key, 'MAXLEN', 1, (number + 1) .. '-0', 'changed', '')
end

local function uid_in_map(p, worker)
  local packed = redis.call('HGET', p .. 'workers', worker)
  return packed and cmsgpack.unpack(packed)[3]
end

-- The incarnation of a worker that counts here: enrolled, and of the uid that the map names.
local function enrolled_incarnation(p, worker)
  local incarnation = redis.call('HGET', p .. 'enrolled', worker)
  if not incarnation then return nil end
  local uid = uid_in_map(p, worker)
  if uid and uid ~= string.match(incarnation, '^(.*)/%d+/%d+$') then return nil end
  return incarnation
end

-- A schedule is staged beside the one that counts, so many shards at a call, and takes its place at once in the end.
-- "staged:ID:OPERATOR" has "base", the version that counted when that began, and "executors", the new ones (packed);
-- "staged-keepers:" their names who keep a shard; "staged-shards:" and "staged-leaving:" become "shards:OPERATOR" and
-- "leaving:OPERATOR". ID names the schedule's content. What is given up midway expires.
local STAGED_SECONDS = 60

local function staging_of(p, operator, id)
  local name = id .. ':' .. operator
  return {
    head = p .. 'staged:' .. name, shards = p .. 'staged-shards:' .. name, leaving = p .. 'staged-leaving:' .. name,
    keepers = p .. 'staged-keepers:' .. name,
  }
end

-- Places of all executors that may have shards here: worker and tasks, packed.
local function places_of(p, operator)
  local places = {}
  for _, name in ipairs({'keepers:', 'executors:'}) do
    for executor, place in pairs(pairs_of(redis.call('HGETALL', p .. name .. operator))) do places[executor] = place end
  end
  return places
end

-- Stages shards, list[first] to list[last]: shard, packed (executor, home) ... Whoever has one that is to go to another
-- store, or was to have it, keeps it until it departs; also an executor that the new schedule names no more.
local function stage_shards(p, operator, staging, list, first, last)
  -- A packed place ends with the home: comparing that is five times as fast as unpacking thousands.
  local here = cmsgpack.pack(redis.call('HGET', STORE, 'id'))
  local places, is_new = places_of(p, operator), {}
  for _, executor in ipairs(cmsgpack.unpack(redis.call('HGET', staging.head, 'executors'))) do is_new[executor] = true end
  local function stands(executor) return executor and (is_new[executor] or places[executor]) end
  local function keeper_of(shard)
    local got = redis.call('HMGET', p .. 'shard:' .. shard, 'h', 'x')
    if not got[1] then return nil end
    local status = unpack_record('', got[1])[STATUS]
    if status == DEPARTED or status == MOVED then return nil end
    if stands(got[2]) then return got[2] end
    local before = redis.call('HGET', p .. 'leaving:' .. operator, shard)
    if stands(before) then return before end
    -- it has just arrived, or is about to, and nobody has claimed it
    local place = redis.call('HGET', p .. 'shards:' .. operator, shard)
    local planned = place and string.sub(place, -#here) == here and cmsgpack.unpack(place)[1]
    return stands(planned) and planned
  end
  local leaving, staying, keepers, named = {}, {}, {}, {}
  for i = first, last, 2 do
    local shard = list[i]
    local keeper = string.sub(list[i + 1], -#here) ~= here and keeper_of(shard)
    if keeper then
      leaving[#leaving + 1], leaving[#leaving + 2] = shard, keeper
      if not named[keeper] then
        named[keeper] = true
        keepers[#keepers + 1] = keeper
      end
    else
      staying[#staying + 1] = shard
    end
  end
  call_chunked('HSET', staging.shards, list, first, last)
  call_chunked('HSET', staging.leaving, leaving, 1, #leaving)
  call_chunked('HDEL', staging.leaving, staying, 1, #staying)
  call_chunked('SADD', staging.keepers, keepers, 1, #keepers)
  for _, key in pairs(staging) do redis.call('EXPIRE', key, STAGED_SECONDS) end
end

-- A shard came, went or has another owner: what is being staged is to know it.
local function restage(p, shard)
  local operator = operator_of(shard)
  for _, id in ipairs(redis.call('SMEMBERS', p .. 'stagings:' .. operator)) do
    local staging = staging_of(p, operator, id)
    local place = redis.call('HGET', staging.shards, shard)
    if place and redis.call('EXISTS', staging.head) == 1 then
      stage_shards(p, operator, staging, {shard, place}, 1, 2)
    elseif redis.call('EXISTS', staging.head) == 0 then
      redis.call('SREM', p .. 'stagings:' .. operator, id)
    end
  end
end

-- Tells a task that it is given no shard any more. It may be gone, and then nobody ever takes the token: its list goes
-- in a while. A claim brings back any shard on it.
local LEFT_LIST_SECONDS = 60
local function leave_list(p, ready)
  wake_list(p, ready)
  redis.call('EXPIRE', p .. 'ready:' .. ready, LEFT_LIST_SECONDS)
  redis.call('EXPIRE', due_key(p, ready), LEFT_LIST_SECONDS)
end
