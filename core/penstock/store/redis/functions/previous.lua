#!lua name=penstock

-- The node store's protocol as a library of Redis Functions (Redis >= 7.0, Valkey >= 7.2).
--
-- It is joined of parts, in the order that `redis.library` names. What the shared parts name, all parts below see; a
-- role's part is a block of its own, which ends by registering its functions.
--
-- Every function is called with one key, the topology's prefix ("penstock:<uid>:"), and builds the
-- others from it; that needs one server, not a cluster (flag no-cluster). A function validates
-- everything before its first write: nothing rolls back. Its effects reach the append-only file as
-- one transaction. Function names end in the protocol's version: code of another version finds none of them.
--
-- Numbers that never leave a record travel packed as doubles ("struct", exact to 2^53). Python's side of a role is the
-- module of the same name beside this folder (`redis/commits.py` for `commits.lua`).

local VERSION = 9

-- Whatever writes may run at maxmemory, or a full store could never empty itself. Only append, fetch and install are
-- refused: so a task learns, at no cost, that the store is full. It and who delivers ask the first two again under
-- their other names, and with narrower bounds.
local function register(name, callback, flags)
  redis.register_function{
    function_name = 'penstock_' .. name .. '_' .. VERSION, callback = callback, flags = flags,
  }
end
local WRITES = {'allow-oom', 'no-cluster'}
local REFUSED_WHEN_FULL = {'no-cluster'}
local READS = {'no-writes', 'no-cluster'}

-- penstock_version: the protocol's version.
-- KEYS none. ARGV none. Answers an integer.
local function version()
  return VERSION
end

redis.register_function{function_name = 'penstock_version', callback = version, flags = READS}
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
-- WAITERS counts producers of this store that wait for room in the inbox, and this on top while it has callers
local CALLED = 2 ^ 40

-- READY: not on a list; on its owner's ready list or taken off it by a fetch; held for its outbox
local IDLE, LISTED, HELD = 0, 1, 2
-- STATUS. At the first two an owner works, so that STATUS <= ACTIVE asks for both; while a shard is COPYING, what
-- its commits change is noted.
local COPYING, ACTIVE, FROZEN, MOVED, INSTALLING, DEPARTED = -1, 0, 1, 2, 3, 4

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

-- The record in a hash's fields "h", "l" and ">PRODUCER", where given; nil without one.
local function unpack_record(key, packed, list, taken)
  if not packed then return nil end
  local a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, q, r, s, t, u, v = struct.unpack(HOT, packed)
  return {
    a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, q, r, s, t, u, v,
    key, list, taken and tonumber(taken) or 0, false, false,
  }
end

local function read_record(p, shard)
  local key = p .. 'shard:' .. shard
  local got = redis.call('HMGET', key, 'h', 'l')
  return unpack_record(key, got[1], got[2])
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

local function has_room(record, size, bounds)
  local entries = record[PLACED] - record[OFFSET]
  -- an empty inbox takes an entry of whatever size, or it would wait forever
  return entries == 0
    or (entries < bounds[IN_ENTRIES_MAX] and record[INBOX_BYTES] + size <= bounds[IN_BYTES_MAX])
end

local function over_bound(record, bounds)
  return record[OUT_BYTES] > bounds[OUT_BYTES_MAX] or record[OUT_ENTRIES] > bounds[OUT_ENTRIES_MAX]
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
-- Reads also `fields` of it, no more than CHUNK; answers their values from the third on.
local function owned_at(p, shard, now_generation, expected_generation, epoch, fields)
  local key = p .. 'shard:' .. shard
  local got = redis.call('HMGET', key, 'h', 'l', unpack(fields or {}))
  local record = unpack_record(key, got[1], got[2])
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
-- Names on ready lists: what a task waits for.

local TOKEN = '!'

-- Ready lists are not written to the append-only file: a start raises the generation, and the claims that this makes
-- needful fill the lists anew. Whatever writes to one does so between these two calls.
local function unlogged() redis.set_repl(redis.REPL_NONE) end
local function logged() redis.set_repl(redis.REPL_ALL) end

