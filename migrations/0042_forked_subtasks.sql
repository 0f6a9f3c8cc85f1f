-- Whose files a session uses. Until now these were always those of its root session; a subtask may have a copy of its own.
-- Only the catalogue changes. A long transaction makes the migration fail instead of stopping all others; it can be tried again.
set local lock_timeout = '5s';

-- No foreign key: the session is this one or one above it, with which a deletion removes this one as well.
alter table session add column workspace_id text collate "C";

comment on column session.workspace_id is
  'the session whose workspace this one uses, itself or one above it; null: its root session, or itself if it is one';
comment on column session.has_workspace is
  'sessions with a workspace of their own: whether its files were opened on a sandbox machine';
comment on column session.workspace_opening is
  'sessions with a workspace of their own: how often a person or the settings let the files start from their source again, after the sandbox machine had lost them';
