-- How much a tenant may store, and how much it does. Only the catalogue changes. A long transaction makes the migration fail instead of
-- stopping all others; it can be tried again.
set local lock_timeout = '5s';

alter table tenant
  -- Quotas; null: as much as the platform says.
  add column sessions_max bigint,
  add column projects_max bigint,
  add column stored_bytes_max bigint;

alter table session_run
  -- Bytes of the log up to the event `measured_seq`, as Postgres stores them. Workers measure logs from time to time.
  add column stored_bytes bigint not null default 0,
  add column measured_seq bigint not null default 0;
