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
  redis.call('HDEL', record[KEY], 'p', 'w', 'c', 'k', 'b', 'l', 'x', 'n')
  local epoch, status, waiters = record[EPOCH], record[STATUS], record[WAITERS]
  for i = 1, HOT_SIZE do record[i] = 0 end
  record[EPOCH], record[STATUS], record[WAITERS] = epoch, status, waiters
  return true
end
