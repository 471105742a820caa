-- Between stores, and outside: entries come in, wait to go out, and are acknowledged.

-- append, append_pressed: deliver one entry of a pair.
-- KEYS 1: prefix. ARGV: producer, target, number, placed (us), rows, payload, bounds, is the oldest that waits (0, 1).
-- Answers OK, DUP, GAP, BUSY, MOVING, [MOVED, store], UNKNOWN.
local function append(keys, args)
  local p, producer, target, number, payload = keys[1], args[1], args[2], tonumber(args[3]), args[6]
  if retracted(p) then return 'UNKNOWN' end
  local change = new_change(p, {struct.unpack(BOUNDS, args[7])}, producer)
  local record = change_record(change, target)
  if not record then return 'UNKNOWN' end
  if record[STATUS] > ACTIVE then return not_here(record) end
  if number <= record[TAKEN] then return 'DUP' end
  if not comes_next(record, number, args[8] == '1') then return 'GAP' end
  if not has_room(record, #payload, change.bounds) and operator_of(producer) ~= operator_of(target) then
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
  local got = redis.call('HMGET', record_key, 'h', 'l', 'b', '<' .. target, '!' .. target)
  local record = unpack_record(record_key, got[1], got[2], nil, got[3])
  if not record then return 'UNKNOWN' end
  local issued, acknowledged = tonumber(got[4] or 0), got[5]
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
