-- The shards' records, and the names of what is stored.

-- A record in memory is one array: its counters, packed in the hash's field "h" (one packed value is read and
-- written four times as fast as a field each), then what a function notes about it while it works.
local HOT = '<ddddddddddddddddddddd'
local HOT_SIZE = 21
local EPOCH, COMMIT, OFFSET, PLACED, INBOX_BYTES, ARRIVED, COMPLETED, OUT_ENTRIES = 1, 2, 3, 4, 5, 6, 7, 8
local OUT_BYTES, TABLE, READY, SOURCE, FINISHED, STATUS, PENDING, WAITERS = 9, 10, 11, 12, 13, 14, 15, 16
-- the watermark that the owner has taken (ms, 0 for none); then values, as `watermarks` says: reached, and told last;
-- the version of the latter; whether something reached waits for the outbox
local WATERMARK, REACHED, TOLD, TOLD_VERSION, MARKED = 17, 18, 19, 20, 21
-- its key; its owner's ready list; the last number it took from the producer that the function is about; whether
-- it has to be written back, and with which fields beside "h"
local KEY, LIST, TAKEN, DIRTY, FIELDS = 22, 23, 24, 25, 26
-- what is kept of its inbox for callers, where that was asked for
local KEPT = 27
-- and by name, where that is less than the bounds, what its inbox and its outbox may hold: inbox_limit, outbox_limit
-- (bytes, field "b")
-- WAITERS counts producers of this store that wait for room in the inbox, and this on top while it has callers
local CALLED = 2 ^ 40

-- READY: not on a list; on its owner's ready list or taken off it by a fetch; held for its outbox
local IDLE, LISTED, HELD = 0, 1, 2
-- STATUS. At the first two an owner works, so that STATUS <= ACTIVE asks for both; while a shard is COPYING, what
-- its commits change is noted.
local COPYING, ACTIVE, FROZEN, MOVED, INSTALLING, DEPARTED = -1, 0, 1, 2, 3, 4

-- A shard whose state was lost for good, and which was begun anew, lives once more. Its epochs and the numbers of what
-- it puts out go on above all that an earlier life can have had: so nothing of an earlier one is believed.
local LIFE = 1e11

local CHUNK = 4000 -- arguments of one unpack: Lua's stack takes 8000
local READ_CHUNK = 64

-- Bounds, packed
local BOUNDS = '<ddddddd'
local IN_BYTES_MAX, IN_ENTRIES_MAX, OUT_BYTES_MAX, OUT_ENTRIES_MAX, DRAIN_ENTRIES, DRAIN_BYTES = 1, 2, 3, 4, 5, 6
local NOTED_MAX = 7

local STORE = 'penstock:store'
local TOPOLOGIES = 'penstock:topologies'

local function collection_key(p, shard, collection)
  if collection == '' then return p .. 'value:' .. shard end
  return p .. 'collection:' .. #shard .. ':' .. shard .. ':' .. collection
end

local function outbox_key(p, producer, target)
  return p .. 'outbox:' .. #producer .. ':' .. producer .. ':' .. target
end

local function operator_of(shard)
  return string.match(shard, '^[^/]*')
end

-- The topology whose prefix this is.
local function uid_of(p)
  return string.match(p, '^penstock:(.*):$')
end

-- The changes of state that a round of a pre-copy has not copied, and those that it copies now.
local function changes_key(p, shard) return p .. 'changes:' .. shard end
local function round_key(p, shard) return p .. 'round:' .. shard end

local function generation()
  return tonumber(redis.call('HGET', STORE, 'generation') or 0)
end

-- The store's own hash names the topologies that are gone, so that one look answers for both.
local function generation_and_retracted(p)
  local got = redis.call('HMGET', STORE, 'generation', p)
  return tonumber(got[1] or 0), got[2] ~= false
end

local function retracted(p)
  return redis.call('HEXISTS', STORE, p) == 1
end

-- The record in a hash's fields "h", "l", ">PRODUCER" and "b", where given; nil without one.
local function unpack_record(key, packed, list, taken, limits)
  if not packed then return nil end
  local a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, q, r, s, t, u, v = struct.unpack(HOT, packed)
  local record = {
    a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, q, r, s, t, u, v,
    key, list, taken and tonumber(taken) or 0, false, false,
  }
  if limits then
    local inbox, outbox = struct.unpack('<dd', limits)
    if inbox < math.huge then record.inbox_limit = inbox end
    if outbox < math.huge then record.outbox_limit = outbox end
  end
  return record
