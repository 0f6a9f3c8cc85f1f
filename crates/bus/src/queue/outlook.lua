-- ARGV: tenant. Returns its share, its sessions and its pace as JSON. Changes nothing.
local tenant, ready = ARGV[1], {}
for class = 0, CLASS_LAST do ready[class + 1] = redis.call('ZCARD', ready_key(tenant, class)) end
local cap, weight = share(tenant)
-- If the last claim is longer ago than the smoothed interval, the time since then is the interval.
local pace = redis.call('HMGET', p .. 't:' .. tenant, 'interval', 'since')
local interval = pace[1] and math.max(tonumber(pace[1]), now - tonumber(pace[2] or now))
return cjson.encode({
  running = redis.call('ZCARD', p .. 'run:' .. tenant),
  running_max = cap,
  weight = weight,
  ready = ready,
  interval_ms = interval and math.floor(interval) or nil,
})
