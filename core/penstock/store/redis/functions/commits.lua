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

-- Places a commit's outputs for shards: (target, rows, payload) each, from args[at] on. Answers the least that an inbox
-- may hold which one of them waits for, nil for no limit.
local function place_outputs(change, shard, record, issued, now_us, args, at, outputs)
  local p, bounds, waiting, limit = change.p, change.bounds, {}
  for i = at, at + 3 * outputs - 1, 3 do
    local target, rows, payload = args[i], tonumber(args[i + 1]), args[i + 2]
    local number = issued[target] + 1
    issued[target] = number
    local there = change_record(change, target)
    local here = there and there[STATUS] <= ACTIVE
    local follows = here and comes_next(there, number)
    if here and not follows and there[EPOCH] >= LIFE and not waiting[target] then
      follows = comes_next(there, number, redis.call('EXISTS', outbox_key(p, shard, target)) == 0)
    end
    if follows and (may_place(there, #payload, bounds) or operator_of(shard) == operator_of(target)) then
      place(change, target, there, now_us, rows, payload)
      there[TAKEN] = number
    else
      queue(change, shard, record, target, number, now_us, args[i + 1], payload)
      if here and there.inbox_limit and operator_of(shard) ~= operator_of(target) then
        limit = math.min(limit or math.huge, there.inbox_limit)
      end
      if not waiting[target] then
        waiting[target] = true
        record[PENDING] = record[PENDING] + redis.call('SADD', p .. 'pending:' .. shard, target)
        local added = redis.call('ZSCORE', p .. 'waiters:' .. target, shard) and 0 or wait_in_line(p, target, shard)
        if there then there[WAITERS], there[DIRTY] = there[WAITERS] + added, true end
        if not here then goes_out(p, target) end
      end
    end
  end
  return limit
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
    groups, timers, outputs, external, in_hand, has_within, has_counts, watermark, watermark_ms, inbox_limit =
    struct.unpack('<dddddddddddddddddddd', args[first + 1])
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
  if inbox_limit >= 0 then set_limits(record, inbox_limit > 0 and inbox_limit or nil, record.outbox_limit) end
  record[INBOX_BYTES] = record[INBOX_BYTES] - bytes
  record[COMPLETED] = record[COMPLETED] + rows
  local listed = in_hand == 0 and record[READY] == LISTED and take_name(p .. 'ready:' .. record[LIST], shard)
  -- on no list while entries are moved about: what comes in does not list it before its turn
  local was_held = record[READY] == HELD
  record[READY] = LISTED
  pull_waiters(change, shard, record, bytes, worked)
  drain(change, shard, record)
  local outbox_limit
  if outputs + external > 0 then
    local issued, born = {}, life_of(record) * LIFE
    for i, target in ipairs(targets) do
      local value = tonumber(got[i + 3] or target and born or 0)
      if target then issued[target] = value else fields[pairs_read[i]] = value end
    end
    outbox_limit = place_outputs(change, shard, record, issued, now_us, args, at, outputs)
    at = at + 3 * outputs
    for i = at, at + 3 * external - 1, 3 do
      local sink = args[i]
      issued[sink] = issued[sink] + 1
      if issued[sink] == born + 1 then fields['!' .. sink] = string.format('%d', born) end
      queue(change, shard, record, sink, issued[sink], now_us, args[i + 1], args[i + 2])
    end
    for target, last in pairs(issued) do fields['<' .. target] = string.format('%d', last) end
  end
  set_limits(record, record.inbox_limit, outbox_limit)
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
-- groups of state, timers, outputs to shards, outputs to sinks, in hand, has within, has counts, what of a watermark, ms,
-- what the inbox may hold from now on: bytes, 0 for what its bound says, -1 for what it was)
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
