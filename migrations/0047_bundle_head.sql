-- The commit that an uploaded bundle begins with, so that a client need not send it again. Bundles of earlier versions have none.
-- A long transaction makes the migration fail instead of stopping all others; it can be tried again.
set local lock_timeout = '5s';
alter table bundle
  add column head_commit text collate "C",
  add column head_branch text collate "C",
  add column head_is_whole boolean;
create index bundle_head on bundle (tenant_id, head_commit) where complete and head_commit is not null;
