-- ARGV: most tenants. Gives the whole, then each tenant that has work, the longest busy first, as JSON. Changes nothing.

-- How long the oldest ready session has waited; nil without one.
local function oldest(tenant)
  local since
  for class = 0, CLASS_LAST do
    local key = ready_key(tenant, class)
    local interrupted = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
    local new = redis.call('ZRANGEBYSCORE', key, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    if interrupted and tonumber(interrupted) < 0 then
      since = math.min(since or now, tonumber(interrupted) + FRONT)
    end
    if new then since = math.min(since or now, tonumber(new)) end
  end
  return since and now - since
end

local held = 0
local workers = redis.call('SMEMBERS', p .. 'ws')
for _, worker in ipairs(workers) do held = held + redis.call('SCARD', p .. 'own:' .. worker) end
local answer = {
  cjson.encode({ workers = #workers, held = held, tenants_busy = redis.call('ZCARD', p .. 'busy') }),
}
for _, tenant in ipairs(redis.call('ZRANGE', p .. 'busy', 0, ARGV[1] - 1)) do
  local ready = {}
  for class = 0, CLASS_LAST do ready[class + 1] = redis.call('ZCARD', ready_key(tenant, class)) end
  answer[#answer + 1] = cjson.encode({
    tenant = tenant,
    ready = ready,
    running = redis.call('ZCARD', p .. 'run:' .. tenant),
    virtual_ms = math.floor(tonumber(redis.call('HGET', p .. 't:' .. tenant, 'vt') or 0)),
    oldest_ms = oldest(tenant),
  })
end
return answer
