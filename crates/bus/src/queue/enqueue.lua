-- ARGV: session, tenant, cap (0: as before), "rebuild" or "". Idempotent.
local session, tenant = ARGV[1], ARGV[2]
if ARGV[4] ~= 'rebuild' and redis.call('EXISTS', p .. 'gen') == 0 then return 'NOGEN' end
if tonumber(ARGV[3]) > 0 then redis.call('HSET', p .. 'cap', tenant, ARGV[3]) end
local owner = redis.call('HGET', p .. 'l:' .. session, 'own')
if owner and alive(owner) then
  -- The holder may be about to let go: its release queues the session again.
  redis.call('HSET', p .. 'l:' .. session, 'dirty', 1)
  return 'HELD'
end
if owner then free(session) end
redis.call('ZADD', p .. 'r:' .. tenant, 'NX', now, session)
activate(tenant)
return 'QUEUED'
