-- ARGV: worker, how many. Gives session, tenant, session, tenant, …
local worker, claimed = ARGV[1], {}
if redis.call('EXISTS', p .. 'gen') == 0 then return { 'NOGEN' } end
while #claimed < 2 * tonumber(ARGV[2]) do
  local top = redis.call('ZRANGE', p .. 'act', 0, 0, 'WITHSCORES')
  if not top[1] then break end
  local tenant, vt = top[1], tonumber(top[2])
  local session = redis.call('ZPOPMIN', p .. 'r:' .. tenant)[1]
  redis.call('ZREM', p .. 'act', tenant)
  if session then
    hold(session, tenant, worker)
    redis.call('SET', p .. 'gvt', vt)
    redis.call('HSET', p .. 'vt', tenant, vt + QUANTUM)
    claimed[#claimed + 1] = session
    claimed[#claimed + 1] = tenant
  end
  activate(tenant)
end
return claimed
