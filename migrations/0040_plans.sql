-- Before a table is analyzed for the first time, all indexes that begin with tenant_id look equally good to the planner, also for a look-up by id. It
-- took these, which led every look-up through all rows of the tenant. A partial index serves only statements that repeat its condition.
drop index session_updated;
create index session_updated on session (tenant_id, updated_at desc, id) where updated_at > '-infinity';
drop index session_event_feed;
create index session_event_feed on session_event (tenant_id, xid, session_id, seq) where xid is not null;
drop index session_tombstone_feed;
create index session_tombstone_feed on session_tombstone (tenant_id, xid) where xid is not null;
drop index ledger_root;
create index ledger_root on ledger (tenant_id, root_id) include (cost_usd_picos) where root_id is not null;
drop index request_session;
create index request_session on request (tenant_id, session_id, id) where session_id is not null;
drop index project_place_project;
create index project_place_project on project_place (tenant_id, project_id) where project_id is not null;
