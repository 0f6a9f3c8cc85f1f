-- The key of the deployment may be replaced by another one. Until all secrets are sealed with it, every broker needs the older keys as well, so
-- their identities are kept. Each change is counted, also one that is taken back: so a pass over all secrets notices that another key has sealed
-- meanwhile.
set local lock_timeout = '5s';
alter table secret_key add column older_key_ids text[] not null default '{}';
alter table secret_key add column changes bigint not null default 0;
grant update (key_id, older_key_ids, changes) on secret_key to flotilla_broker;

-- A known text under each key that secrets may need. The identity of a key in a key service is only its name, so another key can have the same one; it
-- does not open this text.
create table key_canary (
  key_id text not null,
  sealed_key bytea not null,
  constraint key_canary_pk primary key (key_id)
);
grant select, insert, delete on key_canary to flotilla_broker;

-- The broker finds the tenants that have secrets. It still sees the secrets of one tenant at a time.
create policy every_tenant on secret_counter for select to flotilla_broker using (true);
