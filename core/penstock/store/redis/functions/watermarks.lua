-- Watermarks: how far what comes is, by what producers told.

-- read_watermark: the watermark of a stage.
-- KEYS 1: prefix. ARGV: producer's operator, with a slash behind a keyed one, ... Answers [ms or '', idle (0, 1)].
local function read_watermark(keys, args)
  local ms, is_idle = input_watermark(keys[1], args, 1, #args)
  return {ms or '', is_idle and 1 or 0}
end

-- listen: a ready list is rung, once, when anything new is known of these producers.
-- KEYS 1: prefix. ARGV: ready list; the watermark that its task has heard: ms or '', idle (0, 1); producer's operator,
-- with a slash behind a keyed one, ... Answers 1; 0 where there is another watermark by now, or timers that it has passed
-- wait for something else than news.
local function listen(keys, args)
  local p, list = keys[1], args[1]
  local ms, is_idle = input_watermark(p, args, 4, #args)
  if retracted(p) or ms ~= tonumber(args[2]) or is_idle ~= (args[3] == '1') then return 0 end
  if ms and redis.call('ZRANGEBYSCORE', due_key(p, list), '-inf', ms - 1, 'LIMIT', 0, 1)[1] then return 0 end
  unlogged()
  for i = 4, #args do redis.call('SADD', operators_key(p, 'listening', (string.gsub(args[i], '/$', ''))), list) end
  logged()
  return 1
end

-- advance: shards of which nothing waits take their input's watermark and tell it.
-- KEYS 1: prefix. ARGV: number of producers, producer's operator, ...; shard, generation, epoch, ...
-- Answers [ms or '', idle (0, 1), OK, BUSY, FENCED or UNKNOWN, ...].
local function advance(keys, args)
  local p, producers = keys[1], tonumber(args[1])
  local now_generation, gone = generation_and_retracted(p)
  local ms, is_idle = input_watermark(p, args, 2, 1 + producers)
  local answer = {ms or '', is_idle and 1 or 0}
  for i = 2 + producers, #args, 3 do
    local shard, got = args[i], 'UNKNOWN'
    local record
    if not gone then record, got = owned_at(p, shard, now_generation, tonumber(args[i + 1]), tonumber(args[i + 2])) end
    if record and record[PLACED] > record[OFFSET] then
      got = 'BUSY'
    elseif record then
      got = 'OK'
      take_watermark(record, ms or 0)
      reach(p, shard, record, is_idle)
      redis.call('HSET', record[KEY], 'h', pack_record(record))
    end
    answer[#answer + 1] = got
  end
  return answer
end

-- take_facts: facts of another store.
-- KEYS 1: prefix. ARGV: shard, packed (version, value), ... Answers OK, UNKNOWN.
local function take_facts(keys, args)
  if retracted(keys[1]) then return 'UNKNOWN' end
  for i = 1, #args, 2 do take_fact(keys[1], args[i], struct.unpack(FACT, args[i + 1])) end
  return 'OK'
end

register('read_watermark', read_watermark, READS)
register('listen', listen, WRITES)
register('advance', advance, WRITES)
register('take_facts', take_facts, WRITES)
