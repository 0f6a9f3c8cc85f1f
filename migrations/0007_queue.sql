-- The sweeps read the first few of each tenant and class, however many stand behind them. Class and time of a queued
-- session change only with its phase, so a loop's writes stay on their page.
drop index session_run_live;
create index session_run_live on session_run (phase, tenant_id, class, queued_at nulls first) where phase <> 0;

-- Whether a lease runs, by this database's clock. One that ends long after any that is given now was given before the clock was
-- set back; its worker, if it lives, renews it within seconds.
create function lease_runs(ends timestamptz) returns boolean
  language sql stable
  as $$ select ends > now() and ends < now() + interval '12 seconds' $$;
create or replace function worker_alive(incarnation uuid) returns boolean
  language sql stable security definer set search_path = pg_catalog, public
  as $$ select exists (
          select 1 from public.worker w where w.incarnation = worker_alive.incarnation and lease_runs(w.lease_until)) $$;
