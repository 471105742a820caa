-- Moves between stores: their steps, at the source and at the target, and where a shard stands.

local SIZE_SAMPLES = 8

-- Wakes the task that the maps here give the shard to: it may have asked for it before it could be had.
local function wake_runner(p, shard)
  local operator = operator_of(shard)
  local executor = redis.call('HGET', p .. 'leaving:' .. operator, shard)
  if not executor then
    local place = redis.call('HGET', p .. 'shards:' .. operator, shard)
    if not place then return end
    executor = cmsgpack.unpack(place)[1]
  end
  local packed = redis.call('HGET', p .. 'tasks:' .. executor, 'mapping')
  local ready = packed and cmsgpack.unpack(packed)[shard]
  if ready then wake_list(p, ready) end
end

-- Takes a shard up: what waited for it is local from now on.
local function take_up(p, shard, record, bounds)
  record[STATUS] = ACTIVE
  redis.call('UNLINK', move_key(p, shard))
  redis.call('HDEL', record[KEY], 'm')
  redis.call('SREM', p .. 'outgoing', shard)
  record[WAITERS] = redis.call('ZCARD', p .. 'waiters:' .. shard)
  local change = new_change(p, bounds)
  record[DIRTY], record[FIELDS] = true, {}
  change.records[shard] = record
  -- those of whom the inbox has everything already make room in the line for others
  for _ = 1, 8 do
    pull_waiters(change, shard, record, 0, 0)
    if record[WAITERS] <= 0 or record[PLACED] > record[OFFSET] then break end
  end
  resume_telling(p, shard, record)
  write_back(change)
  wake_runner(p, shard)
end

-- precopy: begin to copy a shard while its owner works.
-- KEYS 1: prefix. ARGV: shard, target store, schedule version.
-- Answers [source, target, epoch, generation] or STALE, UNKNOWN, MOVING, [MOVED, store].
local function precopy(keys, args)
  local p, shard, target = keys[1], args[1], args[2]
  local record = living_record(p, shard)
  if not record then return 'UNKNOWN' end
  if record[STATUS] > ACTIVE then return not_here(record) end
  if not may_leave(p, shard, target, args[3]) then return 'STALE' end
  local held = read_token(p, shard)
  if record[STATUS] ~= COPYING or held.target ~= target or held.generation ~= generation() then
    -- newer than every owner so far, and than every move that was given up before
    local move = {
      source = redis.call('HGET', STORE, 'id'), target = target,
      epoch = math.max(record[EPOCH], held.epoch) + 1, generation = generation(),
    }
    forget_changes(p, shard)
    redis.call('UNLINK', move_key(p, shard))
    write_token(p, shard, move)
    record[STATUS] = COPYING
    write_record(record)
    held = move
  end
  return {held.source, held.target, held.epoch, held.generation}
end

-- next_round: the copy of a round is complete, begin the next one.
-- KEYS 1: prefix. ARGV: shard, token, resume. Answers OK, DONE, STALE, UNKNOWN.
local function next_round(keys, args)
  local p, shard = keys[1], args[1]
  local record = living_record(p, shard)
  if not record then return 'UNKNOWN' end
  local held = held_under(p, shard, record, token(args))
  local done = completed_round(args[6])
  if not held or not done or record[STATUS] ~= COPYING then return 'STALE' end
  if done + 1 == held.round then return 'DONE' end
  if done ~= held.round then return 'STALE' end
  turn(p, shard, done)
  return 'OK'
end

