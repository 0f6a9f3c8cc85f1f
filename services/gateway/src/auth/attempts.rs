//! Limits wrong keys. A sender of wrong keys has to wait for some seconds. A client whose key was right before never
//! waits, so other clients at its address cannot lock it out.

use super::key::PREFIX_CHARS;
use crate::errors::error::Error;
use chassis::port::admission::network;
use sha2::{Digest as _, Sha256};
use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Consecutive wrong keys that one address may send: many people may share it, each with a few typing errors.
const ADDRESS_BURST: u32 = 50;
/// Time after which an address may send another one.
const ADDRESS_PAUSE: Duration = Duration::from_secs(1);
/// Consecutive wrong keys with the same beginning, from any address. A client that repeats a revoked key reaches this limit
/// before it uses up the limit of its address.
const PREFIX_BURST: u32 = 10;
/// Time after which another such key may be sent.
const PREFIX_PAUSE: Duration = Duration::from_secs(6);
/// Remembered addresses and prefixes, some 100 bytes each. Beyond that, entries without a wait are dropped first, and then all:
/// this limit does not stop an attacker with that many addresses.
const FAILED_MAX: usize = 20_000;
/// Right keys in one generation, by their SHA-256. Two generations are kept. The oldest generation is forgotten.
const KNOWN_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Attempt {
    /// The hash of the whole key. Keys are compared by their hash, so the timing does not reveal how much of a guess was
    /// right.
    pub(crate) sha256: [u8; 32],
    prefix: String,
    network: Option<IpAddr>,
}

impl Attempt {
    pub(crate) fn new(key: &str, client: Option<IpAddr>) -> Self {
        let prefix = key.chars().take(PREFIX_CHARS).collect();
        Self { sha256: Sha256::digest(key).into(), prefix, network: client.map(network) }
    }

    fn bounds(&self) -> impl Iterator<Item = (Source, Bound)> {
        let address = self.network.map(|network| (Source::Network(network), ADDRESS));
        std::iter::once((Source::Prefix(self.prefix.clone()), PREFIX)).chain(address)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Source {
    Network(IpAddr),
    Prefix(String),
}

/// The number of attempts allowed at once, and the pause before each further one.
#[derive(Debug, Clone, Copy)]
struct Bound {
    burst: u32,
    pause: Duration,
}

const ADDRESS: Bound = Bound { burst: ADDRESS_BURST, pause: ADDRESS_PAUSE };
const PREFIX: Bound = Bound { burst: PREFIX_BURST, pause: PREFIX_PAUSE };

/// The recent attempts at this gateway.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    /// When all pauses of a source end. After that the source counts as unknown.
    failed: HashMap<Source, Instant>,
    /// Right keys, newest generation.
    known: HashSet<[u8; 32]>,
    /// Right keys, generation before.
    known_before: HashSet<[u8; 32]>,
}

impl Attempts {
    /// Checks whether a key may be looked up now.
    ///
    /// # Errors
    /// `too_many_attempts`, with the time to wait.
    pub(crate) fn check(&self, attempt: &Attempt, now: Instant) -> Result<(), Error> {
        let tables = self.lock();
        if tables.knows(attempt) {
            return Ok(());
        }
        let wait = attempt.bounds().filter_map(|(source, Bound { burst, pause })| {
            let over = tables.failed.get(&source)?.saturating_duration_since(now);
            over.checked_sub(pause * (burst - 1)).filter(|wait| !wait.is_zero())
        });
        let Some(wait) = wait.max() else { return Ok(()) };
        metrics::counter!("flotilla_keys_held_up_total").increment(1);
        Err(Error::TooManyAttempts { retry_after: wait })
    }

    /// Whether the key was right recently.
    pub(crate) fn knows(&self, attempt: &Attempt) -> bool {
        self.lock().knows(attempt)
    }

    /// Records that a key was wrong.
    pub(crate) fn failed(&self, attempt: &Attempt, now: Instant) {
        metrics::counter!("flotilla_keys_refused_total").increment(1);
        let mut tables = self.lock();
        // The key may have been right until it was revoked.
        tables.known.remove(&attempt.sha256);
        tables.known_before.remove(&attempt.sha256);
        for (source, Bound { burst, pause }) in attempt.bounds() {
            if tables.failed.len() >= FAILED_MAX {
                tables.failed.retain(|_, over| *over > now);
                if tables.failed.len() > FAILED_MAX / 2 {
                    tables.failed.clear();
                }
            }
            let over = tables.failed.entry(source).or_insert(now);
            // At most the whole burst: one pause after the last wrong key, another attempt is allowed.
            *over = ((*over).max(now) + pause).min(now + pause * burst);
        }
    }

    /// Records that a key was right.
    pub(crate) fn succeeded(&self, attempt: &Attempt) {
        let mut tables = self.lock();
        if tables.known.insert(attempt.sha256) && tables.known.len() >= KNOWN_MAX {
            tables.known_before = std::mem::take(&mut tables.known);
        }
    }

    /// A poisoned table is still consistent: no code panics between two changes.
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn knows(&self, attempt: &Attempt) -> bool {
        self.known.contains(&attempt.sha256) || self.known_before.contains(&attempt.sha256)
    }
}

#[cfg(test)]
mod tests;
