-- ARGV: worker, ttl in ms. Charges tenants and classes for the slot time since the last charge.
local worker, ttl = ARGV[1], tonumber(ARGV[2])
redis.call('SET', p .. 'w:' .. worker, now, 'PX', ttl)
redis.call('SADD', p .. 'ws', worker)
local used = {}
for _, id in ipairs(redis.call('SMEMBERS', p .. 'own:' .. worker)) do
  local lease = redis.call('HMGET', p .. 'l:' .. id, 'class', 'paid')
  local unpaid = now - tonumber(lease[2] or now)
  -- A jump of the server's clock costs a tenant at most one lease, and credits none.
  if unpaid > 0 or unpaid < -QUANTUM_MS then
    local tenant, class = parse_id(id), tonumber(lease[1])
    used[tenant] = used[tenant] or {}
    used[tenant][class] = (used[tenant][class] or 0) + math.max(0, math.min(unpaid, ttl))
    redis.call('HSET', p .. 'l:' .. id, 'paid', now)
  end
end
for tenant, by_class in pairs(used) do charge(tenant, by_class) end
return redis.call('EXISTS', p .. 'gen') == 1 and 'OK' or 'NOGEN'
