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
    local got = redis.call('HMGET', key, 'h', 'l', 'b', change.from or 'l')
    record = unpack_record(key, got[1], got[2], change.from and got[4], got[3]) or false
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
  -- Between shards of one operator goes no row, but the state of keys that change their shard: it waits for no room, or
  -- two full shards could wait for each other's for ever. So it comes before all others, of which the first has 1.
  if operator_of(producer) == operator_of(target) then return redis.call('ZADD', key, 0, producer) end
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
