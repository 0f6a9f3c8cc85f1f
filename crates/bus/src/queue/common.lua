-- Shared by every script. The constants in capitals are prepended from domain::limits.
-- KEYS[1] is the prefix with the hash tag: all keys are in one slot. Tenants and classes have a virtual time: the slot time that
-- they used, divided by their weight, in ms. The lowest comes first.
--   gen                 present = this structure is complete
--   w:<worker>, ws      when a living worker last renewed; all workers
--   l:<id>              the holder of a session: own, class, dirty, paid (its slot time is charged up to this time, ms). Clients
--                       choose the names of sessions, which are unique in their tenant only: <id> is <tenant>:<session>
--   own:<worker>        the ids of the sessions that it holds
--   run:<tenant>        its held sessions, by the time of the claim
--   r:<tenant>:<class>  ready sessions: interrupted ones first, then the oldest
--   act, gvt            tenants with ready work below their cap, by virtual time; the virtual time of the last claim
--   busy                tenants with ready or held work, by when that began
--   t:<tenant>          cap, weight; vt; c<class> and cg: as vt and gvt, for its classes; since when it waits for its next claim,
--                       and the smoothed interval between two. Expires a while after the tenant went idle.
local p = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local CLASS_LAST = #CLASS_WEIGHTS - 1
-- Puts interrupted sessions before all new ones.
local FRONT = 1e13

local function id_of(tenant, session)
  return tenant .. ':' .. session
end

local function lease_key(tenant, session)
  return p .. 'l:' .. id_of(tenant, session)
end

-- Returns tenant and session.
local function parse_id(id)
  return string.match(id, '^([^:]*):(.*)$')
end

local function ready_key(tenant, class)
  return p .. 'r:' .. tenant .. ':' .. class
end

-- A renewal in the future means that the clock was set back. It would keep a dead worker alive for that long.
local function alive(worker)
  local renewed = tonumber(redis.call('GET', p .. 'w:' .. worker))
  return renewed ~= nil and renewed <= now + LEASE_TTL_MS
end

-- Returns cap and weight.
local function share(tenant)
  local known = redis.call('HMGET', p .. 't:' .. tenant, 'cap', 'weight')
  return tonumber(known[1] or CAP_DEFAULT), tonumber(known[2] or WEIGHT_DEFAULT)
end

-- '' for the cap: the share stays unchanged.
local function set_share(tenant, cap, weight)
  if cap ~= '' then
    redis.call('HSET', p .. 't:' .. tenant, 'cap', cap, 'weight', math.max(1, tonumber(weight)))
  end
end

-- Returns the virtual times of the tenant's classes, and that of its last claim.
local function class_clocks(tenant)
  local clocks = {}
  for class = 0, CLASS_LAST do
    clocks[class] = tonumber(redis.call('HGET', p .. 't:' .. tenant, 'c' .. class) or 0)
  end
  return clocks, tonumber(redis.call('HGET', p .. 't:' .. tenant, 'cg') or 0)
end

local function count_ready(tenant)
  local sum = 0
  for class = 0, CLASS_LAST do sum = sum + redis.call('ZCARD', ready_key(tenant, class)) end
  return sum
end

-- Returns the virtual time of a tenant or class that has work again. served: the virtual time of the last claim; least: the least of
-- those that wait, or nil. Time without work earns no credit, and slot time that no other tenant or class wanted counts only up to DEBT_MAX_MS.
local function enter(own, served, least)
  local floor = math.max(served, least and least - DEBT_MAX_MS or 0)
  return math.min(math.max(own, floor), floor + DEBT_MAX_MS)
end

-- Adds slot time to the virtual times; used: slot time in ms by class.
local function charge(tenant, used)
  local key, sum = p .. 't:' .. tenant, 0
  for class = 0, CLASS_LAST do
    if used[class] then
      local clock = tonumber(redis.call('HGET', key, 'c' .. class) or 0)
      redis.call('HSET', key, 'c' .. class, clock + used[class] / CLASS_WEIGHTS[class + 1])
      sum = sum + used[class]
    end
  end
  local _, weight = share(tenant)
  local vt = tonumber(redis.call('HGET', key, 'vt') or 0) + sum / weight
  redis.call('HSET', key, 'vt', vt)
  redis.call('ZADD', p .. 'act', 'XX', vt, tenant)
end

-- Updates `busy` and `act` to match the tenant's sessions. Every script that changes these ends with it.
local function settle(tenant)
  local key, ready, running = p .. 't:' .. tenant, count_ready(tenant), redis.call('ZCARD', p .. 'run:' .. tenant)
  if ready + running == 0 then
    redis.call('ZREM', p .. 'act', tenant)
    redis.call('ZREM', p .. 'busy', tenant)
    redis.call('PEXPIRE', key, TENANT_IDLE_MS)
    return
  end
  if redis.call('ZADD', p .. 'busy', 'NX', now, tenant) == 1 then redis.call('PERSIST', key) end
  if ready == 0 or running >= (share(tenant)) then
    redis.call('ZREM', p .. 'act', tenant)
  elseif not redis.call('ZSCORE', p .. 'act', tenant) then
    local served = tonumber(redis.call('GET', p .. 'gvt') or 0)
    local least = redis.call('ZRANGE', p .. 'act', 0, 0, 'WITHSCORES')[2]
    local vt = enter(tonumber(redis.call('HGET', key, 'vt') or 0), served, least and tonumber(least))
    redis.call('HSET', key, 'vt', vt)
    redis.call('ZADD', p .. 'act', vt, tenant)
  end
end

-- Puts a session into its class. The caller settles the tenant.
local function make_ready(tenant, class, session, score)
  local key = p .. 't:' .. tenant
  class = tonumber(class)
  if redis.call('ZCARD', ready_key(tenant, class)) == 0 then
    local clocks, served = class_clocks(tenant)
    local least
    for other = 0, CLASS_LAST do
      if redis.call('ZCARD', ready_key(tenant, other)) > 0 then
        least = math.min(least or clocks[other], clocks[other])
      end
    end
    if not least then redis.call('HSET', key, 'since', now) end
    redis.call('HSET', key, 'c' .. class, enter(clocks[class], served, least))
  end
  redis.call('ZADD', ready_key(tenant, class), 'NX', score, session)
end

-- Takes a session out of the other classes, or out of all. Returns its score there.
local function take_out(tenant, session, but)
  local score
  for class = 0, CLASS_LAST do
    if class ~= but then
      score = redis.call('ZSCORE', ready_key(tenant, class), session) or score
      redis.call('ZREM', ready_key(tenant, class), session)
    end
  end
  return score
end

-- Frees a held session. Returns its class, and whether an input arrived meanwhile. The caller settles the tenant.
local function free(tenant, session)
  local key = lease_key(tenant, session)
  local lease = redis.call('HMGET', key, 'own', 'class', 'dirty')
  if not lease[1] then return nil end
  redis.call('DEL', key)
  redis.call('ZREM', p .. 'run:' .. tenant, session)
  redis.call('SREM', p .. 'own:' .. lease[1], id_of(tenant, session))
  return lease[2], lease[3]
end

-- Gives a session to a worker; its slot time is charged until `paid`.
local function hold(tenant, session, class, worker, paid)
  redis.call('HSET', lease_key(tenant, session), 'own', worker, 'class', class, 'paid', paid)
  redis.call('ZADD', p .. 'run:' .. tenant, now, session)
  redis.call('SADD', p .. 'own:' .. worker, id_of(tenant, session))
  redis.call('SADD', p .. 'ws', worker)
end
