-- What a task has to do: names come off its ready list, with what is in their inboxes.

-- wake: put a control token on a ready list.
-- KEYS 1: prefix. ARGV: ready list. Answers OK, UNKNOWN.
local function wake(keys, args)
  if retracted(keys[1]) then return 'UNKNOWN' end
  wake_list(keys[1], args[1])
  return 'OK'
end

-- Hands out timers that are due, a fetch's `answer` being as in `fetch`: of the shards that it holds already, then of
-- others of the list, `left` at the most. Answers when to fetch again (ms), nil for never.
local function hand_out_due(p, list, bounds, answer, left, now_ms, most)
  local share, held = math.max(1, math.floor(most / 4)), {}
  local function read(shard)
    local timers = most > 0 and due_timers(p, shard, now_ms, math.min(share, most)) or {}
    most = most - #timers / 2
    return timers
  end
  for at = 2, #answer, 5 do
    held[answer[at]] = true
    answer[at + 4] = read(answer[at])
  end
  local key = due_key(p, list)
  local looked = redis.call('ZRANGEBYSCORE', key, '-inf', now_ms, 'LIMIT', 0, DUE_SHARDS)
  local is_more = most <= 0 or #looked == DUE_SHARDS
  for _, shard in ipairs(looked) do
    if not held[shard] then
      if most <= 0 or left <= 0 then
        is_more = true
        break
      end
      local record = read_record(p, shard)
      if not record or record[LIST] ~= list or record[STATUS] > ACTIVE then
        look_no_more(p, list, shard)
      elseif record[READY] ~= IDLE or over_bound(record, bounds) then
        look_at(p, list, shard, now_ms + LATER_MS)
      else
        local timers = read(shard)
        if #timers == 0 then
          look_when_due(p, list, shard)
        else
          local at = #answer
          answer[at + 1], answer[at + 2], answer[at + 3] = shard, record[EPOCH], record[OFFSET]
          answer[at + 4], answer[at + 5] = {}, timers
          left = left - 1
        end
      end
    end
  end
  if is_more then return now_ms end
  local next_look = redis.call('ZRANGEBYSCORE', key, '(' .. now_ms, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return tonumber(next_look[2])
end

-- fetch, fetch_pressed: take shards off a ready list and read their inboxes; with no shards, a control token at most.
-- KEYS 1: prefix. ARGV: ready list, bytes, shards, bounds; now (ms) and how many timers, where these are asked for.
-- Answers [control (0, 1), shard, epoch, offset, [[id, [placed (us), payload]], ...], ...], and with timers
-- [[control, when to fetch again (ms) or -1], shard, epoch, offset, entries, [name, due (ms), ...], ...].
local function fetch(keys, args)
  local p, bytes_max, shards_max = keys[1], tonumber(args[2]), tonumber(args[3])
  local bounds = {struct.unpack(BOUNDS, args[4])}
  local list = p .. 'ready:' .. args[1]
  local answer, used, taken, entries_left = {0}, 0, 0, READ_ENTRIES
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
        end
      end
    end
  end
  if args[6] then
    local now_ms, most = tonumber(args[5]), tonumber(args[6])
    local again_ms = hand_out_due(p, args[1], bounds, answer, shards_max - taken, now_ms, most)
    answer[1] = {answer[1], again_ms or -1}
  end
  return answer
end

register('wake', wake, WRITES)
register('fetch', fetch, REFUSED_WHEN_FULL)
register('fetch_pressed', fetch, WRITES)
