//! Wrong keys: how many are looked up before whoever sends them has to wait. Whoever has a key that was right before never waits,
//! so nobody is shut out by what others try from the same address; anybody else waits for seconds, not for longer.

use rpc::status::exhausted;
use sha2::{Digest as _, Sha256};
use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tonic::Status;

/// Wrong keys in a row that one address may send: a network of people behind one address, each with a few slips.
const ADDRESS_BURST: u32 = 50;
/// Time after which an address may send one more.
const ADDRESS_PAUSE: Duration = Duration::from_secs(1);
/// Wrong keys in a row that begin alike, from wherever. So a client that comes again and again with a key that was revoked is
/// held up by its own bound, before it has used up what those beside it have.
const PREFIX_BURST: u32 = 10;
/// Time after which one more such key may be sent.
const PREFIX_PAUSE: Duration = Duration::from_secs(6);
/// Addresses and prefixes that are remembered, some 100 bytes each. Those that have nothing to wait for are forgotten first, and
/// then all: who commands so many addresses is not held up by this.
const FAILED_MAX: usize = 20_000;
/// Keys that were right and are remembered twice over, by their SHA-256.
const KNOWN_MAX: usize = 10_000;

/// One try to be let in.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// Of the whole key. Keys are found and compared by it, so no time tells how much of a guess was right.
    pub(crate) sha256: [u8; 32],
    prefix: String,
    network: Option<IpAddr>,
}

impl Attempt {
    pub(crate) fn new(key: &str, client: Option<IpAddr>) -> Self {
        let prefix = key.chars().take(super::PREFIX_CHARS).collect();
        Self { sha256: Sha256::digest(key).into(), prefix, network: client.map(network) }
    }

    fn bounds(&self) -> impl Iterator<Item = (Source, Bound)> {
        let address = self.network.map(|network| (Source::Network(network), ADDRESS));
        std::iter::once((Source::Prefix(self.prefix.clone()), PREFIX)).chain(address)
    }
}

/// What one party commands: of IPv6, the 64 bits that everybody is given at least.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        address @ IpAddr::V4(_) => address,
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Source {
    Network(IpAddr),
    Prefix(String),
}

/// So many at once, and one more after each pause.
#[derive(Debug, Clone, Copy)]
struct Bound {
    burst: u32,
    pause: Duration,
}

const ADDRESS: Bound = Bound { burst: ADDRESS_BURST, pause: ADDRESS_PAUSE };
const PREFIX: Bound = Bound { burst: PREFIX_BURST, pause: PREFIX_PAUSE };

/// What was tried of late at this gateway.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    /// When all pauses of a source are over. A source whose time has come is as good as unknown.
    failed: HashMap<Source, Instant>,
    /// Keys that were right of late.
    known: HashSet<[u8; 32]>,
    /// Those before.
    known_before: HashSet<[u8; 32]>,
}

impl Attempts {
    /// Says whether a key may be looked up now.
    ///
    /// # Errors
    /// `too_many_attempts`, with the time after which to come again.
    pub(crate) fn check(&self, attempt: &Attempt, now: Instant) -> Result<(), Status> {
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
        Err(exhausted(
            "too_many_attempts",
            "too many wrong keys came from there, or begin like this one",
            wait,
        ))
    }

    /// Whether the key was right of late.
    pub(crate) fn knows(&self, attempt: &Attempt) -> bool {
        self.lock().knows(attempt)
    }

    /// Remembers that a key was wrong.
    pub(crate) fn failed(&self, attempt: &Attempt, now: Instant) {
        metrics::counter!("flotilla_keys_refused_total").increment(1);
        let mut tables = self.lock();
        // It may have been right before it was revoked.
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
            // Never more than all of them: one pause after the last wrong key, the next may come.
            *over = ((*over).max(now) + pause).min(now + pause * burst);
        }
    }

    /// Remembers that a key was right.
    pub(crate) fn succeeded(&self, attempt: &Attempt) {
        let mut tables = self.lock();
        if tables.known.insert(attempt.sha256) && tables.known.len() >= KNOWN_MAX {
            tables.known_before = std::mem::take(&mut tables.known);
        }
    }

    /// A poisoned table is still a right one: no code panics between two changes.
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
