-- Whether the files of a root session were opened on a sandbox machine. Workspaces stand on one machine only: a loop that finds none there must
-- know whether there never was one, or whether the machine lost it. An older worker neither reads nor writes the column: the next turn on a new
-- worker sets it.
-- Only the catalogue changes. A long transaction makes the migration fail instead of stopping all others; it can be tried again.
set local lock_timeout = '5s';

alter table session add column has_workspace boolean not null default false;

comment on column session.has_workspace is
  'root sessions: the files were opened; if a sandbox machine has none then, they are lost, and only a person starts again from the source';
