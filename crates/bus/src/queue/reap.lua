-- Queues what dead workers held, before everything new. Gives how many sessions.
local count = 0
for _, worker in ipairs(redis.call('SMEMBERS', p .. 'ws')) do
  if not alive(worker) then
    for _, session in ipairs(redis.call('SMEMBERS', p .. 'own:' .. worker)) do
      local tenant = free(session)
      if tenant then
        redis.call('ZADD', p .. 'r:' .. tenant, 'NX', now - FRONT, session)
        activate(tenant)
        count = count + 1
      end
    end
    redis.call('DEL', p .. 'own:' .. worker)
    redis.call('SREM', p .. 'ws', worker)
  end
end
return count
