//! The charges of sessions that their loop knows: one statement each, and never on top of what the loop has not seen.

use crate::world::{self, Running, World};
use domain::{
    event::Event,
    money::{Tokens, UsdPicos},
    session::Outcome,
};
use store::{
    log::{
        change::{Change, ChangeBody, Charge, KnownSession},
        record::Progress,
    },
    rows::session_row::Session,
    session::{
        park::{Park, ParkOutcome},
        sessions::Patch,
    },
};
use testkit::sample::NOW;

const TOKENS: Tokens = Tokens { input: 1, output: 2, reasoning: 3, cache_read: 4, cache_write: 5 };
/// The session after the charges of one test costs a multiple of this.
const PICOS: i64 = 21;

/// Begins a loop. Returns its session as it knows it.
async fn begin() -> (World, Running, KnownSession) {
    let mut world = World::new().await;
    let running = world.running().await;
    let Session { info, event_seq, .. } =
        world.store.get_session(world.tenant, &running.session).await.unwrap();
    (world, running, KnownSession { event_seq, info: Box::new(info) })
}

/// Makes a charge of a session that its loop knows.
fn charge(world: &mut World, known: KnownSession) -> Change {
    let id = world.sample.event();
    let entries = vec![World::entry(id.as_str(), TOKENS, PICOS)];
    Change { id, body: ChangeBody::Spend(Charge { entries, known: Some(known) }) }
}

/// Renames a session, as a person does.
async fn rename(world: &mut World, running: &Running, title: &str) {
    let (event, patch) = (world.sample.event(), Patch { title: Some(title.to_owned()), ..Patch::default() });
    world.store.update_session(world.tenant, &running.session, &patch, &event, NOW).await.unwrap();
}

/// Asserts that the session has this many charges, and that this event shows it as it is.
async fn assert_shown(world: &World, running: &Running, properties: &str, charges: u64) -> Session {
    let session = world.store.get_session(world.tenant, &running.session).await.unwrap();
    let picos = PICOS * i64::try_from(charges).unwrap();
    assert_eq!((session.info.cost, session.info.tokens.input), (UsdPicos(picos), charges));
    let shown = Event::SessionUpdated(Box::new(session.info.clone())).properties_text(&running.session);
    assert_eq!(properties, shown);
    let budget = world.store.get_budget(world.tenant, &running.session).await.unwrap();
    assert_eq!(budget.spent, UsdPicos(picos), "the ledger has each entry once");
    session
}

#[tokio::test]
async fn a_known_session_is_charged_with_one_statement_once() {
    let (mut world, running, mut known) = begin().await;
    for number in 1..=2 {
        let changes = [world.busy(), charge(&mut world, known.clone())];
        let fence = running.write(number);
        let written = world.store.append(&fence, &changes, 0, Progress::Made, NOW).await.unwrap();
        let newest = world.newest_statement().await;
        assert!(newest.starts_with("with behind as (update"), "no transaction has to end: {newest}");
        assert_shown(&world, &running, &written.events[1].properties, number).await;
        let again = world.store.append(&fence, &changes, 0, Progress::Made, NOW).await.unwrap();
        assert_eq!(again.events, written.events);
        let session = assert_shown(&world, &running, &written.events[1].properties, number).await;
        assert_eq!(written.session.as_deref(), Some(&session.info));
        known = KnownSession { event_seq: session.event_seq, info: written.session.unwrap() };
    }
    world.gap_free(&running.session).await;
}

#[tokio::test]
async fn a_charge_shows_what_a_client_has_changed_since_the_loop_looked() {
    let (mut world, running, known) = begin().await;
    rename(&mut world, &running, "of a person").await;
    let changes = [charge(&mut world, known.clone()), world.busy()];
    let written = world.store.append(&running.write(1), &changes, 0, Progress::Made, NOW).await.unwrap();
    let session = assert_shown(&world, &running, &written.events[0].properties, 1).await;
    assert_eq!(session.info.title, "of a person");
    assert_eq!(written.session.as_deref(), Some(&session.info), "the loop knows the session again");

    // The first charge knows the session, but nothing knows it after the second one.
    let known = KnownSession { event_seq: session.event_seq, info: Box::new(session.info) };
    let changes = [charge(&mut world, known.clone()), charge(&mut world, known)];
    let written = world.store.append(&running.write(2), &changes, 0, Progress::Made, NOW).await.unwrap();
    assert_shown(&world, &running, &written.events[1].properties, 3).await;
    world.gap_free(&running.session).await;
}

/// The client has changed the session, but not committed, when the charge begins.
#[tokio::test]
async fn a_charge_waits_for_a_client_and_shows_its_change() {
    let (mut world, running, known) = begin().await;
    let client = world.renaming_client(&running.session, "of a person").await;
    let changes = [charge(&mut world, known), world.busy()];
    let fence = running.write(1);
    world.assert_written_behind(client, &fence, &changes).await;
    let written = world.store.append(&fence, &changes, 1, Progress::None, NOW).await.unwrap();
    let session = assert_shown(&world, &running, &written.events[0].properties, 1).await;
    assert_eq!(session.info.title, "of a person");
}

#[tokio::test]
async fn the_end_of_a_loop_and_its_charge_are_one_statement() {
    let (mut world, running, known) = begin().await;
    let changes = [charge(&mut world, known), world.change(Event::SessionIdle(Outcome::Done))];
    let end = world::idle(Outcome::Done, None);
    let parked = park(&world, &running, &changes, &end).await;
    let newest = world.newest_statement().await;
    assert!(newest.starts_with("with behind as ("), "no transaction has to end: {newest}");
    let session = world.store.get_session(world.tenant, &running.session).await.unwrap();
    assert_eq!((session.info.cost, session.last_outcome), (UsdPicos(PICOS), Some(Outcome::Done)));
    assert!(parked[0].properties.contains("\"reasoning\":3"), "{}", parked[0].properties);
    assert_eq!(park(&world, &running, &changes, &end).await, parked, "a repeated end is the same end");
    assert_eq!(world.store.get_budget(world.tenant, &running.session).await.unwrap().spent, UsdPicos(PICOS));
    world.gap_free(&running.session).await;
}

#[tokio::test]
async fn the_end_of_a_loop_shows_what_a_client_has_changed() {
    let (mut world, running, known) = begin().await;
    rename(&mut world, &running, "of a person").await;
    let changes = [charge(&mut world, known), world.change(Event::SessionIdle(Outcome::Done))];
    let parked = park(&world, &running, &changes, &world::idle(Outcome::Done, None)).await;
    assert!(parked[0].properties.contains("of a person"), "{}", parked[0].properties);
    let session = world.store.get_session(world.tenant, &running.session).await.unwrap();
    assert_eq!((session.info.cost, session.info.title.as_str()), (UsdPicos(PICOS), "of a person"));
    world.gap_free(&running.session).await;
}

/// Parks a session that has read its first input. Returns the events.
async fn park(
    world: &World,
    running: &Running,
    changes: &[Change],
    end: &Park,
) -> Vec<domain::event::StoredEvent> {
    match world.store.park(&running.write(1), changes, 1, end, NOW).await.unwrap() {
        ParkOutcome::Parked(written) => written.events,
        ParkOutcome::NewInput => panic!("there is no new input"),
    }
}
