-- Who changed what binds or costs a tenant: one line a change, written in the transaction of the change. Only a new table, and triggers on tables that
-- change rarely. A long transaction makes the migration fail instead of stopping all others; it can be tried again.
set local lock_timeout = '5s';

-- Programs compare the version of the schema with their own.
grant select on _sqlx_migrations to flotilla_app, flotilla_system, flotilla_broker;

create table audit (
  seq bigint generated always as identity,
  at timestamptz(3) not null default now(),
  -- null: a line of the deployment. No foreign key: the lines outlive their tenant.
  tenant_id uuid,
  -- The name of a key, 'operator', or 'postgres:' and the role of Postgres if no program of ours acted for somebody.
  actor text not null,
  -- The public first part of that key.
  actor_key text not null default '',
  -- The kind of object and what happened to it, as key.create.
  action text not null,
  object text not null,
  -- SHA-256 of the row as JSON; null: there was none.
  before_sha256 text,
  after_sha256 text,
  constraint audit_pk primary key (seq)
);
create index audit_tenant on audit (tenant_id, seq);
create index audit_at on audit (at);

alter table audit enable row level security;
alter table audit force row level security;
create policy tenant_only on audit for select to flotilla_app
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
-- Nobody changes a line, and a tenant's connection writes lines of that tenant. The owner of the tables writes when a row goes with the one that it belongs to.
create policy append on audit for insert
  with check (current_user not in ('flotilla_app', 'flotilla_broker')
    or tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
grant select, insert on audit to flotilla_app;
grant insert on audit to flotilla_broker;
grant select, insert on audit to flotilla_system;

-- Nothing of ours can delete a line, but this function, and only what is old. It acts as the owner of the tables.
create policy read_as_owner on audit for select
  using (current_user not in ('flotilla_app', 'flotilla_broker'));
create policy forget on audit for delete using (at < now() - interval '400 days');
create function forget_audit(most bigint) returns bigint language sql security definer set search_path = public, pg_temp as $$
  with gone as (
    delete from audit where seq in (select seq from audit where at < now() - interval '400 days' order by at limit most) returning 1)
  select count(*) from gone
$$;
revoke all on function forget_audit(bigint) from public;
grant execute on function forget_audit(bigint) to flotilla_system;

-- Arguments: the kind of object; the column with the tenant; the columns that name the object.
create function audit_change() returns trigger language plpgsql as $$
declare
  was jsonb := case when tg_op <> 'INSERT' then to_jsonb(old) end;
  is_now jsonb := case when tg_op <> 'DELETE' then to_jsonb(new) end;
  line jsonb := coalesce(is_now, was);
  operation text := case tg_op when 'INSERT' then 'create' when 'UPDATE' then 'update' else 'delete' end;
begin
  insert into audit (tenant_id, actor, actor_key, action, object, before_sha256, after_sha256)
  select (line ->> tg_argv[1])::uuid,
         coalesce(nullif(current_setting('flotilla.actor', true), ''), 'postgres:' || session_user),
         coalesce(current_setting('flotilla.actor_key', true), ''),
         tg_argv[0] || '.' || operation,
         (select coalesce(string_agg(nullif(line ->> name, ''), ' '), '') from unnest(string_to_array(tg_argv[2], ',')) name),
         encode(sha256(convert_to(was::text, 'utf8')), 'hex'),
         encode(sha256(convert_to(is_now::text, 'utf8')), 'hex');
  return null;
end $$;

create trigger audit_create after insert on api_key for each row
  execute function audit_change('key', 'tenant_id', 'prefix,role,name');
create trigger audit_update after update on api_key for each row
  when (old.* is distinct from new.*)
  execute function audit_change('key', 'tenant_id', 'prefix,role,name');
-- A revoked key is removed from the list later, which changes nothing.
create trigger audit_delete after delete on api_key for each row when (old.revoked_at is null)
  execute function audit_change('key', 'tenant_id', 'prefix,role,name');

create trigger audit_create_delete after insert or delete on settings for each row
  execute function audit_change('settings', 'tenant_id', 'project_id');
create trigger audit_update after update on settings for each row when (old.document is distinct from new.document)
  execute function audit_change('settings', 'tenant_id', 'project_id');

create trigger audit_create_delete after insert or delete on secret for each row
  execute function audit_change('secret', 'tenant_id', 'project_id,name');
create trigger audit_update after update on secret for each row when (old.version is distinct from new.version)
  execute function audit_change('secret', 'tenant_id', 'project_id,name');

create trigger audit_create_delete after insert or delete on project for each row
  execute function audit_change('project', 'tenant_id', 'id,name');
create trigger audit_update after update on project for each row when (to_jsonb(old) - 'updated_at' is distinct from to_jsonb(new) - 'updated_at')
  execute function audit_change('project', 'tenant_id', 'id,name');

create trigger audit_create_delete after insert or delete on tenant for each row
  execute function audit_change('tenant', 'id', 'name');
create trigger audit_update after update on tenant for each row when (old.* is distinct from new.*)
  execute function audit_change('tenant', 'id', 'name');
