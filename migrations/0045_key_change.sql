-- The key of the deployment may be replaced by another one. Until all secrets are sealed with it, every broker needs the older keys as well, so
-- their identities are kept.
set local lock_timeout = '5s';
alter table secret_key add column older_key_ids text[] not null default '{}';
grant update (key_id, older_key_ids) on secret_key to flotilla_broker;

-- The broker finds the tenants that have secrets. It still sees the secrets of one tenant at a time.
create policy every_tenant on secret_counter for select to flotilla_broker using (true);
