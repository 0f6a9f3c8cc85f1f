//! Rows that every other room of sessions reads: the two rows of a session, `session_row` with what people see and `control_row` with the state of its
//! work, and the `ledger`, the rows of what its model calls cost. What changes them is in `log` and in `session`.

pub(crate) mod control_row;
pub mod ledger;
pub mod session_row;
