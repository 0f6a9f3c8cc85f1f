-- The log of a session has every part a second time, so its large events cost as much to compress as the parts. With lz4 they cost a fraction of that.
-- As 0018: what is there already stays as it is, and a Postgres before 14, or one that was built without lz4, goes on as before.
-- Only the catalogue changes. A transaction that uses the table for more than five seconds makes the migration fail; run it again.
set local lock_timeout = '5s';
do $$
begin
  if current_setting('server_version_num')::int >= 140000 then
    -- As a text: an older Postgres does not know the words.
    execute 'alter table session_event alter column properties set compression lz4';
  end if;
exception when feature_not_supported then
  raise notice 'this Postgres has no lz4: large events take longer to write';
end $$;
