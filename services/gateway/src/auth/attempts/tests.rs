#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;

fn attempt(key: &str, client: &str) -> Attempt {
    Attempt::new(key, Some(client.parse().unwrap()))
}

/// A wrong key with a beginning of its own.
fn guess(number: u32, client: &str) -> Attempt {
    attempt(&format!("flk_{number:08}guess"), client)
}

/// How long the client has to wait, if at all.
fn wait(attempts: &Attempts, attempt: &Attempt, now: Instant) -> Option<Duration> {
    match attempts.check(attempt, now) {
        Ok(()) => None,
        Err(Error::TooManyAttempts { retry_after }) => Some(retry_after),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn an_address_that_guesses_waits_for_one_pause() {
    let (attempts, evil, mut now) = (Attempts::default(), "203.0.113.7", Instant::now());
    for number in 0..ADDRESS_BURST {
        assert_eq!(wait(&attempts, &guess(number, evil), now), None, "{number}");
        attempts.failed(&guess(number, evil), now);
    }
    assert_eq!(wait(&attempts, &guess(9_999, evil), now), Some(ADDRESS_PAUSE));
    assert_eq!(wait(&attempts, &guess(9_999, "203.0.113.8"), now), None, "another address does not wait");
    // More guesses do not make the wait longer.
    for number in 0..10_000 {
        attempts.failed(&guess(number, evil), now);
    }
    assert_eq!(wait(&attempts, &guess(9_999, evil), now), Some(ADDRESS_PAUSE));
    now += ADDRESS_PAUSE;
    assert_eq!(wait(&attempts, &guess(77_777, evil), now), None);
    attempts.failed(&guess(77_777, evil), now);
    assert!(wait(&attempts, &guess(77_778, evil), now).is_some(), "one more key, not a whole burst");
}

#[test]
fn a_right_key_never_waits_for_guesses_from_its_address() {
    let (attempts, shared, now) = (Attempts::default(), "203.0.113.7", Instant::now());
    let honest = attempt("flk_honest__key", shared);
    attempts.succeeded(&honest);
    for number in 0..1_000 {
        attempts.failed(&guess(number, shared), now);
    }
    assert!(wait(&attempts, &guess(9_999, shared), now).is_some());
    assert_eq!(wait(&attempts, &honest, now), None);
    // A revoked key waits.
    attempts.failed(&honest, now);
    assert!(wait(&attempts, &honest, now).is_some());
}

#[test]
fn a_revoked_key_holds_up_only_itself() {
    let (attempts, now) = (Attempts::default(), Instant::now());
    let revoked = attempt("flk_revoked_key", "203.0.113.7");
    attempts.succeeded(&revoked);
    let mut count = 0;
    while wait(&attempts, &revoked, now).is_none() {
        attempts.failed(&revoked, now);
        count += 1;
    }
    assert_eq!((count, wait(&attempts, &revoked, now)), (PREFIX_BURST, Some(PREFIX_PAUSE)));
    assert_eq!(wait(&attempts, &guess(1, "203.0.113.7"), now), None);
    let from_elsewhere = attempt("flk_revoked_other", "198.51.100.1");
    assert!(wait(&attempts, &from_elsewhere, now).is_some(), "one beginning has one limit for all addresses");
}

#[test]
fn an_ipv6_network_counts_as_one_address() {
    let (attempts, now) = (Attempts::default(), Instant::now());
    for number in 0..ADDRESS_BURST {
        attempts.failed(&guess(number, &format!("2001:db8:1:2::{number}")), now);
    }
    assert!(wait(&attempts, &guess(9_999, "2001:db8:1:2:ffff::"), now).is_some());
    assert_eq!(wait(&attempts, &guess(9_999, "2001:db8:1:3::1"), now), None);
    assert_eq!(network("::ffff:203.0.113.7".parse().unwrap()), "203.0.113.7".parse::<IpAddr>().unwrap());
}

#[test]
fn the_memory_is_bounded() {
    let (attempts, now) = (Attempts::default(), Instant::now());
    for number in 0..2 * FAILED_MAX as u32 {
        attempts.failed(&guess(number, &IpAddr::from(number.to_be_bytes()).to_string()), now);
        attempts.succeeded(&guess(number, "203.0.113.7"));
        let tables = attempts.lock();
        assert!(tables.failed.len() <= FAILED_MAX + 1, "{}", tables.failed.len());
        assert!(tables.known.len() + tables.known_before.len() <= 2 * KNOWN_MAX);
    }
    assert!(attempts.knows(&guess(2 * FAILED_MAX as u32 - 1, "203.0.113.7")));
}
