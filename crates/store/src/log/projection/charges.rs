//! The sums that a charge adds to those of its session.

use crate::{column::signed, log::change::Sums, pool::Statement};
use domain::ids::Timestamp;

/// A charge of a session whose sums are known.
#[derive(Debug)]
pub(crate) struct KnownCharge {
    pub(crate) sums: Sums,
    /// Position of the newest event before the charge.
    pub(crate) event_seq: u64,
    /// When the charged session was changed.
    pub(crate) updated_at: Timestamp,
}

/// The columns of sums that a charge adds, in the order of [`bind_sums`].
pub(crate) const SPENT: &str = "input, output, reasoning, cache_read, cache_write, cost";
/// The assignments that add the columns [`SPENT`] of `spent` to the session `s`.
pub(crate) const ADD_SPENT: &str =
    "input_tokens = s.input_tokens + spent.input, output_tokens = s.output_tokens + spent.output,
     reasoning_tokens = s.reasoning_tokens + spent.reasoning, cache_read_tokens = s.cache_read_tokens + spent.cache_read,
     cache_write_tokens = s.cache_write_tokens + spent.cache_write, cost_usd_picos = s.cost_usd_picos + spent.cost";

/// Binds the six sums of a charge.
pub(crate) fn bind_sums(statement: Statement<'_>, Sums { tokens, cost }: Sums) -> Statement<'_> {
    statement
        .bind(signed(tokens.input))
        .bind(signed(tokens.output))
        .bind(signed(tokens.reasoning))
        .bind(signed(tokens.cache_read))
        .bind(signed(tokens.cache_write))
        .bind(cost.0)
}
