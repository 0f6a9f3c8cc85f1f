-- ARGV: tenant. Gives what it has and may have, as JSON. Changes nothing.
local tenant, ready = ARGV[1], {}
for class = 0, CLASS_LAST do ready[class + 1] = redis.call('ZCARD', ready_key(tenant, class)) end
local cap, weight = share(tenant)
local interval = redis.call('HGET', p .. 't:' .. tenant, 'interval')
return cjson.encode({
  running = redis.call('ZCARD', p .. 'run:' .. tenant),
  running_max = cap,
  weight = weight,
  ready = ready,
  interval_ms = interval and math.floor(tonumber(interval)) or nil,
})
