//! Deliveries that the forge could not send us: which of them it is to send again. A forge does not do so by itself.

use crate::ids::Timestamp;
use std::collections::{BTreeMap, HashSet};

/// Pauses before the next attempt of a delivery, by the number of those after the first one; milliseconds. Then nobody asks for it any more.
const PAUSES_MS: [i64; 7] = [0, 5_000, 60_000, 300_000, 1_800_000, 7_200_000, 28_800_000];
/// For how long the forge keeps deliveries; milliseconds.
pub const KEPT_MS: i64 = 3 * 24 * 3_600 * 1_000;
/// The look back begins so long before the last one: clocks differ, and an attempt is listed only when it has ended; milliseconds.
const MARGIN_MS: i64 = 10 * 60 * 1_000;
/// Deliveries that one look asks for, the oldest first.
const ASKED_MAX: usize = 200;

/// An attempt of the forge to send a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub id: u64,
    /// The delivery: all its attempts have this.
    pub guid: String,
    pub at: Timestamp,
}

/// What follows from a look at the attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// The attempts to repeat, the oldest delivery first.
    pub repeat: Vec<u64>,
    /// The time to which the next look must go back.
    pub back_to: Timestamp,
}

/// Decides after a look that began at `now`. `known` are the deliveries that have arrived.
pub fn look(attempts: &[Attempt], known: &HashSet<String>, now: Timestamp) -> Look {
    let mut missed: BTreeMap<&str, Vec<&Attempt>> = BTreeMap::new();
    for attempt in attempts.iter().filter(|attempt| !known.contains(&attempt.guid)) {
        missed.entry(&attempt.guid).or_default().push(attempt);
    }
    let (mut due, mut oldest) = (vec![], now.0);
    for attempts in missed.values() {
        let times = attempts.iter().map(|attempt| attempt.at.0);
        let (Some(first), Some(last)) = (times.min(), attempts.iter().max_by_key(|attempt| attempt.at.0))
        else {
            continue;
        };
        let Some(pause) = PAUSES_MS.get(attempts.len() - 1) else { continue };
        oldest = oldest.min(first);
        if last.at.0 + pause <= now.0 {
            due.push((first, last.id));
        }
    }
    due.sort_unstable();
    let repeat = due.into_iter().take(ASKED_MAX).map(|(_, id)| id).collect();
    Look { repeat, back_to: Timestamp((oldest - MARGIN_MS).max(now.0 - KEPT_MS)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000_000);

    fn attempt(id: u64, guid: &str, ago_ms: i64) -> Attempt {
        Attempt { id, guid: guid.to_owned(), at: Timestamp(NOW.0 - ago_ms) }
    }

    fn repeated(attempts: &[Attempt]) -> Vec<u64> {
        look(attempts, &HashSet::from(["known".to_owned()]), NOW).repeat
    }

    #[test]
    fn what_has_not_arrived_is_asked_for_the_oldest_first() {
        let attempts = [attempt(3, "b", 100), attempt(2, "known", 200), attempt(1, "a", 300)];
        assert_eq!(repeated(&attempts), [1, 3]);
    }

    #[test]
    fn each_attempt_that_fails_makes_the_pause_longer_until_nobody_asks() {
        for (attempts, last_ago_ms, want) in [
            (1, 0, true),
            (2, 4_999, false),
            (2, 5_000, true),
            (3, 59_999, false),
            (3, 60_000, true),
            (7, 28_800_000, true),
            (8, 99_000_000, false),
        ] {
            let all: Vec<_> = (0..attempts)
                .map(|number| {
                    attempt(number, "a", last_ago_ms + i64::try_from(attempts - 1 - number).unwrap())
                })
                .collect();
            let wanted: Vec<u64> = if want { vec![attempts - 1] } else { vec![] };
            assert_eq!(repeated(&all), wanted, "{attempts} attempts, the last one {last_ago_ms} ms ago");
        }
    }

    #[test]
    fn the_next_look_goes_back_to_what_is_still_missing() {
        let back_to = |attempts: &[Attempt]| NOW.0 - look(attempts, &HashSet::new(), NOW).back_to.0;
        assert_eq!(back_to(&[]), MARGIN_MS);
        assert_eq!(back_to(&[attempt(1, "a", 7_000), attempt(2, "b", 9_000)]), MARGIN_MS + 9_000);
        assert_eq!(back_to(&[attempt(1, "a", KEPT_MS)]), KEPT_MS, "the forge keeps nothing longer");
        // One that nobody asks for any more keeps no look from ending.
        let hopeless: Vec<_> = (0..8).map(|number| attempt(number, "a", 50_000_000)).collect();
        assert_eq!(back_to(&hopeless), MARGIN_MS);
    }

    #[test]
    fn one_look_asks_for_a_bounded_number() {
        let many: Vec<_> = (0..500).map(|number| attempt(number, &number.to_string(), 1)).collect();
        assert_eq!(repeated(&many).len(), ASKED_MAX);
    }
}
