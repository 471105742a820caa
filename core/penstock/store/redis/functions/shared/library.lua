#!lua name=penstock

-- The node store's protocol as a library of Redis Functions (Redis >= 7.0, Valkey >= 7.2).
--
-- It is joined of parts, in the order that `redis.library` names. What the shared parts name, all parts below see; a
-- role's part is a block of its own, which ends by registering its functions.
--
-- Every function is called with one key, the topology's prefix ("penstock:<uid>:"), and builds the
-- others from it; that needs one server, not a cluster (flag no-cluster). A function validates
-- everything before its first write: nothing rolls back. Its effects reach the append-only file as
-- one transaction. Function names end in the protocol's version: code of another version finds none of them.
--
-- Numbers that never leave a record travel packed as doubles ("struct", exact to 2^53). Python's side of a role is the
-- module of the same name beside this folder (`redis/commits.py` for `commits.lua`).

local VERSION = 10

-- Whatever writes may run at maxmemory, or a full store could never empty itself. Only append, fetch and install are
-- refused: so a task learns, at no cost, that the store is full. It and who delivers ask the first two again under
-- their other names, and with narrower bounds.
local function register(name, callback, flags)
  redis.register_function{
    function_name = 'penstock_' .. name .. '_' .. VERSION, callback = callback, flags = flags,
  }
end
local WRITES = {'allow-oom', 'no-cluster'}
local REFUSED_WHEN_FULL = {'no-cluster'}
local READS = {'no-writes', 'no-cluster'}

-- penstock_version: the protocol's version.
-- KEYS none. ARGV none. Answers an integer.
local function version()
  return VERSION
end

redis.register_function{function_name = 'penstock_version', callback = version, flags = READS}
