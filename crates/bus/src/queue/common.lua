-- Shared by every script. KEYS[1] is the prefix with the hash tag: all keys live in one slot.
-- gen: present = this structure is complete; w:<worker>: alive; l:<session>: who holds it; r:<tenant>: ready sessions by
-- time; act: tenants with ready work below their cap, by virtual time; run:<tenant>: held sessions; own:<worker>: the same
-- by worker; vt, gvt: virtual times; cap: running sessions allowed; ws: workers seen.
local p = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local CAP_DEFAULT = 64
-- Added to a tenant's virtual time for each claim: five slot-seconds, the least a claim costs.
local QUANTUM = 5
-- Puts what was interrupted before everything that is new.
local FRONT = 1e13

local function cap(tenant)
  return tonumber(redis.call('HGET', p .. 'cap', tenant) or CAP_DEFAULT)
end

local function activate(tenant)
  if redis.call('ZCARD', p .. 'r:' .. tenant) == 0 or redis.call('ZCARD', p .. 'run:' .. tenant) >= cap(tenant) then
    redis.call('ZREM', p .. 'act', tenant)
    return
  end
  if not redis.call('ZSCORE', p .. 'act', tenant) then
    -- An idle tenant has saved nothing up, and a new one does not starve.
    local own = tonumber(redis.call('HGET', p .. 'vt', tenant) or 0)
    local all = tonumber(redis.call('GET', p .. 'gvt') or 0)
    redis.call('HSET', p .. 'vt', tenant, math.max(own, all))
    redis.call('ZADD', p .. 'act', math.max(own, all), tenant)
  end
end

local function alive(worker)
  return redis.call('EXISTS', p .. 'w:' .. worker) == 1
end

local function free(session)
  local lease = redis.call('HMGET', p .. 'l:' .. session, 'own', 'tenant', 'dirty')
  if not lease[1] then return nil end
  redis.call('DEL', p .. 'l:' .. session)
  redis.call('ZREM', p .. 'run:' .. lease[2], session)
  redis.call('SREM', p .. 'own:' .. lease[1], session)
  return lease[2], lease[3]
end

local function hold(session, tenant, worker)
  redis.call('HSET', p .. 'l:' .. session, 'own', worker, 'tenant', tenant)
  redis.call('ZADD', p .. 'run:' .. tenant, now, session)
  redis.call('SADD', p .. 'own:' .. worker, session)
  redis.call('SADD', p .. 'ws', worker)
end
