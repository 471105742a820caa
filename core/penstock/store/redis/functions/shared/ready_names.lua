-- Names on ready lists: what a task waits for.

local TOKEN = '!'
local RUNG = '~' -- wakes a task that listens, and says no more

-- Ready lists are not written to the append-only file: a start raises the generation, and the claims that this makes
-- needful fill the lists anew. Whatever writes to one does so between these two calls.
local function unlogged() redis.set_repl(redis.REPL_NONE) end
local function logged() redis.set_repl(redis.REPL_ALL) end

-- Puts names at the end of a ready list. One that was empty has its bell rung (a channel of the list's name):
-- its task may be listening, and only then.
local function append_names(key, names)
  unlogged()
  local count = redis.call('RPUSH', key, unpack(names, 1, math.min(#names, CHUNK)))
  local was_empty = count == math.min(#names, CHUNK)
  call_chunked('RPUSH', key, names, CHUNK + 1, #names)
  if was_empty then redis.call('PUBLISH', key, '') end
  logged()
end

-- Takes a shard off a ready list; answers whether it was there.
local function take_name(key, shard)
  unlogged()
  local removed = redis.call('LREM', key, 0, shard)
  logged()
  return removed > 0
end

-- Puts the control token at the head of a ready list, where it always is: at most one.
local function wake_list(p, ready)
  local key = p .. 'ready:' .. ready
  local first = redis.call('LINDEX', key, 0)
  unlogged()
  if first ~= TOKEN then redis.call('LPUSH', key, TOKEN) end
  if not first then redis.call('PUBLISH', key, '') end
  logged()
end
