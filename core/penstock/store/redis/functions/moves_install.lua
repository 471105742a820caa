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
