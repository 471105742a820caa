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
-- A part of an inbox is read where it is the first one alone. Any other that does not fit as a whole is left to the
-- next fetch, which begins with it: what is left of one that was cut short would go behind all others, and be cut short
-- again.
-- KEYS 1: prefix. ARGV: ready list, bytes, shards, bounds; now (ms) and how many timers, where these are asked for; the
-- operators that feed the stage, where it goes by event time.
-- Answers [control (0, 1), shard, epoch, offset, [[id, [placed (us), payload]], ...], ...], and with timers
-- [[control, when to fetch again (ms) or -1], shard, epoch, offset, entries, [name, due (ms), ...], ...]; by event time
-- [[control, and 2 more where the list was rung, again, watermark (ms) or '', idle (0, 1)], shard, epoch, offset,
-- entries, timers, last number placed, ...].
local function fetch(keys, args)
  local p, bytes_max, shards_max = keys[1], tonumber(args[2]), tonumber(args[3])
  local bounds = {struct.unpack(BOUNDS, args[4])}
  local list = p .. 'ready:' .. args[1]
  local answer, used, taken, entries_left, rung = {0}, 0, 0, READ_ENTRIES, 0
  local watermarks, is_full = args[7] and {}, false
  if shards_max == 0 and redis.call('LINDEX', list, 0) == TOKEN then
    take_name(list, TOKEN)
    answer[1] = 1
  end
  local function leave(names, from)
    unlogged()
    for back = #names, from, -1 do redis.call('LPUSH', list, names[back]) end
    logged()
    is_full = true
  end
  while taken < shards_max and not is_full and (taken == 0 or used < bytes_max and entries_left > 0) do
    unlogged()
    local names = redis.call('LPOP', list, math.min(shards_max - taken, CHUNK))
    logged()
    if not names then break end
    for i, name in ipairs(names) do
      if taken > 0 and (used >= bytes_max or entries_left <= 0) then
        leave(names, i)
        break
      end
      -- a list names only what its task owns: a claim takes a shard off the list of its last owner
      local key = p .. 'shard:' .. name
      local got = name ~= TOKEN and name ~= RUNG and redis.call('HMGET', key, 'h', 'b')
      local record = got and unpack_record(key, got[1], nil, nil, got[2])
      if name == TOKEN then
        answer[1] = 1
      elseif name == RUNG then
        rung = 2
      elseif record and record[READY] == LISTED then
        local held = over_bound(record, bounds)
        if record[STATUS] > ACTIVE or held then
          record[READY] = record[STATUS] <= ACTIVE and HELD or IDLE
          redis.call('HSET', key, 'h', pack_record(record))
        else
          local entries, bytes, offset = {}, 0, record[OFFSET]
          local waiting = record[PLACED] - offset
          if taken > 0 and waiting > 0 and (record[INBOX_BYTES] > bytes_max - used or waiting > entries_left) then
            leave(names, i)
            break
          end
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
    if watermarks then
      answer[1][1] = answer[1][1] + rung
      answer[1][3], answer[1][4] = watermark_ms or '', is_idle and 1 or 0
    end
  end
  return answer
end

register('wake', wake, WRITES)
register('fetch', fetch, REFUSED_WHEN_FULL)
register('fetch_pressed', fetch, WRITES)