end

-- The life of a record's shard: 0 for the first.
local function life_of(record) return math.floor(record[EPOCH] / LIFE) end

-- Whether a target takes this number of a pair now: the next one, the first of a producer that lives once more, or,
-- where the target does, the oldest that is left of what came before.
local function comes_next(record, number, is_oldest)
  local taken = record[TAKEN]
  if number <= taken then return false end
  return number == taken + 1 or number % LIFE == 1 or is_oldest and record[EPOCH] >= LIFE
end

local function read_record(p, shard)
  local key = p .. 'shard:' .. shard
  local got = redis.call('HMGET', key, 'h', 'l', 'b')
  return unpack_record(key, got[1], got[2], nil, got[3])
end

-- The record, unless there is none or the topology was retracted: whoever asks is answered UNKNOWN for both.
local function living_record(p, shard)
  if retracted(p) then return nil end
  return read_record(p, shard)
end

local function pack_record(record)
  return struct.pack(HOT, unpack(record, 1, HOT_SIZE))
end

-- What a shard that nobody can own here answers. One that is being copied here while its owner works elsewhere is
-- there still ("m").
local function not_here(record)
  local elsewhere = record[STATUS] ~= FROZEN and redis.call('HGET', record[KEY], 'm')
  return elsewhere and {'MOVED', elsewhere} or 'MOVING'
end

-- Writes what a shard's inbox and outbox may hold; nil is no limit.
local function set_limits(record, inbox, outbox)
  if inbox == record.inbox_limit and outbox == record.outbox_limit then return end
  record.inbox_limit, record.outbox_limit = inbox, outbox
  if inbox or outbox then
    redis.call('HSET', record[KEY], 'b', struct.pack('<dd', inbox or math.huge, outbox or math.huge))
  else
    redis.call('HDEL', record[KEY], 'b')
  end
end

-- Whether an inbox has a limit and would be over it with so many bytes, where others keep some room. Two entries are
-- always taken: one of this store beside one that another brings, or that would be refused for ever.
local function is_limited(record, entries, bytes, kept)
  local limit = record.inbox_limit
  return limit and entries > 1 and bytes + math.min(kept, limit / 2) > limit
end

local function has_room(record, size, bounds)
  local entries = record[PLACED] - record[OFFSET]
  -- an empty inbox takes an entry of whatever size, or it would wait forever
  return entries == 0
    or entries < bounds[IN_ENTRIES_MAX] and record[INBOX_BYTES] + size <= bounds[IN_BYTES_MAX]
      and not is_limited(record, entries, record[INBOX_BYTES] + size, 0)
end

local function over_bound(record, bounds)
  return record[OUT_BYTES] > math.min(bounds[OUT_BYTES_MAX], record.outbox_limit or math.huge)
    or record[OUT_ENTRIES] > bounds[OUT_ENTRIES_MAX]
end

local function has_work(record)
  if record[SOURCE] == 1 then return record[FINISHED] == 0 end
  return record[PLACED] > record[OFFSET]
end

-- Calls command(key, ...) for ARGV[from..to], a chunk at a time.
local function call_chunked(command, key, list, from, to)
  for first = from, to, CHUNK do
    redis.call(command, key, unpack(list, first, math.min(first + CHUNK - 1, to)))
  end
end

-- The pairs of a flat list, by name.
local function pairs_of(flat)
  local named = {}
  for i = 1, #flat, 2 do named[flat[i]] = flat[i + 1] end
  return named
end

-- The record of a shard that is owned under (generation, epoch), or else nil and why it is not.
-- Reads also `fields` of it, no more than CHUNK; answers their values from the fourth on.
local function owned_at(p, shard, now_generation, expected_generation, epoch, fields)
  local key = p .. 'shard:' .. shard
  local got = redis.call('HMGET', key, 'h', 'l', 'b', unpack(fields or {}))
  local record = unpack_record(key, got[1], got[2], nil, got[3])
  if not record then return nil, 'UNKNOWN' end
  if record[EPOCH] ~= epoch or record[STATUS] > ACTIVE or now_generation ~= expected_generation then
    return nil, 'FENCED'
  end
  return record, got
end

local function owned(p, shard, expected_generation, epoch)
  local now_generation, gone = generation_and_retracted(p)
  if gone then return nil, 'UNKNOWN' end
  return owned_at(p, shard, now_generation, expected_generation, epoch)
end
