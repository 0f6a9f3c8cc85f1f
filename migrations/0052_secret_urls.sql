-- The beginnings of the URLs of the servers that may get the value of a secret; empty: whichever the settings name.
set local lock_timeout = '5s';
alter table secret add column urls text[] not null default '{}';
grant select (urls) on secret to flotilla_app;
