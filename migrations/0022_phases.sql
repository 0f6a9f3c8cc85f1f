-- The numbers in three columns of the control row, as constraints and comments. The planner uses the partial indexes on `phase` only when it sees
-- the number in the text of a statement, so the column stays a number; `crates/store/src/phase.rs` names the numbers for statements.
-- `not valid` checks new and changed rows only, so this migration reads no rows. Earlier versions write no other numbers.
alter table session_run
  add constraint session_run_phase check (phase between 0 and 4) not valid,
  add constraint session_run_class check (class between 0 and 2) not valid,
  add constraint session_run_revert_state check (revert_state between 0 and 2) not valid;

comment on column session_run.phase is
  '0 idle, 1 runnable, 2 running, 3 waiting, 4 quarantined; domain::session::Phase';
comment on column session_run.class is
  '0 interactive, 1 pull request, 2 batch; domain::session::Class';
comment on column session_run.revert_state is
  '0 nothing is reverted, 1 a revert is unfinished, 2 the next prompt removes the reverted messages; the store''s RevertState';
