-- Sizes by which pages and conversations are bounded before anybody reads them. Only the catalogue changes; if a reader holds a table for
-- longer than this, the migration fails and can be tried again.
set local lock_timeout = '5s';

-- Bytes of `data`. Null in rows of older versions; a row that an older version changes keeps its old size.
alter table part add column size_bytes integer;

-- Bytes of the prompts and notes that the session accepted since its newest summary.
alter table session_run add column prompt_bytes bigint not null default 0;
