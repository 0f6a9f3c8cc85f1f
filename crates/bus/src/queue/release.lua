-- ARGV: session, tenant, worker, "front" or "". Only the holder can release a session.
local session, tenant = ARGV[1], ARGV[2]
if redis.call('HGET', lease_key(tenant, session), 'own') ~= ARGV[3] then return 'STRANGER' end
local class, dirty = free(tenant, session)
if dirty or ARGV[4] == 'front' then
  make_ready(tenant, class, session, ARGV[4] == 'front' and now - FRONT or now)
end
settle(tenant)
return dirty and 'REQUEUED' or 'RELEASED'
