-- Queues the sessions of dead workers before all new ones. Returns their number.
local count = 0

-- Sorted, because a set has no order and the order of entry decides between tenants.
local function sorted_members(key)
  local members = redis.call('SMEMBERS', key)
  table.sort(members)
  return members
end

for _, worker in ipairs(sorted_members(p .. 'ws')) do
  if not alive(worker) then
    for _, id in ipairs(sorted_members(p .. 'own:' .. worker)) do
      local tenant, session = parse_id(id)
      local class = free(tenant, session)
      if class then
        make_ready(tenant, class, session, now - FRONT)
        settle(tenant)
        count = count + 1
      end
    end
    redis.call('DEL', p .. 'own:' .. worker)
    redis.call('SREM', p .. 'ws', worker)
  end
end
return count
