-- ARGV: session, worker, "front" or "". Only the holder can release a session.
local session = ARGV[1]
if redis.call('HGET', p .. 'l:' .. session, 'own') ~= ARGV[2] then return 'STRANGER' end
local tenant, class, dirty = free(session)
if dirty or ARGV[3] == 'front' then
  make_ready(tenant, class, session, ARGV[3] == 'front' and now - FRONT or now)
end
settle(tenant)
return dirty and 'REQUEUED' or 'RELEASED'
