-- Timers of a task's shards: when to look at which shard.
--
-- A shard's timers are the sorted set "timers:SHARD", by when they are due (ms of the clock that fetches tell). For each
-- ready list the sorted set "due:LIST" has its shards with timers, by when to look at them: their earliest timer, or a
-- little later than now where a look found one that waits its turn or is held. So a fetch reads the head of one set,
-- whatever the number of shards and timers. It is a hint: who looks reads the shard's own timers and mends what is
-- wrong, and like ready lists it is not written to the append-only file, as claims fill it anew.

local DUE_SHARDS = 128 -- looked at in one fetch: twice those that it hands out, of which half may have come off the list
local LATER_MS = 20

local function timers_key(p, shard) return p .. 'timers:' .. shard end
local function due_key(p, list) return p .. 'due:' .. list end

local function look_at(p, list, shard, when_ms)
  unlogged()
  redis.call('ZADD', due_key(p, list), when_ms, shard)
  logged()
end

local function look_no_more(p, list, shard)
  unlogged()
  redis.call('ZREM', due_key(p, list), shard)
  logged()
end

-- The shard's timers changed, or its list.
local function look_when_due(p, list, shard)
  local first = redis.call('ZRANGE', timers_key(p, shard), 0, 0, 'WITHSCORES')
  if first[2] then look_at(p, list, shard, first[2]) else look_no_more(p, list, shard) end
end

-- Timers of a shard that are due, the earliest first: [name, due (ms), ...].
local function due_timers(p, shard, now_ms, most)
  return redis.call('ZRANGEBYSCORE', timers_key(p, shard), '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, most)
end