-- Puts names at the end of a ready list. One that was empty has its bell rung (a channel of the list's name):
-- its task may be listening, and only then.
local function append_names(key, names)
  unlogged()
  local count = redis.call('RPUSH', key, unpack(names, 1, math.min(#names, CHUNK)))
  local was_empty = count == math.min(#names, CHUNK)
  call_chunked('RPUSH', key, names, CHUNK + 1, #names)
  if was_empty then redis.call('PUBLISH', key, '') end
  logged()
end

-- Takes a shard off a ready list; answers whether it was there.
local function take_name(key, shard)
  unlogged()
  local removed = redis.call('LREM', key, 0, shard)
  logged()
  return removed > 0
end

-- Puts the control token at the head of a ready list, where it always is: at most one.
local function wake_list(p, ready)
  local key = p .. 'ready:' .. ready
  local first = redis.call('LINDEX', key, 0)
  unlogged()
  if first ~= TOKEN then redis.call('LPUSH', key, TOKEN) end
  if not first then redis.call('PUBLISH', key, '') end
  logged()
end
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
-- Watermarks: what a shard's owner says it has reached, and what is told of it to the stages behind.
--
-- A value is a watermark in ms, doubled, and one more for a shard that is idle; 0 is none. A shard reaches its
-- watermark when no timer before it is left. What it has put out by then may wait in its outbox: "marks:SHARD" has the
-- targets for which something does, each with the last number issued, and under "" the value; it is told when all of
-- that has reached its inboxes. Until then what is reached later waits its turn, so that telling never stands still
-- while an outbox is never empty.
--
-- What was told is a fact about one producer, true wherever it is known: "facts:OPERATOR" has (version, value) of each
-- shard, of this store or of others. The sorted sets "waited:OPERATOR" and "idle:OPERATOR" have its shards by
-- watermark, so that the least is one look; "strange:OPERATOR" those among them that no schedule here names yet. A shard
-- that moves takes its version along. Each start of a store has versions for itself, above all that earlier ones told:
-- one that lost its last writes could else not be heard for long.

local FACT = '<dd'
local VERSIONS_A_START = 2 ^ 32

local function facts_key(p, operator) return p .. 'facts:' .. operator end
local function waited_key(p, operator) return p .. 'waited:' .. operator end
local function idle_key(p, operator) return p .. 'idle:' .. operator end
local function strange_key(p, operator) return p .. 'strange:' .. operator end
local function marks_key(p, shard) return p .. 'marks:' .. shard end

-- Writes what is known of a shard.
local function keep_fact(p, shard, version, value)
  local operator = operator_of(shard)
  local is_idle = value % 2 == 1
  local into, from = waited_key(p, operator), idle_key(p, operator)
  if is_idle then into, from = from, into end
  local is_new = redis.call('HSET', facts_key(p, operator), shard, struct.pack(FACT, version, value))
  if is_new == 1 then
    redis.call('SADD', p .. 'telling', operator)
    redis.call('SADD', TOPOLOGIES, uid_of(p))
    if redis.call('HEXISTS', p .. 'shards:' .. operator, shard) == 0 then
      redis.call('SADD', strange_key(p, operator), shard)
    end
  end
  redis.call('ZADD', into, math.floor(value / 2), shard)
  redis.call('ZREM', from, shard)
end

-- A fact that comes from elsewhere: counts when it is newer than what is known.
local function take_fact(p, shard, version, value)
  local known = redis.call('HGET', facts_key(p, operator_of(shard)), shard)
  if known then
    local known_version, known_value = struct.unpack(FACT, known)
    if version < known_version or version == known_version and value <= known_value then return end
  end
  keep_fact(p, shard, version, value)
end

-- A newer schedule of an operator may name shards of which something is known already.
local function know_strangers(p, operator)
  for _, shard in ipairs(redis.call('SMEMBERS', strange_key(p, operator))) do
    if redis.call('HEXISTS', p .. 'shards:' .. operator, shard) == 1 then
      redis.call('SREM', strange_key(p, operator), shard)
    end
  end
end

local function tell(p, shard, record, value)
  record[TOLD_VERSION] = math.max(record[TOLD_VERSION], generation() * VERSIONS_A_START) + 1
  record[TOLD] = value
  keep_fact(p, shard, record[TOLD_VERSION], value)
end

-- Notes what has to reach its inboxes before what is reached now may be told. Last numbers that a commit is about to
-- write stand in the record's FIELDS.
local function mark(p, shard, record)
  local targets, issued, marks = redis.call('SMEMBERS', p .. 'pending:' .. shard), record[FIELDS] or {}, {}
  for first = 1, #targets, CHUNK do
    local names = {}
    for i = first, math.min(first + CHUNK - 1, #targets) do names[#names + 1] = '<' .. targets[i] end
    local got = redis.call('HMGET', record[KEY], unpack(names))
    for i, name in ipairs(names) do
      marks[#marks + 1], marks[#marks + 2] = targets[first + i - 1], issued[name] or got[i]
    end
  end
  marks[#marks + 1], marks[#marks + 2] = '', string.format('%d', record[REACHED])
  call_chunked('HSET', marks_key(p, shard), marks, 1, #marks)
  record[MARKED] = 1
end

-- Tells what was reached, or notes what that waits for. The caller writes the record.
local function tell_or_mark(p, shard, record)
  if record[MARKED] == 1 or record[REACHED] == record[TOLD] then return end
  if record[PENDING] == 0 then tell(p, shard, record, record[REACHED]) else mark(p, shard, record) end
end

-- Tells what was marked when nothing is left that it waits for. The caller writes the record.
local function tell_marked(p, shard, record)
  local key = marks_key(p, shard)
  if redis.call('HLEN', key) > 1 then return end
  local value = redis.call('HGET', key, '')
  redis.call('UNLINK', key)
  record[MARKED] = 0
  if value then tell(p, shard, record, tonumber(value)) end
  tell_or_mark(p, shard, record)
end

-- Entries of a pair up to number `last`, all where `is_all`, have left the outbox for the target's inbox.
local function passed(p, shard, record, target, last, is_all)
  if record[MARKED] == 0 then return end
  local key = marks_key(p, shard)
  local number = redis.call('HGET', key, target)
  if not number or not is_all and last < tonumber(number) then return end
  redis.call('HDEL', key, target)
  -- a shard that is stopped for a move goes on where it is taken up
  if record[STATUS] <= ACTIVE then tell_marked(p, shard, record) end
end

-- The watermark that an owner says its shard has taken; it never goes back.
local function take_watermark(record, ms)
  if ms ~= 0 and (record[WATERMARK] == 0 or ms > record[WATERMARK]) then record[WATERMARK] = ms end
end

-- Whether the shard is as far as its watermark: so it is told, or will be. The caller writes the record.
local function reach(p, shard, record, is_idle)
  if record[SOURCE] == 0 then
    local first = redis.call('ZRANGE', timers_key(p, shard), 0, 0, 'WITHSCORES')
    if first[2] and tonumber(first[2]) < record[WATERMARK] then return end
  end
  record[REACHED] = 2 * record[WATERMARK] + (is_idle and 1 or 0)
  tell_or_mark(p, shard, record)
end

-- A shard that has come, or is taken up again.
local function resume_telling(p, shard, record)
  if record[TOLD_VERSION] > 0 then take_fact(p, shard, record[TOLD_VERSION], record[TOLD]) end
  if record[MARKED] == 1 then tell_marked(p, shard, record) else tell_or_mark(p, shard, record) end
end

-- The watermark of a stage that the operators args[first] to args[last] feed: ms, nil for none, and whether all is idle.
-- A keyed stage is given with a slash behind it: its shards all take one watermark, so the last one counts, idle or not.
local function input_watermark(p, args, first, last)
  local least, most
  for i = first, last do
    local operator, is_keyed = args[i], false
    if string.sub(operator, -1) == '/' then operator, is_keyed = string.sub(operator, 1, -2), true end
    local waited, idle = waited_key(p, operator), idle_key(p, operator)
    local shards = redis.call('HLEN', p .. 'shards:' .. operator)
    local known = redis.call('ZCARD', waited) + redis.call('ZCARD', idle)
    if known > 0 then known = known - redis.call('SCARD', strange_key(p, operator)) end
    if shards == 0 or known < shards then return nil, false end
    local slowest = redis.call('ZRANGE', waited, 0, 0, 'WITHSCORES')[2]
    if slowest then
      local last_idle = is_keyed and redis.call('ZRANGE', idle, 0, 0, 'WITHSCORES')[2]
      least = math.min(least or math.huge, tonumber(slowest), tonumber(last_idle or slowest))
    else
      local found = redis.call(is_keyed and 'ZRANGE' or 'ZREVRANGE', idle, 0, 0, 'WITHSCORES')[2]
      most = math.max(most or -math.huge, tonumber(found))
    end
  end
  if least then return least ~= 0 and least or nil, false end
  return most and most ~= 0 and most or nil, true
end
-- A change: what one function is about to do to several records. They are read once, changed in memory and written
-- back together at the end, with the last numbers of their pairs; names for ready lists are pushed together too.

-- `producer` is the shard whose pairs the function is about, if any.
local function new_change(p, bounds, producer)
  return {p = p, bounds = bounds, from = producer and '>' .. producer, records = {}, pushes = {}}
end

-- The record of `shard`, with the last number it took from the change's producer; nil without a record.
local function change_record(change, shard)
  local record = change.records[shard]
  if record == nil then
    local key = change.p .. 'shard:' .. shard
    local got = redis.call('HMGET', key, 'h', 'l', change.from or 'l')
    record = unpack_record(key, got[1], got[2], change.from and got[3]) or false
    change.records[shard] = record
  end
  return record or nil
end

-- Puts a shard at the end of its owner's ready list, unless nobody owns it.
local function enlist(change, shard, record)
  local list = record[LIST]
  if not list then return end
  record[READY], record[DIRTY] = LISTED, true
  local names = change.pushes[list]
  if names then
    names[#names + 1] = shard
  else
    change.pushes[list] = {shard}
  end
end

-- Hands out again a shard that was held, once its outbox is within the bound.
local function release(change, shard, record)
  if record[READY] == HELD and not over_bound(record, change.bounds) then
    record[READY], record[DIRTY] = IDLE, true
    if has_work(record) then enlist(change, shard, record) end
  end
end

-- Puts an entry into an inbox; the caller notes the pair's number.
local function place(change, target, record, placed_us, rows, payload)
  local placed = record[PLACED] + 1
  redis.call('XADD', change.p .. 'inbox:' .. target, string.format('%d-0', placed), placed_us, payload)
  record[PLACED], record[DIRTY] = placed, true
  record[INBOX_BYTES] = record[INBOX_BYTES] + #payload
  record[ARRIVED] = record[ARRIVED] + rows
  if record[READY] == IDLE then enlist(change, target, record) end
end

local function write_back(change)
  for _, record in pairs(change.records) do
    if record and record[DIRTY] then
      local fields = record[FIELDS]
      if fields then
        local arguments, count = {}, 0
        for field, value in pairs(fields) do
          arguments[count + 1], arguments[count + 2] = field, value
          count = count + 2
        end
        redis.call('HSET', record[KEY], 'h', pack_record(record), unpack(arguments))
      elseif record[TAKEN] > 0 then
        redis.call('HSET', record[KEY], 'h', pack_record(record), change.from, string.format('%d', record[TAKEN]))
      else
        redis.call('HSET', record[KEY], 'h', pack_record(record))
      end
    end
  end
  for list, names in pairs(change.pushes) do
    append_names(change.p .. 'ready:' .. list, names)
  end
end

-- Puts a producer at the end of those that wait for a target; answers 1 when it did not wait before.
local function wait_in_line(p, target, producer)
  local key = p .. 'waiters:' .. target
  local last = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
  return redis.call('ZADD', key, (last[2] or 0) + 1, producer)
end

-- The pair has nothing in the outbox any more: forget that it waited.
local function pair_emptied(change, producer, source, target, record)
  local p = change.p
  redis.call('UNLINK', outbox_key(p, producer, target))
  source[PENDING] = source[PENDING] - redis.call('SREM', p .. 'pending:' .. producer, target)
  source[DIRTY] = true
  local removed = redis.call('ZREM', p .. 'waiters:' .. target, producer)
  if record then
    record[WAITERS], record[DIRTY] = record[WAITERS] - removed, true
  end
end
-- Callers: producers of other stores that met a full inbox.
--
-- Producers of this store that wait fill an inbox again inside each commit of its shard: whoever comes from elsewhere
-- would come too late, for ever. So of the room that a commit makes the callers' share is kept free of entries of this
-- store, as large as theirs of all who wait; up to a quarter of the inbox, or the largest entry that was refused. The
-- sorted set "callers:SHARD" has them by the number of the commit that they called after. Who has not called for
-- CALLER_COMMITS is forgotten, and with the last one what was kept. A shard that moves leaves them behind: they call
-- again where it is. Nor are they written to the append-only file, so that a call is not synced.

local CALLER_COMMITS, CALLERS_LOOKED_AT = 1024, 64

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
  local bytes = record[INBOX_BYTES] + size
  return entries == 0
    or entries + math.max(0, kept[2]) < bounds[IN_ENTRIES_MAX]
      and bytes + math.max(0, kept[1]) <= bounds[IN_BYTES_MAX]
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
-- Inboxes and outboxes: what waits is put into a queue, read, counted and moved on from here.

local READ_ENTRIES = 512 -- a call's answer takes no more of them, at 5 microseconds each

-- How many entries to read at once for `wanted` bytes, where `entries` of them hold `size` bytes.
local function entries_of(wanted, size, entries)
  if size <= 0 then return READ_CHUNK end
  return math.max(1, math.min(READ_CHUNK, math.ceil(wanted * entries / size)))
end

-- Reads a stream from number `from` on, about bytes_max bytes of it and entries_max entries, one at the least.
-- `count`, `size` are what the stream holds from there, where known. Answers entries, bytes.
local function read_stream(key, from, bytes_max, entries_max, count, size)
  if size <= bytes_max and count <= entries_max then
    return redis.call('XRANGE', key, string.format('%d-0', from), '+'), size
  end
  local answer, used = {}, 0
  local chunk = entries_of(bytes_max, size, count)
  while true do
    local entries = redis.call('XRANGE', key, from .. '-0', '+', 'COUNT', chunk)
    for _, entry in ipairs(entries) do
      local bytes = #entry[2][2]
      if #answer > 0 and (used + bytes > bytes_max or #answer >= entries_max) then return answer, used end
      answer[#answer + 1] = entry
      used = used + bytes
    end
    if #entries < chunk then return answer, used end
    from = tonumber(string.match(entries[#entries][1], '^%d+')) + 1
    chunk = entries_of(bytes_max - used, used, #answer)
  end
end

-- Puts an output that cannot go into an inbox now into the outbox. With each entry goes the sum of the pair's bytes
-- up to it, so that an acknowledgement need not read what it trims.
local function queue(change, shard, record, target, number, now_us, rows, payload)
  local fields, field = record[FIELDS], '#' .. target
  local total = (fields[field] or tonumber(redis.call('HGET', record[KEY], field) or 0)) + #payload
  fields[field] = total
  redis.call(
    'XADD', outbox_key(change.p, shard, target), string.format('%d-0', number),
    now_us .. ':' .. rows .. string.format(':%d', total), payload)
  record[OUT_ENTRIES] = record[OUT_ENTRIES] + 1
  record[OUT_BYTES] = record[OUT_BYTES] + #payload
end

-- Notes that entries wait for a target that is not here; rings the bell of the outboxes when none waited before.
local function goes_out(p, target)
  local key = p .. 'outgoing'
  if redis.call('SADD', key, target) == 1 then redis.call('PUBLISH', key, '') end
end

-- How many entries of a pair wait with numbers up to `number`, and how many bytes. They have no gap.
local function waiting_up_to(key, number)
  local last_id = string.format('%d-0', number)
  local first = redis.call('XRANGE', key, '-', last_id, 'COUNT', 1)[1]
  if not first then return 0, 0 end
  local last = first[1] == last_id and first or redis.call('XREVRANGE', key, last_id, '-', 'COUNT', 1)[1]
  local before = tonumber(string.match(first[2][1], '%d+$')) - #first[2][2]
  local first_number, last_number = string.match(first[1], '^%d+'), string.match(last[1], '^%d+')
  return last_number - first_number + 1, string.match(last[2][1], '%d+$') - before
end

-- Moves entries of a pair from the outbox into the inbox, oldest first, while room and budget last.
-- Entries that the inbox took already (their acknowledgement was lost) are only dropped.
-- Answers whether none of them waits any more, and the last number that the inbox has taken.
local function move_waiting(change, producer, source, target, record, taken, budget)
  local p, bounds = change.p, change.bounds
  local key = outbox_key(p, producer, target)
  local last, emptied, going = 0, false, true
  source[DIRTY] = true
  while going and budget.entries > 0 and budget.bytes > 0 do
    local chunk = entries_of(budget.bytes, source[OUT_BYTES], source[OUT_ENTRIES])
    local entries = redis.call('XRANGE', key, (last + 1) .. '-0', '+', 'COUNT', math.min(budget.entries, chunk))
    if #entries == 0 then
      emptied = true
      break
    end
    for _, entry in ipairs(entries) do
      local number = tonumber(string.match(entry[1], '^%d+'))
      local payload = entry[2][2]
      if number > taken then
        if budget.entries <= 0 or budget.bytes <= 0 or not may_place(record, #payload, bounds) then
          going = false
          break
        end
        local placed_us, rows = string.match(entry[2][1], '^(%d+):(%d+):')
        place(change, target, record, placed_us, tonumber(rows), payload)
        taken = number
        budget.entries = budget.entries - 1
        budget.bytes = budget.bytes - #payload
      end
      last = number
      source[OUT_ENTRIES] = source[OUT_ENTRIES] - 1
      source[OUT_BYTES] = source[OUT_BYTES] - #payload
    end
  end
  if last > 0 and not emptied then
    redis.call('XTRIM', key, 'MINID', '=', (last + 1) .. '-0')
    emptied = redis.call('XLEN', key) == 0
  end
  if emptied then
    pair_emptied(change, producer, source, target, record)
  else
    -- to the end of the line, so that no producer starves
    wait_in_line(p, target, producer)
  end
  passed(p, producer, source, target, last, emptied)
  return emptied, taken
end

local function new_budget(bounds)
  return {entries = bounds[DRAIN_ENTRIES], bytes = bounds[DRAIN_BYTES]}
end

-- Takes entries that wait in this store for room in this inbox, one producer after the other. `record` has FIELDS;
-- `bytes`, `entries` are what a commit has just made room for.
local function pull_waiters(change, shard, record, bytes, entries)
  if record[WAITERS] <= 0 then return end
  if record[WAITERS] >= CALLED then keep_for_callers(change, shard, record, bytes, entries) end
  local budget = new_budget(change.bounds)
  local producers = redis.call('ZRANGE', change.p .. 'waiters:' .. shard, 0, budget.entries - 1)
  for _, producer in ipairs(producers) do
    local source = change_record(change, producer)
    if source then
      local field = '>' .. producer
      local taken = tonumber(redis.call('HGET', record[KEY], field) or 0)
      local emptied
      emptied, record[FIELDS][field] = move_waiting(change, producer, source, shard, record, taken, budget)
      release(change, producer, source)
      if not emptied then break end
    end
  end
end

-- Moves older entries of this shard's outbox to the targets of this store that have room.
local function drain(change, shard, record)
  if record[PENDING] <= 0 then return end
  local budget = new_budget(change.bounds)
  local targets = redis.call('SRANDMEMBER', change.p .. 'pending:' .. shard, budget.entries)
  for _, target in ipairs(targets) do
    if budget.entries <= 0 or budget.bytes <= 0 then break end
    local there = change_record(change, target)
    if there and there[STATUS] <= ACTIVE then
      redis.call('SREM', change.p .. 'outgoing', target)
      if may_place(there, 0, change.bounds) then
        local _
        _, there[TAKEN] = move_waiting(change, shard, record, target, there, there[TAKEN], budget)
      end
    end
  end
end
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
-- Moves between stores: what all of their calls share.
--
-- A move's token is (source, target, epoch, generation of the source): the arguments 2 to 5 of each call but the
-- first. What a store knows of a shard's move is in the hash "move:SHARD": the token; at the source "round", the one
-- that is being copied; of a copy that is being installed "number" (chunks taken), "resume" (where the next begins),
-- "rounds" (taken whole), "complete", "clearing" (an older copy goes first), "discarded". Copies of an outbox may be
-- delivered from by either store, once the shard is frozen: a pair's entries are the same everywhere, and its target
-- takes each number once.
--
-- Round 1 of a pre-copy is all state and timers; each later one is what commits changed during the one before, with
-- what came into inbox and outbox; the rest, after the freeze, is one more such round, with the record itself.

local function move_key(p, shard) return p .. 'move:' .. shard end

local function token(args)
  return {source = args[2], target = args[3], epoch = tonumber(args[4]), generation = tonumber(args[5])}
end

-- The token of the move that a shard is in, or left with, or that was given up here last.
local function read_token(p, shard)
  local got = redis.call('HMGET', move_key(p, shard), 'source', 'target', 'epoch', 'generation', 'round')
  return {
    source = got[1], target = got[2], epoch = tonumber(got[3] or 0), generation = tonumber(got[4] or 0),
    round = tonumber(got[5] or 0),
  }
end

local function same_move(a, b)
  return a.epoch == b.epoch and a.generation == b.generation and a.source == b.source and a.target == b.target
end

local function write_token(p, shard, move)
  redis.call('HSET', move_key(p, shard), 'source', move.source, 'target', move.target,
    'epoch', string.format('%d', move.epoch), 'generation', string.format('%d', move.generation))
end

local function write_record(record)
  redis.call('HSET', record[KEY], 'h', pack_record(record))
end

local function is_gone(record)
  return record[STATUS] == DEPARTED or record[STATUS] == MOVED
end

-- The token, with its round, when the record is COPYING or FROZEN under this move, and the store has not started
-- anew since.
local function held_under(p, shard, record, move)
  if record[STATUS] ~= COPYING and record[STATUS] ~= FROZEN or generation() ~= move.generation then return nil end
  local held = read_token(p, shard)
  return same_move(held, move) and held or nil
end

local function forget_changes(p, shard)
  redis.call('UNLINK', changes_key(p, shard), round_key(p, shard))
end

-- Whether the maps say that the shard belongs into this other store.
local function may_leave(p, shard, target, version)
  local operator = operator_of(shard)
  local published = redis.call('HGET', p .. 'schedule:' .. operator, 'version')
  local packed = redis.call('HGET', p .. 'shards:' .. operator, shard)
  return published and tonumber(published) <= tonumber(version) and packed
    and cmsgpack.unpack(packed)[2] == target and target ~= redis.call('HGET', STORE, 'id')
end

-- The server's own name for its run. A scan's cursor means nothing in another run, whose hashes lie otherwise.
local function run_id()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end

-- Where a copy goes on: the run, the round, what of it is still to be read (nothing at its end), and how far inbox
-- and outbox are copied ("inbox", and "lanes" by target, "count" of them). Empty: nothing was copied.
local function unpack_resume(resume)
  if resume == '' then return {run_id(), 0, {}, {inbox = 0, lanes = {}, count = 0}} end
  return cmsgpack.unpack(resume)
end

-- The last round that is copied whole where a copy goes on; nil in the middle of one.
local function completed_round(resume)
  local at = unpack_resume(resume)
  return #at[3] == 0 and at[1] == run_id() and at[2] or nil
end

-- What was noted so far is the next round's to copy; what comes from now on, that of the one after.
local function turn(p, shard, round)
  redis.call('UNLINK', round_key(p, shard))
  if redis.call('EXISTS', changes_key(p, shard)) == 1 then
    redis.call('RENAME', changes_key(p, shard), round_key(p, shard))
  end
  redis.call('HSET', move_key(p, shard), 'round', string.format('%d', round + 1))
end

-- The outbox of one pair goes; answers what that cost, in entries.
local function clear_lane(change, shard, record, target)
  if redis.call('EXISTS', outbox_key(change.p, shard, target)) == 0 then return 1 end
  pair_emptied(change, shard, record, target, change_record(change, target))
  if redis.call('EXISTS', change.p .. 'waiters:' .. target) == 0 then
    redis.call('SREM', change.p .. 'outgoing', target)
  end
  return 4
end

-- Drops about `entries` parts of everything that a shard is but its tombstone, and of that the rest at the end.
-- Answers whether nothing is left. The caller writes the record.
local function clear_some(p, shard, record, entries)
  local change = new_change(p)
  change.records[shard] = record
  redis.call('UNLINK', p .. 'value:' .. shard, p .. 'inbox:' .. shard, p .. 'timers:' .. shard, marks_key(p, shard))
  local names = redis.call('SPOP', p .. 'collections:' .. shard, entries)
  for _, name in ipairs(names) do redis.call('UNLINK', collection_key(p, shard, name)) end
  entries = entries - #names
  local cursor = '0'
  while entries > 0 do
    local found = redis.call('HSCAN', record[KEY], cursor, 'COUNT', math.min(entries, READ_CHUNK))
    local fields = {}
    for i = 1, #found[2], 2 do
      local field = found[2][i]
      local kind = string.sub(field, 1, 1)
      if kind == '<' then entries = entries - clear_lane(change, shard, record, string.sub(field, 2)) end
      if string.find('<>#!@', kind, 1, true) then fields[#fields + 1] = field end
    end
    call_chunked('HDEL', record[KEY], fields, 1, #fields)
    entries = entries - #fields
    cursor = found[1]
    if cursor == '0' then break end
  end
  record[DIRTY] = false
  write_back(change)
  if entries <= 0 or cursor ~= '0' then return false end
  redis.call('HDEL', record[KEY], 'p', 'w', 'c', 'k', 'l', 'x', 'n')
  -- since version 10: limits
  redis.call('HDEL', record[KEY], 'b')
  local epoch, status, waiters = record[EPOCH], record[STATUS], record[WAITERS]
  for i = 1, HOT_SIZE do record[i] = 0 end
  record[EPOCH], record[STATUS], record[WAITERS] = epoch, status, waiters
  return true
end
do
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
end
do
-- Workers: their starts and incarnations, and how the shards of their executors are spread over tasks.

-- mint_start: a number for a start of a worker's process, above all before it.
-- KEYS 1: prefix. ARGV: worker. Answers an integer or UNKNOWN.
local function mint_start(keys, args)
  local p, worker = keys[1], args[1]
  if retracted(p) then return 'UNKNOWN' end
  local known = redis.call('HGET', p .. 'enrolled', worker)
  local enrolled = known and tonumber(string.match(known, '/(%d+)/%d+$')) or 0
  local start = math.max(tonumber(redis.call('HGET', p .. 'starts', worker) or 0), enrolled) + 1
  redis.call('HSET', p .. 'starts', worker, string.format('%d', start))
  return start
end

-- enroll: a worker process announces its incarnation.
-- KEYS 1: prefix. ARGV: worker, uid, start, attempt. Answers OK, STALE, UNKNOWN.
local function enroll(keys, args)
  local p, worker, uid, start, attempt = keys[1], args[1], args[2], tonumber(args[3]), tonumber(args[4])
  if retracted(p) then return 'UNKNOWN' end
  local named = uid_in_map(p, worker)
  if named and named ~= uid then return 'STALE' end
  local known = redis.call('HGET', p .. 'enrolled', worker)
  if known then
    local known_uid, known_start, known_attempt = string.match(known, '^(.*)/(%d+)/(%d+)$')
    known_start, known_attempt = tonumber(known_start), tonumber(known_attempt)
    -- starts of two uids have no order: another store may have given them out
    if known_uid == uid and (known_attempt > attempt or (known_attempt == attempt and known_start > start)) then
      return 'STALE'
    end
  end
  redis.call('HSET', p .. 'enrolled', worker, uid .. '/' .. args[3] .. '/' .. args[4])
  return 'OK'
end

-- set_tasks: which task runs which shard of an executor.
-- KEYS 1: prefix. ARGV: worker, incarnation, executor, packed mapping, packed ready lists, ready list, ...
-- Answers OK, STALE, UNKNOWN.
local function set_tasks(keys, args)
  local p, incarnation = keys[1], args[2]
  if retracted(p) then return 'UNKNOWN' end
  if enrolled_incarnation(p, args[1]) ~= incarnation then return 'STALE' end
  local key = p .. 'tasks:' .. args[3]
  local before = redis.call('HGET', key, 'lists')
  redis.call('HSET', key, 'incarnation', incarnation, 'mapping', args[4], 'lists', args[5])
  local named = {}
  for i = 6, #args do
    named[args[i]] = true
    wake_list(p, args[i])
    redis.call('PERSIST', p .. 'ready:' .. args[i])
    redis.call('PERSIST', due_key(p, args[i]))
  end
  for _, ready in ipairs(before and cmsgpack.unpack(before) or {}) do
    if not named[ready] then leave_list(p, ready) end
  end
  return 'OK'
end

-- tasks: how the shards of an executor are spread over its tasks.
-- KEYS 1: prefix. ARGV: executor, operator.
-- Answers [incarnation, packed mapping, version, packed ready lists], nil for what is not there.
local function tasks(keys, args)
  local got = redis.call('HMGET', keys[1] .. 'tasks:' .. args[1], 'incarnation', 'mapping', 'lists')
  return {got[1], got[2], redis.call('HGET', keys[1] .. 'schedule:' .. args[2], 'version'), got[3]}
end

register('mint_start', mint_start, WRITES)
register('enroll', enroll, WRITES)
register('set_tasks', set_tasks, WRITES)
register('tasks', tasks, READS)
end
do
-- Schedules: how they come into the store's maps, and what these say of a worker.

-- Begins, or goes on with, a staging over version `base` (empty for none). Over another one nothing of it counts.
local function begin_staging(p, operator, id, base, executors)
  local staging = staging_of(p, operator, id)
  if redis.call('HGET', staging.head, 'base') ~= base then
    redis.call('UNLINK', staging.head, staging.shards, staging.leaving, staging.keepers)
    redis.call('HSET', staging.head, 'base', base, 'executors', executors)
    redis.call('SADD', p .. 'stagings:' .. operator, id)
  end
  return staging
end

-- Forgets the tasks of those among the executors of before (by name) that the maps name no more.
local function forget_tasks(p, operator, before)
  for executor in pairs(before) do
    local place = redis.call('HEXISTS', p .. 'executors:' .. operator, executor)
      + redis.call('HEXISTS', p .. 'keepers:' .. operator, executor)
    if place == 0 then
      local lists = redis.call('HGET', p .. 'tasks:' .. executor, 'lists')
      for _, ready in ipairs(lists and cmsgpack.unpack(lists) or {}) do leave_list(p, ready) end
      redis.call('UNLINK', p .. 'tasks:' .. executor)
    end
  end
end

-- The version that counts (empty for none), and the answer to a schedule that is not newer.
local function outdated(p, operator, new_version, term)
  local old = redis.call('HMGET', p .. 'schedule:' .. operator, 'version', 'term')
  if not old[1] then return '' end
  if new_version < tonumber(old[1]) or term < tonumber(old[2]) then return old[1], 'STALE' end
  return old[1], new_version == tonumber(old[1]) and 'DONE' or nil
end

-- publish_part: stage some shards of one operator's schedule.
-- KEYS 1: prefix. ARGV: operator, version, term, id, packed names of executors; shard, packed (executor, home) ...
-- Answers OK, DONE, STALE, UNKNOWN.
local function publish_part(keys, args)
  local p, operator = keys[1], args[1]
  if retracted(p) then return 'UNKNOWN' end
  if #args % 2 == 0 then return redis.error_reply('ERR penstock publish_part: wrong number of arguments') end
  local base, refusal = outdated(p, operator, tonumber(args[2]), tonumber(args[3]))
  if refusal then return refusal end
  stage_shards(p, operator, begin_staging(p, operator, args[4], base, args[5]), args, 6, #args)
  return 'OK'
end

-- publish: stage the rest of one operator's schedule, and write it into the maps.
-- KEYS 1: prefix. ARGV: operator, version, term, id, packed names of executors, packed names of workers, counts of
-- workers, executors, shards in this call and shards in all; worker, packed (node, host, uid), packed assignment ...;
-- executor, packed (worker, tasks) ...; shard, packed (executor, home) ...
-- Answers OK, DONE, STALE, UNKNOWN, AGAIN (parts are missing).
local function publish(keys, args)
  local p, operator = keys[1], args[1]
  if retracted(p) then return 'UNKNOWN' end
  local workers, executors, shards = tonumber(args[7]), tonumber(args[8]), tonumber(args[9])
  if #args ~= 10 + 3 * workers + 2 * executors + 2 * shards then
    return redis.error_reply('ERR penstock publish: wrong number of arguments')
  end
  local base, refusal = outdated(p, operator, tonumber(args[2]), tonumber(args[3]))
  if refusal then return refusal end
  local first_executor = 11 + 3 * workers
  local first_shard = first_executor + 2 * executors
  local staging = begin_staging(p, operator, args[4], base, args[5])
  if shards > 0 then stage_shards(p, operator, staging, args, first_shard, #args) end
  if redis.call('HLEN', staging.shards) ~= tonumber(args[10]) then return 'AGAIN' end

  local key = p .. 'schedule:' .. operator
  local workers_before = redis.call('HGET', key, 'workers')
  local named, is_new, places = {}, {}, places_of(p, operator)
  redis.call('SADD', TOPOLOGIES, uid_of(p))
  for at = 11, first_executor - 1, 3 do
    local worker = args[at]
    named[worker] = true
    redis.call('HSET', p .. 'workers', worker, args[at + 1])
    redis.call('HSET', p .. 'assigned:' .. worker, operator, args[at + 2])
    wake_worker(p, worker)
  end
  for at = first_executor, first_shard - 1, 2 do is_new[args[at]] = true end
  local keepers, names = {}, cmsgpack.unpack(args[6])
  for _, keeper in ipairs(redis.call('SMEMBERS', staging.keepers)) do
    if not is_new[keeper] then
      keepers[#keepers + 1], keepers[#keepers + 2] = keeper, places[keeper]
      local worker = cmsgpack.unpack(places[keeper])[1]
      if not named[worker] then
        named[worker] = true
        names[#names + 1] = worker
        redis.call('HSET', p .. 'assigned:' .. worker, operator, cmsgpack.pack({tonumber(args[2]), {}}))
        wake_worker(p, worker)
      end
    end
  end
  redis.call('UNLINK', p .. 'executors:' .. operator, p .. 'keepers:' .. operator)
  call_chunked('HSET', p .. 'executors:' .. operator, args, first_executor, first_shard - 1)
  call_chunked('HSET', p .. 'keepers:' .. operator, keepers, 1, #keepers)
  forget_tasks(p, operator, places)
  for name, staged in pairs({shards = staging.shards, leaving = staging.leaving}) do
    local counts = p .. name .. ':' .. operator
    redis.call('UNLINK', counts)
    if redis.call('EXISTS', staged) == 1 then
      redis.call('RENAME', staged, counts)
      redis.call('PERSIST', counts)
    end
  end
  know_strangers(p, operator)
  redis.call('UNLINK', staging.head, staging.keepers)
  redis.call('SREM', p .. 'stagings:' .. operator, args[4])
  redis.call('HSET', key, 'version', args[2], 'term', args[3], 'workers', cmsgpack.pack(names))
  for _, worker in ipairs(workers_before and cmsgpack.unpack(workers_before) or {}) do
    if not named[worker] then
      redis.call('HDEL', p .. 'assigned:' .. worker, operator)
      if redis.call('EXISTS', p .. 'assigned:' .. worker) == 0 then redis.call('HDEL', p .. 'workers', worker) end
      wake_worker(p, worker)
    end
  end
  return 'OK'
end

-- assignment: what the maps say of a worker.
-- KEYS 1: prefix. ARGV: worker. Answers [retracted (0, 1), generation, packed (node, host, uid) or nil,
-- [operator, packed assignment, ...], the store's id, [shard, executor that keeps it until it departs, ...] of those,
-- [operator, executor that it names no more, tasks, ...]].
local function assignment(keys, args)
  local p, worker = keys[1], args[1]
  local assigned, keepers, leaving = redis.call('HGETALL', p .. 'assigned:' .. worker), {}, {}
  for i = 1, #assigned, 2 do
    local of_operator = redis.call('HGETALL', p .. 'leaving:' .. assigned[i])
    if #leaving == 0 then
      leaving = of_operator
    else
      for _, value in ipairs(of_operator) do leaving[#leaving + 1] = value end
    end
    for executor, packed in pairs(pairs_of(redis.call('HGETALL', p .. 'keepers:' .. assigned[i]))) do
      local place = cmsgpack.unpack(packed)
      if place[1] == worker then
        for _, value in ipairs({assigned[i], executor, place[2]}) do keepers[#keepers + 1] = value end
      end
    end
  end
  return {
    retracted(p) and 1 or 0,
    generation(),
    redis.call('HGET', p .. 'workers', worker),
    assigned,
    redis.call('HGET', STORE, 'id') or '',
    leaving,
    keepers,
  }
end

register('publish_part', publish_part, WRITES)
register('publish', publish, WRITES)
register('assignment', assignment, READS)
end
do
-- Shards: their making, and who owns them.

-- create: make a shard's record.
-- KEYS 1: prefix. ARGV: shard, table version, position, source (0, 1), bounds. Answers OK, EXISTS, UNKNOWN.
local function create(keys, args)
  local p, shard = keys[1], args[1]
  if retracted(p) then return 'UNKNOWN' end
  local key = p .. 'shard:' .. shard
  if redis.call('EXISTS', key) == 1 then return 'EXISTS' end
  local record = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, tonumber(args[2]), IDLE, tonumber(args[4]), 0, ACTIVE, 0, 0, 0, 0, 0, 0, 0,
    key, false, 0, true, {},
  }
  redis.call('HSET', key, 'h', pack_record(record), 'p', args[3])
  redis.call('SADD', TOPOLOGIES, uid_of(p))
  -- entries may have been waiting for a shard that was not here: they are local from now on
  if redis.call('SREM', p .. 'outgoing', shard) == 1 then
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
  -- since version 10: an owner of version 9 would number entries of a later life from one
  if record[EPOCH] >= 1e11 then return 'STALE' end
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
  -- since version 10: an owner of version 9 knows no limits
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
end
do
-- What a task has to do: names come off its ready list, with what is in their inboxes.

-- wake: put a control token on a ready list.
-- KEYS 1: prefix. ARGV: ready list. Answers OK, UNKNOWN.
local function wake(keys, args)
  if retracted(keys[1]) then return 'UNKNOWN' end
  wake_list(keys[1], args[1])
  return 'OK'
end

-- Hands out timers that are due, a fetch's `answer` being as in `fetch`: of the shards that it holds already, then of
-- others of the list, `left` at the most. `by` says what they go by: "now", the time or the last ms below the stage's
-- watermark (nil for none), "width" of a shard in the answer, and for event time "taken", the same of each held shard's
-- own watermark. Answers
-- when to fetch again (ms), nil for never; by event time nobody knows when the next one is due.
local function hand_out_due(p, list, bounds, answer, left, by, most)
  local share, now_ms = math.max(1, math.floor(most / 4)), by.now
  local function read(shard, up_to)
    local timers = most > 0 and due_timers(p, shard, up_to, math.min(share, most)) or {}
    most = most - #timers / 2
    return timers
  end
  local held = {}
  for at = 2, #answer, by.width do
    held[answer[at]] = true
    answer[at + 4] = read(answer[at], by.taken and by.taken[answer[at]] or now_ms)
  end
  if not now_ms then return most <= 0 and 0 or nil end
  local key = due_key(p, list)
  local looked = redis.call('ZRANGEBYSCORE', key, '-inf', now_ms, 'LIMIT', 0, DUE_SHARDS)
  local is_full, is_mended = #looked == DUE_SHARDS, false
  local is_more = most <= 0 or not by.taken and is_full
  for _, shard in ipairs(looked) do
    if not held[shard] then
      if most <= 0 or left <= 0 then
        is_more = true
        break
      end
      local record = read_record(p, shard)
      if not record or record[LIST] ~= list or record[STATUS] > ACTIVE then
        look_no_more(p, list, shard)
        is_mended = true
      elseif by.taken and (record[READY] ~= IDLE or record[PLACED] > record[OFFSET] or over_bound(record, bounds)) then
        -- behind those that are due as well: what it has before it are rows, whose commits bring the watermark
        look_at(p, list, shard, now_ms)
      elseif record[READY] ~= IDLE or over_bound(record, bounds) then
        look_at(p, list, shard, now_ms + LATER_MS)
      else
        local timers = read(shard, by.taken and math.max(now_ms, record[WATERMARK] - 1) or now_ms)
        if #timers == 0 then
          look_when_due(p, list, shard)
          is_mended = true
        else
          local at = #answer
          answer[at + 1], answer[at + 2], answer[at + 3] = shard, record[EPOCH], record[OFFSET]
          answer[at + 4], answer[at + 5] = {}, timers
          if by.taken then answer[at + 6] = record[PLACED] end
          left = left - 1
        end
      end
    end
  end
  -- where all that was looked at has work nothing is gained by another look
  if by.taken then return (is_more or is_full and is_mended) and 0 or nil end
  if is_more then return now_ms end
  local next_look = redis.call('ZRANGEBYSCORE', key, '(' .. now_ms, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return tonumber(next_look[2])
end

-- fetch, fetch_pressed: take shards off a ready list and read their inboxes; with no shards, a control token at most.
-- KEYS 1: prefix. ARGV: ready list, bytes, shards, bounds; now (ms) and how many timers, where these are asked for; the
-- operators that feed the stage, where it goes by event time.
-- Answers [control (0, 1), shard, epoch, offset, [[id, [placed (us), payload]], ...], ...], and with timers
-- [[control, when to fetch again (ms) or -1], shard, epoch, offset, entries, [name, due (ms), ...], ...]; by event time
-- [[control, again, watermark (ms) or '', idle (0, 1)], shard, epoch, offset, entries, timers, last number placed, ...].
local function fetch(keys, args)
  local p, bytes_max, shards_max = keys[1], tonumber(args[2]), tonumber(args[3])
  local bounds = {struct.unpack(BOUNDS, args[4])}
  local list = p .. 'ready:' .. args[1]
  local answer, used, taken, entries_left = {0}, 0, 0, READ_ENTRIES
  local watermarks = args[7] and {}
  if shards_max == 0 and redis.call('LINDEX', list, 0) == TOKEN then
    take_name(list, TOKEN)
    answer[1] = 1
  end
  while taken < shards_max and (taken == 0 or used < bytes_max and entries_left > 0) do
    unlogged()
    local names = redis.call('LPOP', list, math.min(shards_max - taken, CHUNK))
    logged()
    if not names then break end
    for i, name in ipairs(names) do
      if taken > 0 and (used >= bytes_max or entries_left <= 0) then
        unlogged()
        for back = #names, i, -1 do redis.call('LPUSH', list, names[back]) end
        logged()
        break
      end
      -- a list names only what its task owns: a claim takes a shard off the list of its last owner
      local key = p .. 'shard:' .. name
      local record = name ~= TOKEN and unpack_record(key, redis.call('HGET', key, 'h'))
      if name == TOKEN then
        answer[1] = 1
      elseif record and record[READY] == LISTED then
        local held = over_bound(record, bounds)
        if record[STATUS] > ACTIVE or held then
          record[READY] = record[STATUS] <= ACTIVE and HELD or IDLE
          redis.call('HSET', key, 'h', pack_record(record))
        else
          local entries, bytes, offset = {}, 0, record[OFFSET]
          local waiting = record[PLACED] - offset
          if waiting > 0 then
            entries, bytes = read_stream(
              p .. 'inbox:' .. name, offset + 1, bytes_max - used, entries_left, waiting, record[INBOX_BYTES])
          elseif record[SOURCE] == 0 then
            record[READY] = IDLE
            redis.call('HSET', key, 'h', pack_record(record))
          end
          used, entries_left = used + bytes, entries_left - #entries
          taken = taken + 1
          local at = #answer
          answer[at + 1], answer[at + 2], answer[at + 3], answer[at + 4] = name, record[EPOCH], offset, entries
          if args[6] then answer[at + 5] = {} end
          if watermarks then
            answer[at + 6] = record[PLACED]
            watermarks[name] = record[WATERMARK] ~= 0 and record[WATERMARK] - 1 or '-inf'
          end
        end
      end
    end
  end
  if args[6] then
    local by = {now = tonumber(args[5]), width = 5}
    local watermark_ms, is_idle
    if watermarks then
      watermark_ms, is_idle = input_watermark(p, args, 7, #args)
      by = {width = 6, taken = watermarks, now = watermark_ms and watermark_ms - 1}
    end
    local again_ms = hand_out_due(p, args[1], bounds, answer, shards_max - taken, by, tonumber(args[6]))
    answer[1] = {answer[1], again_ms or -1}
    if watermarks then answer[1][3], answer[1][4] = watermark_ms or '', is_idle and 1 or 0 end
  end
  return answer
end

register('wake', wake, WRITES)
register('fetch', fetch, REFUSED_WHEN_FULL)
register('fetch_pressed', fetch, WRITES)
end
do
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
end
do
-- Commits: the one way in which a shard's state, offset and outputs change.

local PAIRS_MAX = 1500 -- targets of one commit; with their fields they fit into one unpack
local TRIM_ENTRIES, TRIM_BYTES = 16, 4096
-- What a commit says of a watermark: nothing; its shard's own; one that is also told, of a shard that may be idle
local NO_WATERMARK, TELLS, TELLS_IDLE = 0, 2, 3

-- Notes what a commit, of which write_state and write_timers read the same arguments, is about to change: "w" and a
-- collection that is dropped; "s", the length of a collection's name, ":", the name and a field; "t" and a timer.
-- When that is too much nobody drives the copy, or not fast enough: it is given up.
local function note_changes(change, shard, record, args, at, groups, timers)
  local key, names = changes_key(change.p, shard), {}
  for _ = 1, groups do
    local collection, sets, deletes = args[at], tonumber(args[at + 2]), tonumber(args[at + 3])
    local head = 's' .. #collection .. ':' .. collection
    if args[at + 1] == '1' then names[#names + 1] = 'w' .. collection end
    at = at + 4
    for i = at, at + 2 * sets - 1, 2 do names[#names + 1] = head .. args[i] end
    at = at + 2 * sets
    for i = at, at + deletes - 1 do names[#names + 1] = head .. args[i] end
    at = at + deletes
  end
  for i = at, at + 2 * timers - 1, 2 do names[#names + 1] = 't' .. args[i] end
  call_chunked('SADD', key, names, 1, #names)
  if redis.call('SCARD', key) > change.bounds[NOTED_MAX] then
    record[STATUS] = ACTIVE
    redis.call('UNLINK', key, round_key(change.p, shard))
  end
end

-- Writes the state changes of a commit: groups of (collection, whole (1 drops it first), number of fields to set,
-- number to delete, field, value, ..., field, ...). Answers the index after the last group.
local function write_state(p, shard, args, at, groups)
  local added, removed = {}, {}
  for _ = 1, groups do
    local collection, sets, deletes = args[at], tonumber(args[at + 2]), tonumber(args[at + 3])
    local key = collection_key(p, shard, collection)
    if args[at + 1] == '1' then redis.call('UNLINK', key) end
    at = at + 4
    call_chunked('HSET', key, args, at, at + 2 * sets - 1)
    at = at + 2 * sets
    call_chunked('HDEL', key, args, at, at + deletes - 1)
    at = at + deletes
    if collection ~= '' then
      if sets > 0 then
        added[#added + 1] = collection
      elseif redis.call('EXISTS', key) == 0 then
        removed[#removed + 1] = collection
      end
    end
  end
  call_chunked('SADD', p .. 'collections:' .. shard, added, 1, #added)
  call_chunked('SREM', p .. 'collections:' .. shard, removed, 1, #removed)
  return at
end

-- Writes the timers of a commit, of which none is named twice: (name, due in ms or empty to delete it) ...
local function write_timers(p, shard, list, args, at, timers)
  if timers == 0 then return at end
  local set, deleted = {}, {}
  for i = at, at + 2 * timers - 1, 2 do
    if args[i + 1] == '' then
      deleted[#deleted + 1] = args[i]
    else
      set[#set + 1], set[#set + 2] = args[i + 1], args[i]
    end
  end
  call_chunked('ZREM', timers_key(p, shard), deleted, 1, #deleted)
  call_chunked('ZADD', timers_key(p, shard), set, 1, #set)
  if list then look_when_due(p, list, shard) end
  return at + 2 * timers
end

-- Places a commit's outputs for shards: (target, rows, payload) each, from args[at] on.
local function place_outputs(change, shard, record, issued, now_us, args, at, outputs)
  local p, bounds, waiting = change.p, change.bounds, {}
  for i = at, at + 3 * outputs - 1, 3 do
    local target, rows, payload = args[i], tonumber(args[i + 1]), args[i + 2]
    local number = issued[target] + 1
    issued[target] = number
    local there = change_record(change, target)
    local here = there and there[STATUS] <= ACTIVE
    if here and there[TAKEN] == number - 1 and may_place(there, #payload, bounds) then
      place(change, target, there, now_us, rows, payload)
      there[TAKEN] = number
    else
      queue(change, shard, record, target, number, now_us, args[i + 1], payload)
      if not waiting[target] then
        waiting[target] = true
        record[PENDING] = record[PENDING] + redis.call('SADD', p .. 'pending:' .. shard, target)
        local added = redis.call('ZSCORE', p .. 'waiters:' .. target, shard) and 0 or wait_in_line(p, target, shard)
        if there then there[WAITERS], there[DIRTY] = there[WAITERS] + added, true end
        if not here then goes_out(p, target) end
      end
    end
  end
end

-- What a commit has to know of the pairs with its targets args[at], args[at + 3], ...: the fields of the record with the
-- last numbers issued and, for sinks, which come after `outputs` others, with the sums of their bytes; and the targets
-- beside them, false beside a sum.
local function pair_fields(args, at, outputs, external)
  local fields, targets, known = {}, {}, {}
  for i = at, at + 3 * (outputs + external) - 1, 3 do
    local target = args[i]
    if not known[target] then
      known[target] = true
      targets[#targets + 1], fields[#fields + 1] = target, '<' .. target
      if i >= at + 3 * outputs then targets[#targets + 1], fields[#fields + 1] = false, '#' .. target end
    end
  end
  return fields, targets
end

-- Whether a commit's arguments, args[at] to args[last], are what its counts say, so that nothing fails half-way.
local function well_formed(args, shard, at, last, groups, timers, outputs)
  for _ = 1, groups do
    local sets, deletes = tonumber(args[at + 2]), tonumber(args[at + 3])
    if not sets or not deletes then return false end
    at = at + 4 + 2 * sets + deletes
  end
  for i = at, at + 2 * timers - 1, 2 do
    if args[i + 1] ~= '' and not tonumber(args[i + 1]) then return false end
  end
  at = at + 2 * timers
  for i = at, at + 3 * outputs - 1, 3 do
    if args[i] == shard or not tonumber(args[i + 1]) then return false end
  end
  return last == at + 3 * outputs - 1
end

local function malformed_commit()
  return redis.error_reply('ERR penstock commit: malformed arguments')
end

-- Applies one shard's next commit, args[first] to args[last]: shard, numbers, now (us), position; groups as write_state
-- reads them; timers (name, due in ms or empty) ...; outputs (target, rows, payload) ..., those to shards first; how
-- far the work is within, and what was counted, if these change.
-- `now_generation`, `bounds` are the same for all commits of a call. Answers as `commit` does, nil when malformed.
local function commit_one(p, now_generation, bounds, args, first, last)
  local shard, now_us = args[first], args[first + 2]
  local expected_generation, epoch, number, table_version, offset, bytes, rows, finished, again, has_position,
    groups, timers, outputs, external, in_hand, has_within, has_counts, watermark, watermark_ms =
    struct.unpack('<ddddddddddddddddddd', args[first + 1])
  last = last - has_within - has_counts
  local outputs_at = last - 3 * (outputs + external) + 1
  if outputs_at < first + 4 or outputs + external > PAIRS_MAX then return nil end
  local pairs_read, targets = pair_fields(args, outputs_at, outputs, external)
  local record, got = owned_at(p, shard, now_generation, expected_generation, epoch, pairs_read)
  if not record then return got end
  if number == record[COMMIT] then return 'DONE' end
  if number ~= record[COMMIT] + 1 or table_version ~= record[TABLE] or offset > record[PLACED] then
    return 'CONFLICT'
  end
  if not well_formed(args, shard, first + 4, last, groups, timers, outputs + external) then return nil end

  local change = new_change(p, bounds, shard)
  local fields = {}
  record[DIRTY], record[FIELDS] = true, fields
  change.records[shard] = record
  record[COMMIT] = number
  if finished == 1 then record[FINISHED] = 1 end
  if has_position == 1 then fields['p'] = args[first + 3] end
  if has_within == 1 then fields['w'] = args[last + 1] end
  if has_counts == 1 then fields['c'] = args[last + has_within + 1] end
  if record[STATUS] == COPYING then note_changes(change, shard, record, args, first + 4, groups, timers) end
  local at = write_state(p, shard, args, first + 4, groups)
  at = write_timers(p, shard, record[LIST], args, at, timers)
  if watermark > NO_WATERMARK then take_watermark(record, watermark_ms) end

  local worked = math.max(0, offset - record[OFFSET])
  if worked > 0 then
    -- What is worked off is trimmed some entries at a time, unless they are large.
    if bytes >= TRIM_BYTES or math.floor(offset / TRIM_ENTRIES) > math.floor(record[OFFSET] / TRIM_ENTRIES) then
      redis.call('XTRIM', p .. 'inbox:' .. shard, 'MINID', '=', (offset + 1) .. '-0')
    end
    record[OFFSET] = offset
  end
  record[INBOX_BYTES] = record[INBOX_BYTES] - bytes
  record[COMPLETED] = record[COMPLETED] + rows
  local listed = in_hand == 0 and record[READY] == LISTED and take_name(p .. 'ready:' .. record[LIST], shard)
  -- on no list while entries are moved about: what comes in does not list it before its turn
  local was_held = record[READY] == HELD
  record[READY] = LISTED
  pull_waiters(change, shard, record, bytes, worked)
  drain(change, shard, record)
  if outputs + external > 0 then
    local issued = {}
    for i, target in ipairs(targets) do
      local value = tonumber(got[i + 2] or 0)
      if target then issued[target] = value else fields[pairs_read[i]] = value end
    end
    place_outputs(change, shard, record, issued, now_us, args, at, outputs)
    at = at + 3 * outputs
    for i = at, at + 3 * external - 1, 3 do
      local sink = args[i]
      issued[sink] = issued[sink] + 1
      if issued[sink] == 1 then fields['!' .. sink] = 0 end
      queue(change, shard, record, sink, issued[sink], now_us, args[i + 1], args[i + 2])
    end
    for target, last in pairs(issued) do fields['<' .. target] = string.format('%d', last) end
  end
  if watermark >= TELLS then reach(p, shard, record, watermark == TELLS_IDLE) end

  if was_held then
    record[READY] = HELD
    release(change, shard, record)
  else
    record[READY] = IDLE
    if has_work(record) and (record[SOURCE] == 0 or again == 1 or listed) then enlist(change, shard, record) end
  end
  write_back(change)
  return 'OK'
end

-- commit: apply the next commits of some shards, in order, each by itself: one that is refused leaves the others alone.
-- KEYS 1: prefix. ARGV: bounds; then for each commit the number of its arguments, and those: shard, numbers (packed:
-- generation, epoch, number, table version, offset, consumed bytes, consumed rows, finished, again, has position,
-- groups of state, timers, outputs to shards, outputs to sinks, in hand, has within, has counts, what of a watermark, ms)
-- and the rest as `commit_one` reads it.
-- Answers [OK, DONE, FENCED, CONFLICT or UNKNOWN, ...]; an error for a malformed one, those before it are applied.
local function commit(keys, args)
  local p, bounds, answers, at = keys[1], {struct.unpack(BOUNDS, args[1])}, {}, 2
  local now_generation, gone = generation_and_retracted(p)
  while at <= #args do
    local count = tonumber(args[at])
    if not count or count < 4 or at + count > #args then return malformed_commit() end
    local answer = gone and 'UNKNOWN' or commit_one(p, now_generation, bounds, args, at + 1, at + count)
    if not answer then return malformed_commit() end
    answers[#answers + 1] = answer
    at = at + count + 1
  end
  return answers
end

register('commit', commit, WRITES)
end
do
-- What user code raised.

-- report_failure: user code raised.
-- KEYS 1: prefix. ARGV: shard, generation, epoch, operator, message. Answers OK, DONE, FENCED, UNKNOWN.
local function report_failure(keys, args)
  local record, refusal = owned(keys[1], args[1], tonumber(args[2]), tonumber(args[3]))
  if not record then return refusal end
  return redis.call('HSETNX', keys[1] .. 'failures', args[4], args[5]) == 1 and 'OK' or 'DONE'
end

-- clear_failure: forget an operator's failure.
-- KEYS 1: prefix. ARGV: operator. Answers OK, UNKNOWN.
local function clear_failure(keys, args)
  if retracted(keys[1]) then return 'UNKNOWN' end
  redis.call('HDEL', keys[1] .. 'failures', args[1])
  return 'OK'
end

register('report_failure', report_failure, WRITES)
register('clear_failure', clear_failure, WRITES)
end
do
-- Between stores, and outside: entries come in, wait to go out, and are acknowledged.

-- append, append_pressed: deliver one entry of a pair.
-- KEYS 1: prefix. ARGV: producer, target, number, placed (us), rows, payload, bounds.
-- Answers OK, DUP, GAP, BUSY, MOVING, [MOVED, store], UNKNOWN.
local function append(keys, args)
  local p, producer, target, number, payload = keys[1], args[1], args[2], tonumber(args[3]), args[6]
  if retracted(p) then return 'UNKNOWN' end
  local change = new_change(p, {struct.unpack(BOUNDS, args[7])}, producer)
  local record = change_record(change, target)
  if not record then return 'UNKNOWN' end
  if record[STATUS] > ACTIVE then return not_here(record) end
  if number <= record[TAKEN] then return 'DUP' end
  if number > record[TAKEN] + 1 then return 'GAP' end
  if not has_room(record, #payload, change.bounds) then
    note_caller(p, target, record, producer, #payload)
    return 'BUSY'
  end
  place(change, target, record, args[4], tonumber(args[5]), payload)
  record[TAKEN] = number
  if record[WAITERS] >= CALLED then note_called(change, target, record, producer, #payload) end
  write_back(change)
  return 'OK'
end

-- Those of ARGV's targets, from the third on, that entries wait for and that are not in this store.
local function asked_targets(p, args)
  local targets = {}
  for first = 3, #args, CHUNK do
    local last = math.min(first + CHUNK - 1, #args)
    local is_out = redis.call('SMISMEMBER', p .. 'outgoing', unpack(args, first, last))
    for i = first, last do
      if is_out[i - first + 1] == 1 then targets[#targets + 1] = args[i] end
    end
  end
  return targets
end

-- outgoing: pairs with entries for targets that are not in this store.
-- KEYS 1: prefix. ARGV: count, how many that wait for the first target are passed over, target, ... (none: all).
-- Answers [producer, target, ...].
local function outgoing(keys, args)
  local p, left, pairs_found = keys[1], tonumber(args[1]), {}
  -- each target has one pair at the least
  local targets = #args > 2 and asked_targets(p, args) or redis.call('SRANDMEMBER', p .. 'outgoing', left)
  for _, target in ipairs(targets) do
    if left <= 0 then break end
    local from = target == args[3] and tonumber(args[2]) or 0
    for _, producer in ipairs(redis.call('ZRANGE', p .. 'waiters:' .. target, from, from + left - 1)) do
      pairs_found[#pairs_found + 1] = producer
      pairs_found[#pairs_found + 1] = target
      left = left - 1
    end
  end
  return pairs_found
end

-- read_outbox: the oldest waiting entries of a pair.
-- KEYS 1: prefix. ARGV: producer, target, bytes, number to begin behind.
-- Answers [[id, ["PLACED_US:ROWS:BYTES", payload]], ...].
local function read_outbox(keys, args)
  -- how much waits in one pair is not kept: taken as too much, it is read in chunks
  local key, from = outbox_key(keys[1], args[1], args[2]), tonumber(args[4]) + 1
  return (read_stream(key, from, tonumber(args[3]), READ_ENTRIES, 1, math.huge))
end

-- acknowledge: the entries of a pair up to a number are at the target.
-- KEYS 1: prefix. ARGV: producer, target, number, position, bounds. Answers OK, UNKNOWN.
local function acknowledge(keys, args)
  local p, producer, target, number = keys[1], args[1], args[2], tonumber(args[3])
  if retracted(p) then return 'UNKNOWN' end
  local record_key = p .. 'shard:' .. producer
  local got = redis.call('HMGET', record_key, 'h', 'l', '<' .. target, '!' .. target)
  local record = unpack_record(record_key, got[1], got[2])
  if not record then return 'UNKNOWN' end
  local issued, acknowledged = tonumber(got[3] or 0), got[4]
  -- a number that was never issued comes from an owner whose last commits this store has lost
  if number > issued then return 'OK' end

  local change = new_change(p, {struct.unpack(BOUNDS, args[5])})
  local fields = {}
  change.records[producer], record[FIELDS], record[DIRTY] = record, fields, true
  -- a sink's acknowledgement that comes after the freeze: the next owner writes the same bytes once more
  if acknowledged and record[STATUS] > ACTIVE then return 'OK' end
  if acknowledged and number > tonumber(acknowledged) then
    fields['!' .. target], fields['@' .. target] = number, args[4]
  end
  local key = outbox_key(p, producer, target)
  local entries, bytes = waiting_up_to(key, number)
  if entries > 0 then
    record[OUT_ENTRIES] = record[OUT_ENTRIES] - entries
    record[OUT_BYTES] = record[OUT_BYTES] - bytes
    if number < issued then
      redis.call('XTRIM', key, 'MINID', '=', (number + 1) .. '-0')
    elseif acknowledged then
      redis.call('UNLINK', key)
    else
      pair_emptied(change, producer, record, target, change_record(change, target))
      if redis.call('EXISTS', p .. 'waiters:' .. target) == 0 then redis.call('SREM', p .. 'outgoing', target) end
    end
    passed(p, producer, record, target, number, number == issued)
    release(change, producer, record)
    write_back(change)
  elseif next(fields) then
    write_back(change)
  end
  return 'OK'
end

-- intend: what an owner is about to put into an outside sink.
-- KEYS 1: prefix. ARGV: shard, generation, epoch, sink, intent. Answers OK, FENCED, UNKNOWN.
local function intend(keys, args)
  local record, refusal = owned(keys[1], args[1], tonumber(args[2]), tonumber(args[3]))
  if not record then return refusal end
  if redis.call('HEXISTS', record[KEY], '!' .. args[4]) == 0 then return 'UNKNOWN' end
  redis.call('HSET', record[KEY], '&' .. args[4], args[5])
  return 'OK'
end

register('append', append, REFUSED_WHEN_FULL)
register('append_pressed', append, WRITES)
register('outgoing', outgoing, READS)
register('read_outbox', read_outbox, READS)
register('acknowledge', acknowledge, WRITES)
register('intend', intend, WRITES)
end
do
-- Watermarks: how far what comes is, by what producers told.

-- read_watermark: the watermark of a stage.
-- KEYS 1: prefix. ARGV: producer's operator, with a slash behind a keyed one, ... Answers [ms or '', idle (0, 1)].
local function read_watermark(keys, args)
  local ms, is_idle = input_watermark(keys[1], args, 1, #args)
  return {ms or '', is_idle and 1 or 0}
end

-- advance: shards of which nothing waits take their input's watermark and tell it.
-- KEYS 1: prefix. ARGV: number of producers, producer's operator, ...; shard, generation, epoch, ...
-- Answers [ms or '', idle (0, 1), OK, BUSY, FENCED or UNKNOWN, ...].
local function advance(keys, args)
  local p, producers = keys[1], tonumber(args[1])
  local now_generation, gone = generation_and_retracted(p)
  local ms, is_idle = input_watermark(p, args, 2, 1 + producers)
  local answer = {ms or '', is_idle and 1 or 0}
  for i = 2 + producers, #args, 3 do
    local shard, got = args[i], 'UNKNOWN'
    local record
    if not gone then record, got = owned_at(p, shard, now_generation, tonumber(args[i + 1]), tonumber(args[i + 2])) end
    if record and record[PLACED] > record[OFFSET] then
      got = 'BUSY'
    elseif record then
      got = 'OK'
      take_watermark(record, ms or 0)
      reach(p, shard, record, is_idle)
      redis.call('HSET', record[KEY], 'h', pack_record(record))
    end
    answer[#answer + 1] = got
  end
  return answer
end

-- take_facts: facts of another store.
-- KEYS 1: prefix. ARGV: shard, packed (version, value), ... Answers OK, UNKNOWN.
local function take_facts(keys, args)
  if retracted(keys[1]) then return 'UNKNOWN' end
  for i = 1, #args, 2 do take_fact(keys[1], args[i], struct.unpack(FACT, args[i + 1])) end
  return 'OK'
end

register('read_watermark', read_watermark, READS)
register('advance', advance, WRITES)
register('take_facts', take_facts, WRITES)
end
do
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
-- KEYS 1: prefix. ARGV: shard, ... Answers [generation, packed counters, executor, counts, position, when its
-- next timer is due, ...], nil for what is not there.
local function measure(keys, args)
  local answer = {generation()}
  for _, shard in ipairs(args) do
    local got = redis.call('HMGET', keys[1] .. 'shard:' .. shard, 'h', 'x', 'c', 'p')
    local at = #answer
    answer[at + 1], answer[at + 2], answer[at + 3], answer[at + 4] = got[1], got[2], got[3], got[4]
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
end
do
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
end
do
-- Moves between stores: a copy is read part by part, at the source.
--
-- `todo` is a stack of what is still to be read, each an array that begins with the name of its reader; `out` has the
-- pieces read, what is left of the budget, how far inbox and outbox are copied ("marks"), and whether this is the rest
-- ("final").

local LANES_MAX = 256 -- pairs whose outbox is copied before the freeze: the resume point names each

-- How many fields or entries to ask for, when those before were of `average` bytes. Their size shows only
-- afterwards, so the first are few.
local FIRST_AVERAGE = 65536
local function ask(out, average)
  return math.max(1, math.min(out.entries, READ_CHUNK, math.floor(out.bytes / (average or FIRST_AVERAGE))))
end

-- Adds a piece; from index `from` on it holds `count` fields or entries, each of which costs `cost` entries.
-- Answers their average size.
local function add(out, piece, from, count, cost)
  local bytes = 0
  for i = from, #piece do bytes = bytes + #piece[i] end
  out.pieces[#out.pieces + 1] = piece
  out.bytes, out.entries = out.bytes - bytes, out.entries - 1 - count * cost
  return count > 0 and math.max(1, bytes / count) or nil
end

local READERS = {}

function READERS.head(p, shard, item, todo, out)
  add(out, {'h', redis.call('HGET', p .. 'shard:' .. shard, 'h')}, 2, 0, 0)
end

function READERS.fields(p, shard, item, todo, out)
  local found = redis.call('HSCAN', p .. 'shard:' .. shard, item[2], 'COUNT', ask(out, item[3]))
  local piece = {'f'}
  for i = 1, #found[2], 2 do
    local field = found[2][i]
    if string.find('pwc', field, 1, true) or string.find('<>#!@&', string.sub(field, 1, 1), 1, true) then
      piece[#piece + 1], piece[#piece + 2] = field, found[2][i + 1]
    end
  end
  local average = add(out, piece, 2, (#piece - 1) / 2, 1)
  if found[1] ~= '0' then todo[#todo + 1] = {'fields', found[1], average} end
end

function READERS.collections(p, shard, item, todo, out)
  local found = redis.call('SSCAN', p .. 'collections:' .. shard, item[2], 'COUNT', READ_CHUNK)
  if found[1] ~= '0' then todo[#todo + 1] = {'collections', found[1]} end
  for _, name in ipairs(found[2]) do todo[#todo + 1] = {'state', '0', name} end
end

function READERS.state(p, shard, item, todo, out)
  local found = redis.call('HSCAN', collection_key(p, shard, item[3]), item[2], 'COUNT', ask(out, item[4]))
  local piece, average = {'s', item[3]}, item[4]
  for _, part in ipairs(found[2]) do piece[#piece + 1] = part end
  if #piece > 2 then average = add(out, piece, 3, (#piece - 2) / 2, 1) end
  if found[1] ~= '0' then todo[#todo + 1] = {'state', found[1], item[3], average} end
end

-- By cursor and not by rank: ranks shift while others come and go.
function READERS.timers(p, shard, item, todo, out)
  local found = redis.call('ZSCAN', p .. 'timers:' .. shard, item[2], 'COUNT', ask(out, item[3]))
  local piece, average = {'t'}, item[3]
  for i = 1, #found[2], 2 do piece[#piece + 1], piece[#piece + 2] = found[2][i + 1], found[2][i] end
  if #piece > 1 then average = add(out, piece, 2, (#piece - 1) / 2, 1) end
  if found[1] ~= '0' then todo[#todo + 1] = {'timers', found[1], average} end
end

-- The values that what was noted has now; deletions are pieces of their own. A collection that was dropped is
-- dropped there too, and read anew, whatever came into it since.
function READERS.changes(p, shard, item, todo, out)
  local found = redis.call('SSCAN', round_key(p, shard), item[2], 'COUNT', ask(out, item[3]))
  local fields, timers, gone_timers, average = {}, {'t'}, {'u'}, item[3]
  if found[1] ~= '0' then todo[#todo + 1] = {'changes', found[1], average} end
  local next_look = todo[#todo]
  for _, name in ipairs(found[2]) do
    local kind, rest = string.sub(name, 1, 1), string.sub(name, 2)
    if kind == 'w' then
      add(out, {'w', rest}, 2, 0, 0)
      todo[#todo + 1] = {'state', '0', rest}
    elseif kind == 't' then
      local due = redis.call('ZSCORE', p .. 'timers:' .. shard, rest)
      if due then
        timers[#timers + 1], timers[#timers + 2] = due, rest
      else
        gone_timers[#gone_timers + 1] = rest
      end
    else
      local length, from = string.match(rest, '^(%d+):()')
      local collection = string.sub(rest, from, from + length - 1)
      fields[collection] = fields[collection] or {}
      table.insert(fields[collection], string.sub(rest, from + length))
    end
  end
  if #timers > 1 then add(out, timers, 2, (#timers - 1) / 2, 1) end
  if #gone_timers > 1 then add(out, gone_timers, 2, #gone_timers - 1, 1) end
  local bytes, count = 0, 0
  for collection, names in pairs(fields) do
    local here, gone = {'s', collection}, {'d', collection}
    for first = 1, #names, CHUNK do
      local last = math.min(first + CHUNK - 1, #names)
      local got = redis.call('HMGET', collection_key(p, shard, collection), unpack(names, first, last))
      for i = first, last do
        local value = got[i - first + 1]
        if value then
          here[#here + 1], here[#here + 2] = names[i], value
        else
          gone[#gone + 1] = names[i]
        end
      end
    end
    local before = out.bytes
    if #here > 2 then add(out, here, 3, (#here - 2) / 2, 1) end
    if #gone > 2 then add(out, gone, 3, #gone - 2, 1) end
    bytes, count = bytes + before - out.bytes, count + #names
  end
  if count > 0 and next_look and next_look[1] == 'changes' then next_look[3] = math.max(1, bytes / count) end
end

-- Reads a stream from a number on: into `piece`, ids, fields and payloads. Answers how many, and the last number.
local function read_entries(key, from, count, piece)
  local last
  local entries = redis.call('XRANGE', key, string.format('%d-0', from), '+', 'COUNT', count)
  for _, entry in ipairs(entries) do
    local at = #piece
    piece[at + 1], piece[at + 2], piece[at + 3] = entry[1], entry[2][1], entry[2][2]
    last = entry[1]
  end
  return #entries, last and tonumber(string.match(last, '^%d+'))
end

-- With the offset, up to which the copy may forget.
function READERS.inbox(p, shard, item, todo, out)
  local offset = read_record(p, shard)[OFFSET]
  local piece = {'i', string.format('%d', offset)}
  local from = math.max(out.marks.inbox, offset) + 1
  local count, last = read_entries(p .. 'inbox:' .. shard, from, ask(out, item[2]), piece)
  if count > 0 then
    todo[#todo + 1] = {'inbox', add(out, piece, 3, count, 2)}
    out.marks.inbox = last
  elseif not item[2] and out.marks.inbox > 0 then
    add(out, piece, 3, 0, 0)
  end
end

-- Before the freeze only so many pairs as the resume point can name.
function READERS.lanes(p, shard, item, todo, out)
  local found = redis.call('HSCAN', p .. 'shard:' .. shard, item[2], 'MATCH', '<*', 'COUNT', READ_CHUNK)
  if found[1] ~= '0' then todo[#todo + 1] = {'lanes', found[1]} end
  for i = 1, #found[2], 2 do
    local target = string.sub(found[2][i], 2)
    local mark = out.marks.lanes[target]
    if out.final or mark or out.marks.count < LANES_MAX and redis.call('EXISTS', outbox_key(p, shard, target)) == 1 then
      todo[#todo + 1] = {'lane', mark and mark + 1 or 0, target}
      if not out.final and not mark then
        out.marks.lanes[target], out.marks.count = 0, out.marks.count + 1
      end
    end
  end
end

-- Entries that the target has by now may go from the outbox while it is read, the oldest first: with the entries
-- goes the number of the first that is left, or 0.
function READERS.lane(p, shard, item, todo, out)
  local target, from = item[3], item[2]
  local key = outbox_key(p, shard, target)
  local external = redis.call('HEXISTS', p .. 'shard:' .. shard, '!' .. target)
  local first = redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
  local first_number = first and tonumber(string.match(first[1], '^%d+')) or 0
  local piece = {'o', target, external, first_number, out.final and 1 or 0}
  local count, last = read_entries(key, from, ask(out, item[4]), piece)
  if count > 0 then
    todo[#todo + 1] = {'lane', last + 1, target, add(out, piece, 6, count, 2)}
    if not out.final then out.marks.lanes[target] = last end
  elseif from > 0 then
    add(out, piece, 6, 0, 0)
  else
    out.entries = out.entries - 1
  end
end

-- Reads a part of round `held.round`. Answers [packed pieces, resume, last (0, 1), rounds complete] or STALE.
local function read_part(p, shard, record, held, resume, bytes, entries)
  local run, begun, at, todo, marks = run_id(), unpack(unpack_resume(resume))
  local final = record[STATUS] == FROZEN
  if begun ~= run then return 'STALE' end
  if #todo == 0 and at + 1 == held.round then
    at = held.round
    -- the last is read first
    if final then todo = {{'lanes', '0'}, {'inbox'}} end
    if at == 1 then
      for _, item in ipairs({{'timers', '0'}, {'collections', '0'}, {'state', '0', ''}}) do todo[#todo + 1] = item end
    else
      if not final then todo = {{'lanes', '0'}, {'inbox'}} end
      todo[#todo + 1] = {'changes', '0'}
    end
    if final then todo[#todo + 1], todo[#todo + 2] = {'fields', '0'}, {'head'} end
  elseif #todo == 0 or at ~= held.round then
    return 'STALE'
  end
  local out = {pieces = {}, bytes = bytes, entries = entries, marks = marks, final = final}
  while #todo > 0 and out.bytes > 0 and out.entries > 0 do
    local item = table.remove(todo)
    READERS[item[1]](p, shard, item, todo, out)
  end
  local over = #todo == 0
  resume = over and final and '' or cmsgpack.pack({run, at, todo, marks})
  return {cmsgpack.pack(out.pieces), resume, over and final and 1 or 0, over and at or at - 1}
end

-- freeze: stop a shard for the rest of its move, at the end of a round of its pre-copy; read the rest's first part.
-- KEYS 1: prefix. ARGV: shard, token, schedule version, resume, bytes, entries.
-- Answers [packed pieces, resume, last (0, 1), rounds complete] or STALE, UNKNOWN, MOVING, [MOVED, store].
local function freeze(keys, args)
  local p, shard, move = keys[1], args[1], token(args)
  local record = living_record(p, shard)
  if not record then return 'UNKNOWN' end
  if record[STATUS] > FROZEN then return not_here(record) end
  local held = held_under(p, shard, record, move)
  if not held then return 'STALE' end
  if record[STATUS] == COPYING then
    if not may_leave(p, shard, move.target, args[6]) or completed_round(args[7]) ~= held.round then return 'STALE' end
    if record[LIST] then take_name(p .. 'ready:' .. record[LIST], shard) end
    record[EPOCH], record[STATUS], record[READY] = math.max(record[EPOCH] + 1, move.epoch), FROZEN, IDLE
    redis.call('HDEL', record[KEY], 'l', 'x', 'n')
    forget_callers(p, shard, record)
    write_record(record)
    turn(p, shard, held.round)
    held.round = held.round + 1
    if record[WAITERS] > 0 then goes_out(p, shard) end
  end
  return read_part(p, shard, record, held, args[7], tonumber(args[8]), tonumber(args[9]))
end

-- export: read a part of a shard that is being copied.
-- KEYS 1: prefix. ARGV: shard, token, resume, bytes, entries.
-- Answers [packed pieces, resume, last (0, 1), rounds complete] or STALE, UNKNOWN.
local function export(keys, args)
  local p, shard = keys[1], args[1]
  local record = living_record(p, shard)
  if not record then return 'UNKNOWN' end
  local held = held_under(p, shard, record, token(args))
  if not held then return 'STALE' end
  return read_part(p, shard, record, held, args[6], tonumber(args[7]), tonumber(args[8]))
end

register('freeze', freeze, WRITES)
register('export', export, READS)
end
do
-- Moves between stores: a copy is written part by part, at the target.

local WRITERS = {}

-- Comes first of the rest: from here on the shard is on its way.
function WRITERS.h(change, shard, record, piece)
  local head = unpack_record(record[KEY], piece[2])
  for _, i in ipairs({
    EPOCH, COMMIT, OFFSET, PLACED, INBOX_BYTES, ARRIVED, COMPLETED, TABLE, SOURCE, FINISHED,
    WATERMARK, REACHED, TOLD, TOLD_VERSION,
  }) do record[i] = head[i] end
  redis.call('HDEL', record[KEY], 'm')
end

function WRITERS.f(change, shard, record, piece)
  call_chunked('HSET', record[KEY], piece, 2, #piece)
end

function WRITERS.s(change, shard, record, piece)
  local collection = piece[2]
  call_chunked('HSET', collection_key(change.p, shard, collection), piece, 3, #piece)
  if collection ~= '' then redis.call('SADD', change.p .. 'collections:' .. shard, collection) end
end

local function forget_if_empty(change, shard, collection)
  if redis.call('EXISTS', collection_key(change.p, shard, collection)) == 0 then
    redis.call('SREM', change.p .. 'collections:' .. shard, collection)
  end
end

function WRITERS.d(change, shard, record, piece)
  call_chunked('HDEL', collection_key(change.p, shard, piece[2]), piece, 3, #piece)
  forget_if_empty(change, shard, piece[2])
end

function WRITERS.w(change, shard, record, piece)
  redis.call('UNLINK', collection_key(change.p, shard, piece[2]))
  forget_if_empty(change, shard, piece[2])
end

function WRITERS.t(change, shard, record, piece)
  call_chunked('ZADD', change.p .. 'timers:' .. shard, piece, 2, #piece)
end

function WRITERS.u(change, shard, record, piece)
  call_chunked('ZREM', change.p .. 'timers:' .. shard, piece, 2, #piece)
end

function WRITERS.i(change, shard, record, piece)
  local key = change.p .. 'inbox:' .. shard
  redis.call('XTRIM', key, 'MINID', '=', string.format('%d-0', piece[2] + 1))
  for i = 3, #piece, 3 do redis.call('XADD', key, piece[i], piece[i + 1], piece[i + 2]) end
end

-- What was copied of a pair before, and was delivered since, goes: all before number `first`, all for 0.
-- Answers the last number of what was copied.
local function forget_delivered(change, shard, record, target, key, first)
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  if not last then return 0 end
  local number = tonumber(string.match(last[1], '^%d+'))
  local delivered = first == 0 and number or math.min(first - 1, number)
  local entries, bytes = waiting_up_to(key, delivered)
  if entries > 0 then
    record[OUT_ENTRIES], record[OUT_BYTES] = record[OUT_ENTRIES] - entries, record[OUT_BYTES] - bytes
    if delivered == number then
      clear_lane(change, shard, record, target)
    else
      redis.call('XTRIM', key, 'MINID', '=', string.format('%d-0', first))
    end
  end
  return number
end

function WRITERS.o(change, shard, record, piece)
  local p, target, external, final = change.p, piece[2], piece[3], piece[5]
  local key = outbox_key(p, shard, target)
  -- whoever clears the copy finds its outboxes by this field
  redis.call('HSETNX', record[KEY], '<' .. target, 0)
  local had = forget_delivered(change, shard, record, target, key, piece[4])
  for i = 6, #piece, 3 do
    if tonumber(string.match(piece[i], '^%d+')) > had then
      redis.call('XADD', key, piece[i], piece[i + 1], piece[i + 2])
      record[OUT_ENTRIES], record[OUT_BYTES] = record[OUT_ENTRIES] + 1, record[OUT_BYTES] + #piece[i + 2]
    end
  end
  if final == 0 or external == 1 or redis.call('EXISTS', key) == 0 then return end
  local there = change_record(change, target)
  record[PENDING] = record[PENDING] + redis.call('SADD', p .. 'pending:' .. shard, target)
  local added = redis.call('ZSCORE', p .. 'waiters:' .. target, shard) and 0 or wait_in_line(p, target, shard)
  if there then there[WAITERS], there[DIRTY] = there[WAITERS] + added, true end
  if not there or there[STATUS] > ACTIVE then
    goes_out(p, target)
    return
  end
  -- there may be room, and nothing else that would make the target look
  local field = '>' .. shard
  there[FIELDS] = there[FIELDS] or {}
  local taken = there[FIELDS][field] or tonumber(redis.call('HGET', there[KEY], field) or 0)
  local _
  _, there[FIELDS][field] = move_waiting(
    change, shard, record, target, there, taken, {entries = #piece, bytes = math.huge})
end

-- Whether the shard may come here with this move: it is not here, and did not come or leave with it or a newer one.
local function may_come(p, shard, record, move)
  if not record or is_gone(record) then return not record or record[EPOCH] < move.epoch end
  if record[STATUS] ~= INSTALLING then return false end
  local held = read_token(p, shard)
  if same_move(held, move) then return not redis.call('HGET', move_key(p, shard), 'discarded') end
  return held.epoch < move.epoch
end

-- install: take a chunk of a shard.
-- KEYS 1: prefix. ARGV: shard, token, number, packed pieces, resume, last (0, 1), rounds complete, entries, bounds.
-- Answers [chunks, resume, complete (0, 1), rounds] or STALE, UNKNOWN.
local function install(keys, args)
  local p, shard, move = keys[1], args[1], token(args)
  if retracted(p) then return 'UNKNOWN' end
  local record = read_record(p, shard)
  if not may_come(p, shard, record, move) then return 'STALE' end
  local key, number = move_key(p, shard), tonumber(args[6])
  if not record or record[STATUS] ~= INSTALLING or not same_move(read_token(p, shard), move) then
    if number ~= 1 then return {0, '', 0, 0} end
    redis.call('UNLINK', key)
    write_token(p, shard, move)
    redis.call('HSET', key, 'number', 0, 'resume', '', 'complete', 0, 'rounds', 0)
    if record then
      redis.call('HSET', key, 'clearing', 1)
    else
      record = {}
      for i = 1, HOT_SIZE do record[i] = 0 end
      record[KEY], record[LIST], record[TAKEN], record[DIRTY] = p .. 'shard:' .. shard, false, 0, false
      record[WAITERS] = redis.call('ZCARD', p .. 'waiters:' .. shard)
      redis.call('SADD', TOPOLOGIES, uid_of(p))
    end
    record[STATUS], record[EPOCH] = INSTALLING, move.epoch
    write_record(record)
    -- until the rest comes the shard is where it was
    redis.call('HSET', record[KEY], 'm', move.source)
    restage(p, shard)
  end
  local got = redis.call('HMGET', key, 'number', 'resume', 'complete', 'rounds', 'clearing')
  local taken, resume, complete, rounds = tonumber(got[1]), got[2], tonumber(got[3]), tonumber(got[4])
  if got[5] then
    if clear_some(p, shard, record, tonumber(args[11])) then redis.call('HDEL', key, 'clearing') end
    write_record(record)
    return {0, '', 0, 0}
  end
  if number == taken + 1 and complete == 0 then
    local change = new_change(p, {struct.unpack(BOUNDS, args[12])})
    record[DIRTY] = true
    change.records[shard] = record
    for _, piece in ipairs(cmsgpack.unpack(args[7])) do WRITERS[piece[1]](change, shard, record, piece) end
    write_back(change)
    taken, resume, complete, rounds = number, args[8], tonumber(args[9]), tonumber(args[10])
    redis.call('HSET', key, 'number', string.format('%d', number), 'resume', resume, 'complete', complete,
      'rounds', rounds)
  end
  return {taken, resume, complete, rounds}
end

register('install', install, REFUSED_WHEN_FULL)
end
