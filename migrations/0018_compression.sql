-- What sessions are made of is written once and read often: lz4 takes less time than Postgres's own method for both. What is
-- there already stays as it is. A Postgres before 14, or one that was built without lz4, goes on as before.
-- Only the catalogue changes; whoever reads a table for longer than this makes the migration fail, and it can be tried again.
set local lock_timeout = '5s';
do $$
declare target text[];
begin
  if current_setting('server_version_num')::int < 140000 then
    return;
  end if;
  foreach target slice 1 in array array[['message', 'info'], ['part', 'data'], ['part_chunk', 'text'],
                                        ['session_event', 'properties']] loop
    execute format('alter table %I alter column %I set compression lz4', target[1], target[2]);
  end loop;
exception when feature_not_supported then
  raise notice 'this Postgres has no lz4: long texts take longer to read and to write';
end $$;
