-- How people want a project to be shown, and when they said so.
alter table project add column shown jsonb not null default '{}', add column updated_at timestamptz;
