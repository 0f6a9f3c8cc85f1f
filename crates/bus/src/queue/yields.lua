-- ARGV: session, tenant, worker, "full" or "". Says whether the session should give up its slot, and to another tenant or class. Changes
-- nothing.
local tenant = ARGV[2]
local lease = redis.call('HMGET', lease_key(tenant, ARGV[1]), 'own', 'class')
if lease[1] ~= ARGV[3] then return 'KEEP' end
local class = tonumber(lease[2])
local vt = tonumber(redis.call('HGET', p .. 't:' .. tenant, 'vt') or 0)
local full = ARGV[4] == 'full'

-- Every comparison charges the other side for its claim first, so two equals do not take the slot from each other.
if full then
  local first = redis.call('ZRANGE', p .. 'act', 0, 1, 'WITHSCORES')
  for at = 1, #first, 2 do
    if first[at] ~= tenant then
      local _, weight = share(first[at])
      if tonumber(first[at + 1]) + QUANTUM_MS / weight <= vt then return 'TENANT' end
      break
    end
  end
end
-- A tenant at its cap has no other slot for another class.
if full or redis.call('ZCARD', p .. 'run:' .. tenant) >= (share(tenant)) then
  local clocks = class_clocks(tenant)
  for other = 0, CLASS_LAST do
    if
      redis.call('ZCARD', ready_key(tenant, other)) > 0
      and clocks[other] + QUANTUM_MS / CLASS_WEIGHTS[other + 1] <= clocks[class]
    then
      return 'CLASS'
    end
  end
end
return 'KEEP'
