-- ARGV: worker, ttl in ms. Charges each tenant for the slot time since the last renewal.
local worker = ARGV[1]
local last = tonumber(redis.call('GET', p .. 'w:' .. worker) or now)
redis.call('SET', p .. 'w:' .. worker, now, 'PX', ARGV[2])
redis.call('SADD', p .. 'ws', worker)
local seconds = math.max(0, now - last) / 1000
for _, session in ipairs(redis.call('SMEMBERS', p .. 'own:' .. worker)) do
  local tenant = redis.call('HGET', p .. 'l:' .. session, 'tenant')
  if tenant then
    local vt = tonumber(redis.call('HINCRBYFLOAT', p .. 'vt', tenant, seconds))
    if redis.call('ZSCORE', p .. 'act', tenant) then redis.call('ZADD', p .. 'act', vt, tenant) end
  end
end
return redis.call('EXISTS', p .. 'gen') == 1 and 'OK' or 'NOGEN'
