-- The tools that a worker has, as it tells them: what clients are shown.
alter table worker add column tools jsonb not null default '[]';