-- depart: the source gives the shard up.
-- KEYS 1: prefix. ARGV: shard, token. Answers OK, DONE, STALE, UNKNOWN.
local function depart(keys, args)
  local p, shard, move = keys[1], args[1], token(args)
  local record = living_record(p, shard)
  if not record then return 'UNKNOWN' end
  if is_gone(record) then return same_move(read_token(p, shard), move) and 'DONE' or 'STALE' end
  if record[STATUS] ~= FROZEN or not held_under(p, shard, record, move) then return 'STALE' end
  record[STATUS] = DEPARTED
  write_record(record)
  redis.call('HSET', record[KEY], 'm', move.target)
  forget_changes(p, shard)
  redis.call('HDEL', p .. 'leaving:' .. operator_of(shard), shard)
  restage(p, shard)
  -- there is somewhere to go for what waits now
  if record[WAITERS] > 0 then redis.call('PUBLISH', p .. 'outgoing', '') end
  return 'OK'
end

-- activate: the target takes the shard up.
-- KEYS 1: prefix. ARGV: shard, token, bounds. Answers OK, DONE, CONFLICT, STALE, UNKNOWN.
local function activate(keys, args)
  local p, shard, move = keys[1], args[1], token(args)
  local record = living_record(p, shard)
  if not record then return 'UNKNOWN' end
  if record[STATUS] ~= INSTALLING then
    local past = is_gone(record) and move.epoch + 1 or move.epoch
    return record[EPOCH] >= past and 'DONE' or 'STALE'
  end
  local held = read_token(p, shard)
  if not same_move(held, move) then return held.epoch > move.epoch and 'DONE' or 'STALE' end
  local got = redis.call('HMGET', move_key(p, shard), 'complete', 'discarded')
  if got[2] then return 'STALE' end
  if got[1] ~= '1' then return 'CONFLICT' end
  take_up(p, shard, record, {struct.unpack(BOUNDS, args[6])})
  return 'OK'
end

-- drop: the source's copy goes.
-- KEYS 1: prefix. ARGV: shard, token, entries. Answers OK, MORE, STALE, UNKNOWN.
local function drop(keys, args)
  local p, shard = keys[1], args[1]
  local record = living_record(p, shard)
  if not record then return 'UNKNOWN' end
  if not is_gone(record) or not same_move(read_token(p, shard), token(args)) then return 'STALE' end
  if record[STATUS] == MOVED then return 'OK' end
  local done = clear_some(p, shard, record, tonumber(args[6]))
  if done then record[STATUS] = MOVED end
  write_record(record)
  return done and 'OK' or 'MORE'
end

-- thaw: the source gives the move up, and takes the shard up again where it had stopped it.
-- KEYS 1: prefix. ARGV: shard, token, bounds. Answers OK, DONE, STALE, UNKNOWN, [MOVED, store].
local function thaw(keys, args)
  local p, shard = keys[1], args[1]
  local record = living_record(p, shard)
  if not record then return 'UNKNOWN' end
  if record[STATUS] == ACTIVE then return 'DONE' end
  if is_gone(record) then return not_here(record) end
  if record[STATUS] == INSTALLING or read_token(p, shard).epoch ~= tonumber(args[4]) then return 'STALE' end
  forget_changes(p, shard)
  if record[STATUS] == COPYING then
    -- the token stays: the next one is newer
    record[STATUS] = ACTIVE
    write_record(record)
  else
    take_up(p, shard, record, {struct.unpack(BOUNDS, args[6])})
  end
  return 'OK'
end

-- discard: the target's copy of a dead move goes.
-- KEYS 1: prefix. ARGV: shard, token, entries. Answers OK, MORE, STALE, UNKNOWN.
local function discard(keys, args)
  local p, shard, move = keys[1], args[1], token(args)
  local record = living_record(p, shard)
  if not record then return 'UNKNOWN' end
  if record[STATUS] == MOVED then return 'OK' end
  if record[STATUS] ~= INSTALLING or read_token(p, shard).epoch > move.epoch then return 'STALE' end
  redis.call('HSET', move_key(p, shard), 'discarded', 1)
  local done = clear_some(p, shard, record, tonumber(args[6]))
  if done then
    record[STATUS], record[EPOCH] = MOVED, move.epoch
    redis.call('HSET', record[KEY], 'm', move.source)
    redis.call('UNLINK', move_key(p, shard))
    redis.call('HDEL', p .. 'leaving:' .. operator_of(shard), shard)
    write_token(p, shard, move)
  end
  write_record(record)
  if done then restage(p, shard) end
  return done and 'OK' or 'MORE'
