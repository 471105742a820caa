-- Callers: producers of other stores that met a full inbox.
--
-- Producers of this store that wait fill an inbox again inside each commit of its shard: whoever comes from elsewhere
-- would come too late, for ever. So of the room that a commit makes the callers' share is kept free of entries of this
-- store, as large as theirs of all who wait; up to a quarter of the inbox, or the largest entry that was refused. The
-- sorted set "callers:SHARD" has them by the number of the commit that they called after. Who has not called for
-- CALLER_COMMITS is forgotten, and with the last one what was kept. A shard that moves leaves them behind: they call
-- again where it is. Nor are they written to the append-only file, so that a call is not synced.

local function callers_key(p, shard) return p .. 'callers:' .. shard end

-- What is kept of an inbox for callers: bytes, entries, and the largest entry that was refused. Less than nothing when
-- they have had more than their share of late.
local function kept_room(record)
  if not record[KEPT] then
    local packed = redis.call('HGET', record[KEY], 'k')
    record[KEPT] = packed and {struct.unpack('<ddd', packed)} or {0, 0, 0}
  end
  return record[KEPT]
end

local function pack_kept(kept) return struct.pack('<ddd', kept[1], kept[2], kept[3]) end

local function most_kept(kept, bounds)
  local most_bytes = math.max(bounds[IN_BYTES_MAX] / 4, math.min(kept[3], bounds[IN_BYTES_MAX]))
  return most_bytes, math.max(bounds[IN_ENTRIES_MAX] / 4, 1)
end

-- Whether a producer of this store may put an entry into an inbox now.
local function may_place(record, size, bounds)
  if record[WAITERS] < CALLED then return has_room(record, size, bounds) end
  local kept, entries = kept_room(record), record[PLACED] - record[OFFSET]
  local bytes, kept_bytes, kept_entries = record[INBOX_BYTES] + size, math.max(0, kept[1]), math.max(0, kept[2])
  return entries == 0
    or entries + kept_entries < bounds[IN_ENTRIES_MAX] and bytes + kept_bytes <= bounds[IN_BYTES_MAX]
      and not is_limited(record, entries + kept_entries, bytes, kept_bytes)
end

-- The caller writes the record.
local function forget_callers(p, shard, record)
  if record[WAITERS] < CALLED then return end
  redis.call('UNLINK', callers_key(p, shard))
  redis.call('HDEL', record[KEY], 'k')
  record[WAITERS], record[KEPT] = record[WAITERS] - CALLED, nil
end

-- Keeps the callers' share of the room that a commit made. `record` has FIELDS.
local function keep_for_callers(change, shard, record, bytes, entries)
  local CALLER_COMMITS, CALLERS_LOOKED_AT = 1024, 64
  local key, waiters = callers_key(change.p, shard), record[WAITERS] - CALLED
  if record[COMMIT] % CALLERS_LOOKED_AT == 0 then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', record[COMMIT] - CALLER_COMMITS)
  end
  local callers = redis.call('ZCARD', key)
  if callers == 0 then return forget_callers(change.p, shard, record) end
  local kept, all = kept_room(record), callers + waiters
  local most_bytes, most_entries = most_kept(kept, change.bounds)
  kept[1] = math.min(kept[1] + bytes * callers / all, most_bytes)
  kept[2] = math.min(kept[2] + entries * callers / all, most_entries)
  record[FIELDS]['k'] = pack_kept(kept)
end

-- An entry of another store was refused for room.
local function note_caller(p, target, record, producer, size)
  local is_new, kept = record[WAITERS] < CALLED, kept_room(record)
  unlogged()
  redis.call('ZADD', callers_key(p, target), record[COMMIT], producer)
  logged()
  if is_new then record[WAITERS] = record[WAITERS] + CALLED end
  if is_new or size > kept[3] then
    kept[3] = math.max(kept[3], size)
    redis.call('HSET', record[KEY], 'h', pack_record(record), 'k', pack_kept(kept))
  end
end

-- An entry of another store came in, while there are callers. One that calls no more is forgotten in time: who has
-- brought one entry mostly brings another.
local function note_called(change, target, record, producer, size)
  local p, kept = change.p, kept_room(record)
  local most_bytes, most_entries = most_kept(kept, change.bounds)
  unlogged()
  redis.call('ZADD', callers_key(p, target), 'XX', record[COMMIT], producer)
  logged()
  kept[1], kept[2] = math.max(-most_bytes, kept[1] - size), math.max(-most_entries, kept[2] - 1)
  redis.call('HSET', record[KEY], 'k', pack_kept(kept))
end
