//! The worktrees of the fake gateway: one of each project.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::Fake;
use rpc::v1::Worktree;

impl Fake {
    /// Notes what was ordered, and gives the worktree.
    pub(super) fn worktree(&self, order: String) -> Worktree {
        self.0.lock().unwrap().orders.push(order);
        let [directory, name, branch] = ["shop.worktrees/fix", "fix", "opencode/fix"].map(ToOwned::to_owned);
        Worktree { directory, name, branch }
    }
}
