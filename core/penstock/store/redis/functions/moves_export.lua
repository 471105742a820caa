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
