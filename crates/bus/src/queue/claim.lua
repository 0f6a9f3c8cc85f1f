-- ARGV: worker, count. Returns session, tenant, session, tenant, …
local worker, claimed = ARGV[1], {}
if redis.call('EXISTS', p .. 'gen') == 0 then return { 'NOGEN' } end

-- Returns the class with ready work and the least virtual time; among equal classes the most urgent.
local function first_class(tenant, clocks)
  local first
  for class = 0, CLASS_LAST do
    if redis.call('ZCARD', ready_key(tenant, class)) > 0 and (not first or clocks[class] < clocks[first]) then
      first = class
    end
  end
  return first
end

-- Smooths the time between two claims of a tenant that has work waiting.
local function note_interval(key)
  local known = redis.call('HMGET', key, 'since', 'interval')
  local interval = math.max(0, now - tonumber(known[1] or now))
  local old = tonumber(known[2] or interval)
  redis.call('HSET', key, 'since', now, 'interval', old + (interval - old) / SMOOTHING)
end

while #claimed < 2 * tonumber(ARGV[2]) do
  local top = redis.call('ZRANGE', p .. 'act', 0, 0, 'WITHSCORES')
  if not top[1] then break end
  local tenant, key = top[1], p .. 't:' .. top[1]
  local clocks, served = class_clocks(tenant)
  local class = first_class(tenant, clocks)
  if class then
    local session = redis.call('ZPOPMIN', ready_key(tenant, class))[1]
    hold(tenant, session, class, worker, now + QUANTUM_MS)
    redis.call('SET', p .. 'gvt', math.max(tonumber(redis.call('GET', p .. 'gvt') or 0), tonumber(top[2])))
    redis.call('HSET', key, 'cg', math.max(served, clocks[class]))
    note_interval(key)
    charge(tenant, { [class] = QUANTUM_MS })
    claimed[#claimed + 1] = session
    claimed[#claimed + 1] = tenant
  end
  settle(tenant)
end
return claimed
