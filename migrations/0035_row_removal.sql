-- The rows of a deleted session go in batches: a long session has hundreds of thousands, which one statement cannot delete in time. So the rows
-- that grow with a session refer to it no longer. The deletion of the session orders their removal, and workers remove them.
-- Apart from the index of a small table, only the catalogue changes. A long transaction makes the migration fail instead of stopping all others;
-- it can be tried again.
set local lock_timeout = '5s';

-- The deleted sessions whose rows are still there. A row refers to nothing, because it outlives the session, its project and its tenant.
create table row_removal (
  tenant_id uuid not null,
  session_id text collate "C" not null,
  deleted_at timestamptz not null default now(),
  constraint row_removal_pk primary key (tenant_id, session_id)
);
alter table row_removal enable row level security;
alter table row_removal force row level security;
create policy tenant_only on row_removal to flotilla_app
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
-- For the trigger below. The owner of the tables is itself bound by forced row-level security.
create policy owner_orders on row_removal for insert to current_user with check (true);
grant select, insert, update, delete on row_removal to flotilla_app, flotilla_system;

-- A trigger, so that no deletion can forget the order: earlier versions delete sessions too, and so does the deletion of a tenant or a project.
-- With the rights of the owner, because a session is also deleted as the child of another one.
create function order_row_removal() returns trigger
  language plpgsql security definer set search_path = pg_catalog, public
  as $$
begin
  insert into public.row_removal (tenant_id, session_id) values (old.tenant_id, old.id) on conflict do nothing;
  return null;
end $$;
revoke execute on function order_row_removal() from public;
create trigger session_row_removal after delete on session for each row execute function order_row_removal();

-- Who writes these rows holds the control row of the session, so nobody writes any for a session that is deleted.
alter table session_input drop constraint session_input_session_fk;
alter table session_event drop constraint session_event_session_fk;
alter table message drop constraint message_session_fk;
alter table part_chunk drop constraint part_chunk_session_fk;
alter table tool_exec drop constraint tool_exec_session_fk;
alter table request drop constraint request_session_fk;

-- Answered requests had no index by their session.
create index request_session on request (tenant_id, session_id, id);
