-- The sessions of a project, last changed first. Until now a list of them, and the deletion of a project, read all sessions of the tenant.
-- Nothing writes to sessions while the index is built: some seconds for a million of them. A long transaction makes the migration fail instead of
-- stopping all others; it can be tried again.
set local lock_timeout = '5s';

-- Partial, as those of migration 40: no look-up by id repeats the condition, so none takes the index.
create index session_project on session (tenant_id, project_id, updated_at desc, id) where project_id is not null;

-- A look-up of a bundle by id repeats `complete`, so it could take these indexes, which lead through the bundles of all tenants.
drop index bundle_used;
create index bundle_used on bundle (used_at) where complete and used_at > '-infinity';
drop index bundle_unfinished;
create index bundle_unfinished on bundle (created_at) where not complete and created_at > '-infinity';
