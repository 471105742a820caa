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
        local has_place = may_place(record, #payload, bounds) or operator_of(producer) == operator_of(target)
        if budget.entries <= 0 or budget.bytes <= 0 or not has_place then
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
    -- what it was held for waits no more; its next commit tells whether another has as little room
    set_limits(source, source.inbox_limit, nil)
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
      if may_place(there, 0, change.bounds) or operator_of(shard) == operator_of(target) then
        local _
        _, there[TAKEN] = move_waiting(change, shard, record, target, there, there[TAKEN], budget)
      end
    end
  end
end
