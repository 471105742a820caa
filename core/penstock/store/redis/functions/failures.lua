-- What user code raised.

-- report_failure: user code raised.
-- KEYS 1: prefix. ARGV: shard, generation, epoch, operator, message. Answers OK, DONE, FENCED, UNKNOWN.
local function report_failure(keys, args)
  local record, refusal = owned(keys[1], args[1], tonumber(args[2]), tonumber(args[3]))
  if not record then return refusal end
  return redis.call('HSETNX', keys[1] .. 'failures', args[4], args[5]) == 1 and 'OK' or 'DONE'
end

-- clear_failure: forget an operator's failure.
-- KEYS 1: prefix. ARGV: operator. Answers OK, UNKNOWN.
local function clear_failure(keys, args)
  if retracted(keys[1]) then return 'UNKNOWN' end
  redis.call('HDEL', keys[1] .. 'failures', args[1])
  return 'OK'
end

register('report_failure', report_failure, WRITES)
register('clear_failure', clear_failure, WRITES)
