-- Shards: their making, and who owns them.

local CLEARED_AT_ONCE = 1024

-- What an earlier stay or move left of a shard that lives once more goes. Answers nil when nothing is left of it, or
-- else what is to be answered.
local function left_behind(p, shard, old, born)
  local is_here = old[STATUS] <= FROZEN
  if is_here or old[EPOCH] >= born then return 'EXISTS' end
  if not clear_some(p, shard, old, CLEARED_AT_ONCE) then
    write_record(old)
    return 'BUSY'
  end
  redis.call('UNLINK', move_key(p, shard), old[KEY])
  restage(p, shard)
end

-- create: make a shard's record.
-- KEYS 1: prefix. ARGV: shard, table version, position, source (0, 1), bounds, life.
-- Answers OK, EXISTS, BUSY, UNKNOWN.
local function create(keys, args)
  local p, shard, born = keys[1], args[1], tonumber(args[6]) * LIFE
  if retracted(p) then return 'UNKNOWN' end
  local key = p .. 'shard:' .. shard
  local old = read_record(p, shard)
  local refusal = old and left_behind(p, shard, old, born)
  if refusal then return refusal end
  local record = {
    born, 0, 0, 0, 0, 0, 0, 0, 0, tonumber(args[2]), IDLE, tonumber(args[4]), 0, ACTIVE, 0, 0, 0, 0, 0, 0, 0,
    key, false, 0, true, {},
  }
  redis.call('HSET', key, 'h', pack_record(record), 'p', args[3])
  redis.call('SADD', TOPOLOGIES, uid_of(p))
  -- entries may have been waiting for a shard that was not here: they are local from now on
  if redis.call('SREM', p .. 'outgoing', shard) == 1 or old then
    local change = new_change(p, {struct.unpack(BOUNDS, args[5])})
    record[WAITERS] = redis.call('ZCARD', p .. 'waiters:' .. shard)
    change.records[shard] = record
    pull_waiters(change, shard, record, 0, 0)
    write_back(change)
  end
  return 'OK'
end

-- reopen: a source's partition has more than when it was read to its end.
-- KEYS 1: prefix. ARGV: shard. Answers OK, DONE (it was not at its end), UNKNOWN, MOVING, [MOVED, store].
local function reopen(keys, args)
  local p, shard = keys[1], args[1]
  local record = living_record(p, shard)
  if not record then return 'UNKNOWN' end
  if record[STATUS] > ACTIVE then return not_here(record) end
  if record[SOURCE] == 0 or record[FINISHED] == 0 then return 'DONE' end
  record[FINISHED] = 0
  if record[READY] == IDLE and record[LIST] then
    record[READY] = LISTED
    append_names(p .. 'ready:' .. record[LIST], {shard})
  end
  redis.call('HSET', record[KEY], 'h', pack_record(record))
  return 'OK'
end

-- Whether the maps give the shard to this executor, worker start and version.
local function entitled(p, shard, executor, incarnation, claimed_version)
  local operator = operator_of(shard)
  local published = redis.call('HGET', p .. 'schedule:' .. operator, 'version')
  if not published or tonumber(published) > claimed_version then return false end
  local packed = redis.call('HGET', p .. 'shards:' .. operator, shard)
  if not packed then return false end
  if cmsgpack.unpack(packed)[1] ~= executor
    and redis.call('HGET', p .. 'leaving:' .. operator, shard) ~= executor then
    return false
  end
  packed = redis.call('HGET', p .. 'executors:' .. operator, executor)
    or redis.call('HGET', p .. 'keepers:' .. operator, executor)
  if not packed then return false end
  return enrolled_incarnation(p, cmsgpack.unpack(packed)[1]) == incarnation
end

-- claim: take a shard.
-- KEYS 1: prefix. ARGV: shard, executor, incarnation, ready list, schedule version.
-- Answers [epoch, generation, commit, offset, position, table version, finished, within, counts, watermark (ms, 0 for
-- none), sink, issued, acknowledged, sink's position, intent, ...] or STALE, UNKNOWN, MOVING, [MOVED, store].
local function claim(keys, args)
  local p, shard, executor, incarnation, ready = keys[1], args[1], args[2], args[3], args[4]
  local record = living_record(p, shard)
  if not record then return 'UNKNOWN' end
  if record[STATUS] > ACTIVE then return not_here(record) end
  if not entitled(p, shard, executor, incarnation, tonumber(args[5])) then return 'STALE' end
  local key = record[KEY]
  -- from both, whatever the record says: a list may come from a snapshot that is older than the record
  if record[LIST] then take_name(p .. 'ready:' .. record[LIST], shard) end
  if record[LIST] ~= ready then take_name(p .. 'ready:' .. ready, shard) end
  record[EPOCH] = record[EPOCH] + 1
  record[READY] = IDLE
  if has_work(record) then
    record[READY] = LISTED
    append_names(p .. 'ready:' .. ready, {shard})
  end
  redis.call('HSET', key, 'h', pack_record(record), 'x', executor, 'n', incarnation, 'l', ready)
  -- its limits were for the pace of its last owner
  redis.call('HDEL', key, 'b')
  if record[SOURCE] == 0 then look_when_due(p, ready, shard) end
  restage(p, shard)
  local opaque = redis.call('HMGET', key, 'p', 'w', 'c')
  local answer = {
    record[EPOCH], generation(), record[COMMIT], record[OFFSET], opaque[1], record[TABLE],
    record[FINISHED], opaque[2] or '', opaque[3] or '', record[WATERMARK],
  }
  -- a record has fields for each of thousands of pairs; only sinks are looked at
  local acknowledged, cursor = {}, '0'
  repeat
    local found = redis.call('HSCAN', key, cursor, 'MATCH', '!*', 'COUNT', 1000)
    for i = 1, #found[2], 2 do acknowledged[string.sub(found[2][i], 2)] = found[2][i + 1] end
    cursor = found[1]
  until cursor == '0'
  for sink, number in pairs(acknowledged) do
    local got = redis.call('HMGET', key, '<' .. sink, '@' .. sink, '&' .. sink)
    local cursor_of = {sink, tonumber(got[1]), tonumber(number), got[2] or '', got[3] or ''}
    for i = 1, #cursor_of do answer[#answer + 1] = cursor_of[i] end
  end
  return answer
end

register('create', create, WRITES)
register('reopen', reopen, WRITES)
register('claim', claim, WRITES)
