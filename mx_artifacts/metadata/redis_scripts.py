"""Check-and-set on the Redis server, in Lua, each script on one key.

Lua and not WATCH/MULTI: a script is atomic in one round trip, needs no connection of its own and no
retry loop, and a heartbeat never brings the record (which may hold thousands of tensors) to the
client and back.

A worker's hash and its source's index are two keys whose names deployed servers fix; in a Redis
Cluster they may be on two nodes, so no script can change both. So a change is a pair of scripts,
one for each key, and each applies it only to what is not newer. Two changes may reach the two keys
in any order; in the end, both keys have the newer one. `supersedes` in core/sources.py is the same
rule in Python; both run the contract suite.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha1


@dataclass(frozen=True)
class Script:
    """A Lua script and the name that Redis gives it."""

    text: str
    sha1: str = field(init=False)

    def __post_init__(self) -> None:
        digest = sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha1", digest)


# decode(text): the JSON object, else nil.
# is_newer(kept, at, status): whether a kept summary is newer than this time and status. STALE
#   counts as newer than another status of the same time, since the reaper keeps the time.
_PRELUDE = """
local function decode(text)
  if not text then return nil end
  local ok, value = pcall(cjson.decode, text)
  if ok and type(value) == 'table' then return value end
  return nil
end
local function is_newer(kept, at, status)
  local kept_at = tonumber(kept.updated_at) or 0
  return kept_at > at or (kept_at == at and tonumber(kept.status) == 3 and status ~= 3)
end
"""

# read_summary(rank): the summary of a rank in a worker's hash, made from the record when there is
#   none (older servers write none) or when the record is newer (they rewrite the record).
_RECORD_PRELUDE = (
    _PRELUDE
    + """
local function read_summary(rank, is_record_read)
  local summary = decode(redis.call('HGET', KEYS[1], 'status:' .. rank))
  if summary and summary.updated_at and not is_record_read then return summary end
  local record = decode(redis.call('HGET', KEYS[1], rank)) or {}
  local recorded_at = tonumber(record.updated_at) or 0
  if summary and (tonumber(summary.updated_at) or -1) >= recorded_at then return summary end
  return {worker_rank = tonumber(rank), status = tonumber(record.status) or 0,
          updated_at = recorded_at, accelerator = record.accelerator or '',
          topology = record.topology or {}}
end
local function write_summary(rank, summary)
  redis.call('HSET', KEYS[1], 'status:' .. rank, cjson.encode(summary))
end
"""
)

UPDATE_RECORD = Script(
    _RECORD_PRELUDE
    + """
-- KEYS[1]: worker's hash. ARGV: rank, status, updated_at, source_load or ''
-- returns 0 when there is no record of this rank
local rank, status, updated_at = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if redis.call('HEXISTS', KEYS[1], rank) == 0 then return 0 end
local summary = read_summary(rank, false)
if is_newer(summary, updated_at, status) then return 1 end
summary.status, summary.updated_at, summary.source_load = status, updated_at, tonumber(ARGV[4])
write_summary(rank, summary)
return 1
"""
)

UPDATE_INDEX = Script(
    _PRELUDE
    + """
-- KEYS[1]: source's index. ARGV: worker id, rank, status, updated_at, source_load or ''
-- returns 0 when the worker has to publish again: its entry or the identity is gone or damaged
local worker_id, status, updated_at = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local entry = redis.call('HGET', KEYS[1], worker_id)
if not entry or redis.call('HEXISTS', KEYS[1], '__attributes__') == 0 then return 0 end
if string.match(entry, '^%d+$') then return 1 end  -- says the rank only: readers open the record
local summary = decode(entry)
if not summary then return 0 end
if tonumber(summary.worker_rank) ~= tonumber(ARGV[2]) then return 1 end
if is_newer(summary, updated_at, status) then return 1 end
summary.status, summary.updated_at, summary.source_load = status, updated_at, tonumber(ARGV[5])
redis.call('HSET', KEYS[1], worker_id, cjson.encode(summary))
return 1
"""
)

MARK_RECORD = Script(
    _RECORD_PRELUDE
    + """
-- KEYS[1]: worker's hash. ARGV: rank, the updated_at of the row that was judged
-- returns 1 when changed, 0 when newer than that row or STALE already, -1 when there is no record
local rank, at = ARGV[1], tonumber(ARGV[2])
if redis.call('HEXISTS', KEYS[1], rank) == 0 then return -1 end
local summary = read_summary(rank, true)
if is_newer(summary, at) then return 0 end
summary.status = 3
write_summary(rank, summary)
return 1
"""
)

MARK_INDEX = Script(
    _PRELUDE
    + """
-- KEYS[1]: source's index. ARGV: worker id, the updated_at of the row that was judged
-- returns 1 when changed
local summary = decode(redis.call('HGET', KEYS[1], ARGV[1]))
if not summary or is_newer(summary, tonumber(ARGV[2])) then return 0 end
summary.status = 3
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(summary))
return 1
"""
)

DELETE_RECORD = Script(
    _RECORD_PRELUDE
    + """
-- KEYS[1]: worker's hash. ARGV: rank, the updated_at and status of the row that was judged
-- returns 1 when removed, 0 when newer than that row, -1 when there is no record
local rank, at, status = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if redis.call('HEXISTS', KEYS[1], rank) == 0 then return -1 end
if is_newer(read_summary(rank, true), at, status) then return 0 end
redis.call('DEL', KEYS[1])
return 1
"""
)

DELETE_INDEX = Script(
    _PRELUDE
    + """
-- KEYS[1]: source's index. ARGV: worker id, the updated_at and status of the row that was judged;
-- '' and '' remove whatever there is. The last worker takes the index along.
-- returns 1 when removed
local entry = redis.call('HGET', KEYS[1], ARGV[1])
if not entry then return 0 end
local summary, at = decode(entry), tonumber(ARGV[2])
if at and summary and is_newer(summary, at, tonumber(ARGV[3])) then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
local left = redis.call('HLEN', KEYS[1])
if left == 0 or (left == 1 and redis.call('HEXISTS', KEYS[1], '__attributes__') == 1) then
  redis.call('DEL', KEYS[1])
end
return 1
"""
)

REPLACE_BALLOTS = Script(
    """
-- KEYS[1]: the group's ballots. ARGV: what must still be there or '', the new text, TTL [ms]
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
"""
)
