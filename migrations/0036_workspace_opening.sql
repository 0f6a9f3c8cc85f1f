-- Which opening of its source the files of a root session are. The sandbox keeps the same number with the files, so that an older copy that appears
-- again (a machine restored from a backup, a directory copied back) is not taken for the current files. Files of older versions have no number
-- there and count as opening 0, as all sessions do here.
-- Only the catalogue changes. A long transaction makes the migration fail instead of stopping all others; it can be tried again.
set local lock_timeout = '5s';

alter table session add column workspace_opening integer not null default 0;

comment on column session.workspace_opening is
  'root sessions: how often a person or the settings let the files start from their source again, after the sandbox machine had lost them';
