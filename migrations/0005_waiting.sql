-- Since when a session is in phase 3 or 4. Written with the phase; in other phases it means nothing. Not indexed, so that
-- it costs no index entry: operators look at few such rows.
alter table session_run add column waiting_at timestamptz;
update session_run set waiting_at = now() where phase in (3, 4);
