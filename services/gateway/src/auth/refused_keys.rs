//! The unknown keys that were refused, for the audit. Attackers make any number of them, so they are counted and written together.

use chassis::lock;
use std::{collections::BTreeMap, mem, sync::Mutex, time::Duration};
use store::Store;

/// Time between two writes: an attacker makes at most a third of a line a second. What a gateway that is killed has counted since the last one is lost.
const WRITE: Duration = Duration::from_secs(60);
/// Characters of a key that are written: its public first part, which tells people which key it may have been.
const PREFIX_CHARS: usize = 8;
/// First parts that are told apart within [`WRITE`]; all further ones are counted together.
const PREFIXES_MAX: usize = 20;
/// Stands for all further ones.
const OTHERS: &str = "others";

/// The counts since the last write, by the first part of the key.
#[derive(Debug, Default)]
pub(crate) struct RefusedKeys(Mutex<BTreeMap<String, u32>>);

impl RefusedKeys {
    /// Counts a refused key.
    pub(super) fn note(&self, key: &str) {
        let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
        let prefix: String = key.chars().take(PREFIX_CHARS).filter(is_plain).collect();
        let mut counts = lock(&self.0);
        let is_known = counts.len() < PREFIXES_MAX || counts.contains_key(&prefix);
        let count = counts.entry(if is_known { prefix } else { OTHERS.to_owned() }).or_default();
        *count = count.saturating_add(1);
    }

    /// Writes them into the audit, again and again.
    pub(crate) async fn write_forever(&self, store: &Store) {
        loop {
            tokio::time::sleep(WRITE).await;
            let counts: Vec<_> = mem::take(&mut *lock(&self.0)).into_iter().collect();
            if counts.is_empty() {
                continue;
            }
            if let Err(error) = store.note_refused_keys(&counts).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "cannot write refused keys into the audit");
            }
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
            refused.note(&format!("{number:08}secret"));
        }
        refused.note("00000000\n");
        let counts = lock(&refused.0);
        assert_eq!(counts.len(), PREFIXES_MAX + 1);
        assert_eq!((counts["00000000"], counts[OTHERS]), (2, 80));
        assert!(counts.keys().all(|prefix| !prefix.contains("secret")), "{counts:?}");
    }
}
