-- The models that a worker can ask, as it tells them: what clients are shown.
alter table worker add column models jsonb not null default '[]';
