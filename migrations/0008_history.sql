-- What sessions changed in their files, and how they are taken back.

-- `summary`: additions, deletions, files. `revert`: OpenCode's object of that name, until the next prompt.
alter table session
  add column summary json,
  add column revert json;

-- While a revert writes files, nothing of the tree may begin: `held_until` refuses inputs. `revert_state` is 0 without a
-- revert, 1 when files may be half reverted, 2 when the next prompt removes what was taken back. Both are here because whoever accepts
-- an input has this row locked.
alter table session_run
  add column held_until timestamptz,
  add column revert_state smallint not null default 0;
