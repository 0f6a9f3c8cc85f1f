//! Whether the tree of sessions may spend more. The limit belongs to the root; the ledger records the cost.

use super::session::Session;
use crate::{process::store_timeout::with_store_timeout, record::WriteError};
use store::session::mailbox::{Kind, MailboxInput};

/// The loop's knowledge of its tree's budget.
pub(super) struct Budget {
    /// Whether the tree has a limit, or had one.
    is_limited: bool,
    is_used_up: bool,
}

impl Budget {
    pub(super) fn new(is_limited: bool) -> Self {
        Self { is_limited, is_used_up: false }
    }

    /// Whether the budget was used up at the last look.
    pub(super) fn is_used_up(&self) -> bool {
        self.is_used_up
    }

    /// Reads the cost of the tree, if it has a limit.
    pub(super) async fn look(&mut self, session: &mut Session) -> Result<(), WriteError> {
        self.is_limited = is_limited(self.is_limited, &session.inputs);
        if self.is_limited {
            // The cost of the newest step counts.
            session.record.flush().await?;
            let budget = session.deps.store.get_budget(session.record.tenant(), &session.profile.root);
            let budget = with_store_timeout(budget).await.map_err(WriteError::Store)?;
            self.is_used_up = budget.is_used_up();
        }
        Ok(())
    }
}

/// Whether a limit may exist. A limit that is set later arrives through the mailbox.
fn is_limited(before: bool, inputs: &[MailboxInput]) -> bool {
    before || inputs.iter().any(|input| input.kind == Kind::Budget)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_limit_that_is_set_later_is_noticed_and_stays() {
        let input = |kind| MailboxInput {
            seq: 1,
            kind,
            dedupe: "d".to_owned(),
            message_id: None,
            body: None,
            traceparent: None,
        };
        for (before, inputs, want) in [
            (false, vec![], false),
            (false, vec![input(Kind::Abort)], false),
            (false, vec![input(Kind::Budget)], true),
            (true, vec![], true),
        ] {
            assert_eq!(is_limited(before, &inputs), want, "{before} {inputs:?}");
        }
    }
}
