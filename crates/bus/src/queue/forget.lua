-- ARGV: tenant. Removes everything of a deleted tenant.
local tenant = ARGV[1]
for _, session in ipairs(redis.call('ZRANGE', p .. 'run:' .. tenant, 0, -1)) do free(tenant, session) end
for class = 0, CLASS_LAST do redis.call('DEL', ready_key(tenant, class)) end
settle(tenant)
redis.call('DEL', p .. 't:' .. tenant)
return 'OK'
