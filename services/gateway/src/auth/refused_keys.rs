//! The unknown keys that were refused, for the audit. Attackers make any number of them, so they are counted and written together.

use super::key::{KEY_PREFIX, PREFIX_CHARS};
use chassis::lock;
use std::{collections::BTreeMap, mem, sync::Mutex, time::Duration};
use store::Store;
use tokio_util::sync::CancellationToken;

/// Time between two writes: an attacker makes at most a third of a line a second. What a gateway that is killed has counted since the last one is lost.
const WRITE: Duration = Duration::from_secs(60);
/// First parts that are told apart within [`WRITE`]; all further ones are counted together.
const PREFIXES_MAX: usize = 20;
/// Stands for all further ones, and for what looks like no key of ours: it may be another secret that somebody sent by mistake.
const OTHERS: &str = "others";

/// The counts since the last write, by the public first part of the key, which tells people which key it may have been.
#[derive(Debug, Default)]
pub(crate) struct RefusedKeys(Mutex<BTreeMap<String, u32>>);

impl RefusedKeys {
    pub(super) fn note(&self, key: &str) {
        let prefix: String = key.chars().take(PREFIX_CHARS).collect();
        let is_ours = key.starts_with(KEY_PREFIX)
            && prefix.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        let mut counts = lock(&self.0);
        let is_told = is_ours && (counts.len() < PREFIXES_MAX || counts.contains_key(&prefix));
        let count = counts.entry(if is_told { prefix } else { OTHERS.to_owned() }).or_default();
        *count = count.saturating_add(1);
    }

    /// Writes them into the audit, again and again, and once more when the gateway stops.
    pub(crate) async fn write_until(&self, store: &Store, shutdown: &CancellationToken) {
        while !shutdown.is_cancelled() {
            shutdown.run_until_cancelled(tokio::time::sleep(WRITE)).await;
            self.write(store).await;
        }
    }

    async fn write(&self, store: &Store) {
        let counts: Vec<_> = mem::take(&mut *lock(&self.0)).into_iter().collect();
        if counts.is_empty() {
            return;
        }
        if let Err(error) = store.note_refused_keys(&counts).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "cannot write refused keys into the audit");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_keys_is_counted_under_a_few_names() {
        let refused = RefusedKeys::default();
        for number in 0..100 {
            refused.note(&format!("flk_{number:08}secret"));
        }
        refused.note("flk_00000000");
        for foreign in ["hunter2", "ghp_token", "flk_\n0000000", ""] {
            refused.note(foreign);
        }
        let counts = lock(&refused.0);
        assert_eq!(counts.len(), PREFIXES_MAX + 1);
        assert_eq!((counts["flk_00000000"], counts[OTHERS]), (2, 84));
        assert!(!counts.keys().any(|prefix| prefix.contains("secret")), "{counts:?}");
    }
}
