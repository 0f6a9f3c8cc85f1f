-- Queues what dead workers held, before everything new. Gives how many sessions.
local count = 0

-- A set has no order of its own, and the order in which tenants enter decides who is before whom.
local function sorted_members(key)
  local members = redis.call('SMEMBERS', key)
  table.sort(members)
  return members
end

for _, worker in ipairs(sorted_members(p .. 'ws')) do
  if not alive(worker) then
    for _, session in ipairs(sorted_members(p .. 'own:' .. worker)) do
      local tenant, class = free(session)
      if tenant then
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
