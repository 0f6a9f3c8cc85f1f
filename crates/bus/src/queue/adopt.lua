-- ARGV: session, tenant, class, cap and weight ('': as before), worker. For a running session that Redis does not know: during
-- a refill from Postgres, and after a worker looked dead for a while.
local session, tenant, class = ARGV[1], ARGV[2], ARGV[3]
set_share(tenant, ARGV[4], ARGV[5])
local key = lease_key(tenant, session)
if redis.call('EXISTS', key) == 0 then
  hold(tenant, session, class, ARGV[6], now)
  -- It may have been queued for an input that its holder has not seen.
  if take_out(tenant, session) then redis.call('HSET', key, 'dirty', 1) end
end
settle(tenant)
return 'OK'
