-- ARGV: session, tenant, worker. Used while an emptied Redis is filled again from Postgres.
if redis.call('EXISTS', p .. 'l:' .. ARGV[1]) == 0 then
  hold(ARGV[1], ARGV[2], ARGV[3])
  activate(ARGV[2])
end
return 'OK'
