-- A long conversation is read as a whole, and most of it is here: lz4 takes a fraction of the time of Postgres's own method to read.
-- That one makes texts smaller, and stays for what is written and seldom read. What is there already stays as it is. A Postgres
-- before 14, or one that was built without lz4, goes on as before.
-- Only the catalogue changes; whoever reads the table for longer than this makes the migration fail, and it can be tried again.
set local lock_timeout = '5s';
do $$
begin
  if current_setting('server_version_num')::int >= 140000 then
    -- As a text: an older Postgres does not know the words.
    execute 'alter table part alter column data set compression lz4';
  end if;
exception when feature_not_supported then
  raise notice 'this Postgres has no lz4: long conversations take longer to read';
end $$;
