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
-- one that lost its last writes could else not be heard for long. So has each life of a shard, whose store may have been
-- started less often than the one that was lost.
--
-- "listening:OPERATOR" has ready lists whose tasks wait for anything new about the operator's shards. They are rung once,
-- and have to listen anew. Like ready lists it is not written to the append-only file.

local FACT = '<dd'
local VERSIONS_A_START = 2 ^ 32

-- The key of one of an operator's sets, as named above.
local function operators_key(p, set, operator) return p .. set .. ':' .. operator end
local function marks_key(p, shard) return p .. 'marks:' .. shard end

local function ring_listeners(p, operator)
  local key = operators_key(p, 'listening', operator)
  local lists = redis.call('SMEMBERS', key)
  if #lists == 0 then return end
  unlogged()
  redis.call('UNLINK', key)
  logged()
  for _, list in ipairs(lists) do append_names(p .. 'ready:' .. list, {RUNG}) end
end

-- Writes what is known of a shard.
local function keep_fact(p, shard, version, value)
  local operator = operator_of(shard)
  local is_idle = value % 2 == 1
  local into, from = operators_key(p, 'waited', operator), operators_key(p, 'idle', operator)
  if is_idle then into, from = from, into end
  local is_new = redis.call('HSET', operators_key(p, 'facts', operator), shard, struct.pack(FACT, version, value))
  if is_new == 1 then
    redis.call('SADD', p .. 'telling', operator)
    redis.call('SADD', TOPOLOGIES, uid_of(p))
    if redis.call('HEXISTS', p .. 'shards:' .. operator, shard) == 0 then
      redis.call('SADD', operators_key(p, 'strange', operator), shard)
    end
  end
  redis.call('ZADD', into, math.floor(value / 2), shard)
  redis.call('ZREM', from, shard)
  ring_listeners(p, operator)
end

-- A fact that comes from elsewhere: counts when it is newer than what is known.
local function take_fact(p, shard, version, value)
  local known = redis.call('HGET', operators_key(p, 'facts', operator_of(shard)), shard)
  if known then
    local known_version, known_value = struct.unpack(FACT, known)
    if version < known_version or version == known_version and value <= known_value then return end
  end
  keep_fact(p, shard, version, value)
end

-- A newer schedule of an operator may name shards of which something is known already, and others than those that
-- listeners have heard of.
local function know_strangers(p, operator)
  ring_listeners(p, operator)
  for _, shard in ipairs(redis.call('SMEMBERS', operators_key(p, 'strange', operator))) do
    if redis.call('HEXISTS', p .. 'shards:' .. operator, shard) == 1 then
      redis.call('SREM', operators_key(p, 'strange', operator), shard)
    end
  end
end

local function tell(p, shard, record, value)
  local starts = life_of(record) * 2 ^ 13 + generation()
  record[TOLD_VERSION] = math.max(record[TOLD_VERSION], starts * VERSIONS_A_START) + 1
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

-- The least of what is told in one of an operator's sets, or the greatest; nil where it is empty. 0 is none, and below
-- all that is before 1970.
local function told_of(key, is_greatest)
  local found = tonumber(redis.call(is_greatest and 'ZREVRANGE' or 'ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if not found or found > 0 then return found end
  if is_greatest and found == 0 then
    return tonumber(redis.call('ZRANGE', key, '(0', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2] or -math.huge)
  end
  return not is_greatest and redis.call('ZRANGEBYSCORE', key, 0, 0, 'LIMIT', 0, 1)[1] and -math.huge or found
end

-- The watermark of a stage that the operators args[first] to args[last] feed: ms, nil for none, and whether all is idle.
-- A keyed stage is given with a slash behind it: its shards all take one watermark, so the last one counts, idle or not.
local function input_watermark(p, args, first, last)
  local least, most
  for i = first, last do
    local operator, is_keyed = args[i], false
    if string.sub(operator, -1) == '/' then operator, is_keyed = string.sub(operator, 1, -2), true end
    local waited, idle = operators_key(p, 'waited', operator), operators_key(p, 'idle', operator)
    local shards = redis.call('HLEN', p .. 'shards:' .. operator)
    local known = redis.call('ZCARD', waited) + redis.call('ZCARD', idle)
    if known > 0 then known = known - redis.call('SCARD', operators_key(p, 'strange', operator)) end
    if shards == 0 or known < shards then return nil, false end
    local slowest = told_of(waited)
    if slowest then
      least = math.min(least or math.huge, slowest, is_keyed and told_of(idle) or slowest)
    else
      most = math.max(most or -math.huge, told_of(idle, not is_keyed))
    end
  end
  if least then return least > -math.huge and least or nil, false end
  return most and most > -math.huge and most or nil, true
end
