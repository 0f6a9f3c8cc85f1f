//! What versions of workers run. When an upgrade of the fleet is over, clients are told which version works for them now. That
//! a newer one begins to run is not told: OpenCode's clients would ask their users to install something. A gateway that starts
//! when the upgrade is over already has nothing to tell: its clients came to it meanwhile.

use crate::state::State;
use serde_json::json;
use std::{collections::BTreeSet, time::Duration};

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(2);

/// Tells all subscribers of this gateway of upgrades, until it is dropped.
pub(crate) async fn watch(state: State) {
    let mut fleet = Fleet::default();
    loop {
        match state.store.list_versions().await {
            Ok(versions) => {
                let upgraded = fleet.look(versions);
                let notice = upgraded
                    .and_then(|version| state.notice("installation.updated", &json!({"version": version})));
                if let Some(notice) = notice {
                    state.feeds.tell_all(&notice);
                }
            }
            Err(error) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "no look at the versions of workers"
                );
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What was seen of the versions.
#[derive(Debug, Default)]
struct Fleet {
    /// The version that all workers had when they last had one.
    settled: Option<String>,
    /// What the look before saw.
    before: BTreeSet<String>,
}

impl Fleet {
    /// Takes what a look sees, and gives the version that all workers have by now, if it is another than before. One look is not
    /// enough: a worker whose lease is late is not gone.
    fn look(&mut self, now: BTreeSet<String>) -> Option<String> {
        let is_settled = now.len() == 1 && now == self.before;
        let version = now.first().filter(|_| is_settled).cloned();
        self.before = now;
        let version = version?;
        let before = self.settled.replace(version.clone());
        (before? != version).then_some(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_is_over_when_one_version_is_left() {
        for (looks, want) in [
            (&["1", "1", "1"][..], &[][..]),
            (&["1", "1", "1 2", "2", "2", "2"], &["2"]),
            (&["1", "1", "2", "2"], &["2"]),
            // Taken back: nothing changed.
            (&["1", "1", "1 2", "1", "1"], &[]),
            // A late lease, and no worker at all for a while.
            (&["1", "1", "1 2", "2", "1 2", "2", "2"], &["2"]),
            (&["1", "1", "", "1", "1"], &[]),
            // Begun in the middle of it.
            (&["1 2", "2", "2"], &[]),
        ] {
            let mut fleet = Fleet::default();
            let looked = looks.iter().map(|look| look.split_whitespace().map(ToOwned::to_owned).collect());
            let told: Vec<String> = looked.filter_map(|versions| fleet.look(versions)).collect();
            assert_eq!(told, want, "{looks:?}");
        }
    }
}
