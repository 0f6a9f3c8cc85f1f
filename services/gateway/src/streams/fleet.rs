//! Notifies clients when an upgrade of the workers is complete. The first worker of a newer version triggers no notice:
//! OpenCode's clients would ask their users to install an update. A gateway that starts after an upgrade sends nothing, because
//! its clients connected after the upgrade too.

use super::{feed::Feeds, notices::notice};
use crate::state::State;
use serde_json::json;
use std::{collections::BTreeSet, time::Duration};

/// Poll interval.
const POLL: Duration = Duration::from_secs(2);

/// Notifies all subscribers of this gateway of upgrades, until it is dropped.
pub(crate) async fn watch(state: State, feeds: Feeds) {
    let mut fleet = Fleet::default();
    loop {
        match state.store.list_versions().await {
            Ok(versions) => {
                let upgrade = fleet.observe(versions);
                let notice = upgrade
                    .and_then(|version| notice(&state, "installation.updated", &json!({"version": version})));
                if let Some(notice) = notice {
                    feeds.notify_all(&notice);
                }
            }
            Err(error) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "cannot read the versions of the workers"
                );
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

/// The versions that were observed.
#[derive(Debug, Default)]
struct Fleet {
    /// The last version that all workers had.
    settled: Option<String>,
    before: BTreeSet<String>,
}

impl Fleet {
    /// Takes an observation, and returns the version of an upgrade that it completes. Two equal observations are required: a
    /// worker whose lease is late may still exist.
    fn observe(&mut self, now: BTreeSet<String>) -> Option<String> {
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
    fn an_upgrade_is_complete_when_one_version_remains() {
        for (observations, want) in [
            (&["1", "1", "1"][..], &[][..]),
            (&["1", "1", "1 2", "2", "2", "2"], &["2"]),
            (&["1", "1", "2", "2"], &["2"]),
            // A rollback.
            (&["1", "1", "1 2", "1", "1"], &[]),
            // A late lease; a while without any worker.
            (&["1", "1", "1 2", "2", "1 2", "2", "2"], &["2"]),
            (&["1", "1", "", "1", "1"], &[]),
            // The gateway started in the middle of an upgrade.
            (&["1 2", "2", "2"], &[]),
        ] {
            let mut fleet = Fleet::default();
            let versions =
                observations.iter().map(|text| text.split_whitespace().map(ToOwned::to_owned).collect());
            let upgrades: Vec<String> = versions.filter_map(|versions| fleet.observe(versions)).collect();
            assert_eq!(upgrades, want, "{observations:?}");
        }
    }
}
