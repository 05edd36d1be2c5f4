"""Check-and-set on the Redis server, in Lua.

Lua and not WATCH/MULTI: a script is atomic in one round trip, needs no connection of its own and no
retry loop, and a heartbeat never brings the record (which may hold thousands of tensors) to the
client and back. `supersedes` in core/sources.py is the same rule in Python; both run the
contract suite.

Of records, KEYS[1] is the worker's hash, KEYS[2] its source's index. Both may live on different
shards of a Redis Cluster, which the layout (fixed by deployed servers) does not allow for.
"""

from __future__ import annotations

# small(rank, record): the small JSON of a rank if there is one at least as fresh as `record`,
# else one made from the record. `record` nil: whatever small JSON there is.
_PRELUDE = """
local function decode(text)
  if not text then return nil end
  local ok, value = pcall(cjson.decode, text)
  if ok and type(value) == 'table' then return value end
  return nil
end
local function read_record(rank)
  return decode(redis.call('HGET', KEYS[1], rank))
end
local function read_small(rank, record)
  local small = decode(redis.call('HGET', KEYS[1], 'status:' .. rank))
  if small and small.updated_at and not record then return small end
  record = record or read_record(rank)
  if not record then return nil end
  local recorded_at = tonumber(record.updated_at) or 0
  if small and (tonumber(small.updated_at) or -1) >= recorded_at then return small end
  return {worker_rank = tonumber(rank), status = tonumber(record.status) or 0,
          updated_at = recorded_at, accelerator = record.accelerator or ''}
end
local function write_small(rank, small)
  redis.call('HSET', KEYS[1], 'status:' .. rank, cjson.encode(small))
end
"""

UPDATE_STATUS = (
    _PRELUDE
    + """
-- ARGV: worker id, rank, status, updated_at, source_load or ''
-- returns 0 when the worker has to publish again: record, index entry or identity is gone
local worker_id, rank = ARGV[1], ARGV[2]
local status, updated_at = tonumber(ARGV[3]), tonumber(ARGV[4])
if redis.call('HEXISTS', KEYS[1], rank) == 0 or redis.call('HEXISTS', KEYS[2], worker_id) == 0
    or redis.call('HEXISTS', KEYS[2], '__attributes__') == 0 then
  return 0
end
local small = read_small(rank)
if not small then return 0 end
local stored_at, stale = tonumber(small.updated_at) or 0, tonumber(small.status) == 3
if updated_at < stored_at or (updated_at == stored_at and stale and status ~= 3) then return 1 end
small.status, small.updated_at, small.source_load = status, updated_at, tonumber(ARGV[5])
write_small(rank, small)
return 1
"""
)

MARK_STALE = (
    _PRELUDE
    + """
-- ARGV: rank, the updated_at that must still be there; returns 1 when changed
local small = read_small(ARGV[1], read_record(ARGV[1]))
if not small or tonumber(small.updated_at) ~= tonumber(ARGV[2]) or tonumber(small.status) == 3 then
  return 0
end
small.status = 3
write_small(ARGV[1], small)
return 1
"""
)

DELETE = (
    _PRELUDE
    + """
-- ARGV: worker id, the updated_at that must still be there or ''; returns 1 when removed
if ARGV[2] ~= '' then
  local mark = redis.call('HGET', KEYS[2], ARGV[1])
  local rank = tonumber(mark) or tonumber((decode(mark) or {}).worker_rank)
  if not rank then return 0 end
  rank = string.format('%d', rank)
  local small = read_small(rank, read_record(rank))
  if not small or tonumber(small.updated_at) ~= tonumber(ARGV[2]) then return 0 end
end
local removed = redis.call('DEL', KEYS[1]) + redis.call('HDEL', KEYS[2], ARGV[1])
local left = redis.call('HLEN', KEYS[2])
if left == 0 or (left == 1 and redis.call('HEXISTS', KEYS[2], '__attributes__') == 1) then
  redis.call('DEL', KEYS[2])
end
return removed > 0 and 1 or 0
"""
)

REPLACE_BALLOTS = """
-- KEYS[1]: the group's ballots. ARGV: what must still be there or '', the new text, TTL [ms]
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
"""
