-- Looking: counters, weights, and the metric rows that workers leave here.

-- put_metrics: keep the newest metric rows. They do not go to the append-only file.
-- KEYS 1: prefix. ARGV: name, packed row, ... Answers OK, UNKNOWN.
local function put_metrics(keys, args)
  if retracted(keys[1]) then return 'UNKNOWN' end
  unlogged()
  call_chunked('HSET', keys[1] .. 'metrics', args, 1, #args)
  return 'OK'
end

-- measure: counters of shards.
-- KEYS 1: prefix. ARGV: shard, ... Answers [generation, packed counters, and limits where there are some, executor,
-- counts, position, when its next timer is due, ...], nil for what is not there.
local function measure(keys, args)
  local answer = {generation()}
  for _, shard in ipairs(args) do
    local got = redis.call('HMGET', keys[1] .. 'shard:' .. shard, 'h', 'x', 'c', 'p', 'b')
    local at = #answer
    answer[at + 1], answer[at + 2], answer[at + 3], answer[at + 4] = got[1], got[2], got[3], got[4]
    if got[1] and got[5] then answer[at + 1] = got[1] .. got[5] end
    local record, next_timer = unpack_record('', got[1]), false
    if record and record[SOURCE] == 0 then
      next_timer = redis.call('ZRANGE', timers_key(keys[1], shard), 0, 0, 'WITHSCORES')[2] or false
    end
    answer[at + 5] = next_timer
  end
  return answer
end

-- weigh: what shards take of the store's memory, by samples.
-- KEYS 1: prefix. ARGV: samples, shard, ... Answers [bytes or -1, ...].
local function weigh(keys, args)
  local p, samples, answer = keys[1], args[1], {}
  local function size(key) return redis.call('MEMORY', 'USAGE', key, 'SAMPLES', samples) or 0 end
  for i = 2, #args do
    local shard = args[i]
    local record, bytes = read_record(p, shard), -1
    if record then
      bytes = record[OUT_BYTES] + size(record[KEY])
      for _, kind in ipairs({'value:', 'timers:', 'inbox:', 'collections:'}) do bytes = bytes + size(p .. kind .. shard) end
      local names, sampled = redis.call('SRANDMEMBER', p .. 'collections:' .. shard, samples), 0
      for _, name in ipairs(names) do sampled = sampled + size(collection_key(p, shard, name)) end
      if #names > 0 then bytes = bytes + sampled * redis.call('SCARD', p .. 'collections:' .. shard) / #names end
    end
    answer[#answer + 1] = math.floor(bytes)
  end
  return answer
end

register('put_metrics', put_metrics, WRITES)
register('measure', measure, READS)
register('weigh', weigh, READS)
