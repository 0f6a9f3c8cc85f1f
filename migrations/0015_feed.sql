-- Which transaction wrote an event: what a tenant's stream goes by. Positions are a session's own, and a transaction that began
-- earlier may commit later; what was written before the oldest transaction that still runs is complete.
alter table session_event add column xid xid8;
alter table session_event alter column xid set default pg_current_xact_id();
create index session_event_feed on session_event (tenant_id, xid, session_id, seq);
