-- A shard's state as its owner reads it.

-- How many fields of a collection are read at once: their values may be large, which shows only afterwards.
local FIELDS_FIRST, FIELDS_MAX = 16, 32

-- How many to read next, after `count` of them took `size` bytes, of which `left` may still be read.
local function fields_of(left, size, count)
  return math.max(1, math.min(FIELDS_MAX, size > 0 and math.floor(left * count / size) or FIELDS_MAX))
end

-- load: read fields of a collection, or the first of them where their values are large.
-- KEYS 1: prefix. ARGV: shard, generation, epoch, collection, bytes, field, ... Answers [value or nil, ...] or FENCED,
-- UNKNOWN.
local function load_state(keys, args)
  local record, refusal = owned(keys[1], args[1], tonumber(args[2]), tonumber(args[3]))
  if not record then return refusal end
  local key = collection_key(keys[1], args[1], args[4])
  if #args - 5 <= FIELDS_FIRST then
    return #args > 5 and redis.call('HMGET', key, unpack(args, 6)) or {}
  end
  local values, bytes_left, first, chunk, size = {}, tonumber(args[5]), 6, FIELDS_FIRST, 0
  while first <= #args and bytes_left > 0 do
    local last = math.min(first + chunk - 1, #args)
    local got = redis.call('HMGET', key, unpack(args, first, last))
    for i = 1, last - first + 1 do
      local value = got[i]
      values[#values + 1] = value
      if value then size = size + #value end
    end
    bytes_left = tonumber(args[5]) - size
    chunk = fields_of(bytes_left, size, #values)
    first = last + 1
  end
  return values
end

-- scan: read a collection in chunks.
-- KEYS 1: prefix. ARGV: shard, generation, epoch, collection, cursor, count, bytes.
-- Answers [cursor, [field, value, ...]] or FENCED, UNKNOWN.
local function scan_state(keys, args)
  local record, refusal = owned(keys[1], args[1], tonumber(args[2]), tonumber(args[3]))
  if not record then return refusal end
  local key, cursor, found = collection_key(keys[1], args[1], args[4]), args[5], {}
  local fields_left, bytes_left, chunk, size = tonumber(args[6]), tonumber(args[7]), FIELDS_FIRST, 0
  repeat
    local got = redis.call('HSCAN', key, cursor, 'COUNT', math.min(chunk, fields_left))
    cursor = got[1]
    for i = 1, #got[2], 2 do
      found[#found + 1], found[#found + 2] = got[2][i], got[2][i + 1]
      size = size + #got[2][i + 1]
    end
    fields_left, bytes_left = fields_left - #got[2] / 2, tonumber(args[7]) - size
    chunk = fields_of(bytes_left, size, #found / 2)
  until cursor == '0' or fields_left < 1 or bytes_left <= 0
  return {cursor, found}
end

-- state_snapshot: all state of a shard, for tests and tools.
-- KEYS 1: prefix. ARGV: shard. Answers [collection, [field, value, ...], ...].
local function state_snapshot(keys, args)
  local p, shard = keys[1], args[1]
  local answer = {'', redis.call('HGETALL', collection_key(p, shard, ''))}
  for _, collection in ipairs(redis.call('SMEMBERS', p .. 'collections:' .. shard)) do
    answer[#answer + 1] = collection
    answer[#answer + 1] = redis.call('HGETALL', collection_key(p, shard, collection))
  end
  return answer
end

register('load', load_state, READS)
register('scan', scan_state, READS)
register('state_snapshot', state_snapshot, READS)
