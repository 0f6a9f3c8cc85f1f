-- When a bundle was last needed: bundles that no session and no project starts from are removed after a while, and so are uploads that never ended.
-- A gateway of an older version does not write the column; nothing is removed before a bundle is older than a week.
-- Building the indexes stops writes of these small tables for a moment. A long transaction makes the migration fail instead of stopping all
-- others; it can be tried again.
set local lock_timeout = '5s';

alter table bundle add column used_at timestamptz not null default now();
create index bundle_used on bundle (used_at) where complete;
create index bundle_unfinished on bundle (created_at) where not complete;
create index session_bundle on session (tenant_id, (source ->> 'id')) where source ->> 'from' = 'bundle';
create index project_bundle on project (tenant_id, (source ->> 'id')) where source ->> 'from' = 'bundle';