end

-- Whether what was noted since the round began fits into a chunk of `bytes` and `entries`.
local function fits(p, shard, bytes, entries)
  if redis.call('SCARD', changes_key(p, shard)) > entries then return false end
  for _, name in ipairs(redis.call('SMEMBERS', changes_key(p, shard))) do
    local kind, rest = string.sub(name, 1, 1), string.sub(name, 2)
    bytes = bytes - #name
    if kind == 's' then
      local length, from = string.match(rest, '^(%d+):()')
      local key = collection_key(p, shard, string.sub(rest, from, from + length - 1))
      bytes = bytes - redis.call('HSTRLEN', key, string.sub(rest, from + length))
    elseif kind == 'w' then
      -- what came into it since is noted too: this counts how much there is to scan
      entries = entries - redis.call('HLEN', collection_key(p, shard, rest))
    end
    if bytes < 0 or entries < 0 then return false end
  end
  return true
end

-- Whether all of a shard, of which nothing is copied yet, fits into a chunk; its size is taken from samples.
local function fits_whole(p, shard, record, bytes, entries)
  local keys = {collection_key(p, shard, '')}
  bytes = bytes - record[INBOX_BYTES] - record[OUT_BYTES]
  entries = entries - redis.call('ZCARD', p .. 'timers:' .. shard)
    - 2 * (record[PLACED] - record[OFFSET] + record[OUT_ENTRIES])
  if redis.call('SCARD', p .. 'collections:' .. shard) > entries then return false end
  for _, name in ipairs(redis.call('SMEMBERS', p .. 'collections:' .. shard)) do
    keys[#keys + 1] = collection_key(p, shard, name)
  end
  for _, key in ipairs(keys) do
    entries = entries - redis.call('HLEN', key)
    if entries < 0 or bytes < 0 then return false end
    bytes = bytes - (redis.call('MEMORY', 'USAGE', key, 'SAMPLES', SIZE_SAMPLES) or 0)
  end
  return bytes >= 0
end

-- read_move: where a shard stands.
-- KEYS 1: prefix. ARGV: shard, bytes, entries. Answers nil or [status, epoch, source, target, epoch of the move, its
-- generation, chunks, resume, complete (0, 1), rounds installed, generation of the store, round that is being
-- copied, changes that it copies, changes since, whether those (before the first round: all of the shard) fit into a
-- chunk of so many bytes and entries].
local function read_move(keys, args)
  local p, shard = keys[1], args[1]
  local record = living_record(p, shard)
  if not record then return nil end
  local held = read_token(p, shard)
  local got = redis.call('HMGET', move_key(p, shard), 'number', 'resume', 'complete', 'rounds')
  local bytes, entries, little = tonumber(args[2]), tonumber(args[3]), false
  if record[STATUS] == COPYING then
    little = held.round == 0 and fits_whole(p, shard, record, bytes, entries)
      or held.round > 0 and fits(p, shard, bytes, entries)
  end
  return {
    record[STATUS], record[EPOCH], held.source or '', held.target or '', held.epoch, held.generation,
    tonumber(got[1] or 0), got[2] or '', tonumber(got[3] or 0), tonumber(got[4] or 0), generation(), held.round,
    redis.call('SCARD', round_key(p, shard)), redis.call('SCARD', changes_key(p, shard)),
    little and 1 or 0,
  }
end

register('precopy', precopy, WRITES)
register('next_round', next_round, WRITES)
register('depart', depart, WRITES)
register('activate', activate, WRITES)
register('drop', drop, WRITES)
register('thaw', thaw, WRITES)
register('discard', discard, WRITES)
register('read_move', read_move, READS)
