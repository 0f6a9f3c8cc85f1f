-- ARGV: session, tenant, class, cap and weight ('': as before), "rebuild" or "". Idempotent. The newest class counts.
local session, tenant, class = ARGV[1], ARGV[2], ARGV[3]
if ARGV[6] ~= 'rebuild' and redis.call('EXISTS', p .. 'gen') == 0 then return 'NOGEN' end
set_share(tenant, ARGV[4], ARGV[5])
local key = lease_key(tenant, session)
local owner = redis.call('HGET', key, 'own')
if owner and alive(owner) then
  -- The holder may be about to release it: the release queues the session again.
  redis.call('HSET', key, 'dirty', 1, 'class', class)
  settle(tenant)
  return 'HELD'
end
if owner then free(tenant, session) end
make_ready(tenant, class, session, now)
local score = take_out(tenant, session, tonumber(class))
-- A session that changes its class keeps its time of arrival.
if score then redis.call('ZADD', ready_key(tenant, class), score, session) end
settle(tenant)
return 'QUEUED'
