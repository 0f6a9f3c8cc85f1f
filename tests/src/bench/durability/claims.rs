//! How many sessions are claimed and finished in a second without any work: the limit that the ready queue and the control
//! row impose.

use super::sizes::Sizes;
use crate::{
    Options,
    bench::{
        figure::{Figure, Quantity, Target},
        samples::Samples,
        stored::copies::{self, Owners},
        testbed::{Servers, Testbed},
    },
};
use bus::queue::{Claims, ReleaseTo};
use domain::{
    event::{Event, Status},
    ids::{EventId, Ids, Timestamp},
    limits,
    session::Outcome,
};
use std::time::{Duration, Instant};
use store::{
    log::change::{Change, ChangeBody},
    session::{
        park::{Park, ParkOutcome},
        runs::{SuspectPolicy, TakeResult},
    },
};
use uuid::Uuid;

/// Number of sessions that are claimed and finished concurrently, each with a connection to Postgres: enough for group
/// commits.
const AT_ONCE: u32 = 32;

/// Claims and finishes every session of a backlog.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let testbed = Testbed::start(servers, Options { workers: 0, sandbox: false, ..Options::default() }).await;
    let template = testbed.stack.session().await;
    testbed.stack.api.prompt(&template, "bench").await.expect("an accepted prompt");
    let sessions = copies::make(&testbed, &template, Owners::Same, sizes.claims).await;
    let bus = testbed.stack.bus().await;
    copies::enqueue(&bus, &sessions, limits::TENANT_RUNNING_MOST).await;
    let claimer = Claimer { bus, store: testbed.store(AT_ONCE), owner: Uuid::now_v7() };
    let alive = tokio::spawn(claimer.clone().stay_alive());
    let begun = Instant::now();
    let tasks: Vec<_> = (0..AT_ONCE).map(|seed| tokio::spawn(claimer.clone().finish_all(seed))).collect();
    let mut each = Samples::default();
    for task in tasks {
        each.extend(task.await.expect("no panic"));
    }
    let elapsed = begun.elapsed();
    alive.abort();
    claimer.store.close().await;
    assert_eq!(each.count(), sizes.claims, "each session is claimed once");
    testbed.until_sql("each session is idle", "select count(*) = 1 from session_run where phase <> 0").await;
    testbed.end().await;
    let rate = each.count() as f64 / elapsed.as_secs_f64();
    vec![
        Figure::number(
            format!("sessions claimed and finished, {AT_ONCE} at once"),
            Quantity { value: rate, unit: "sessions/s" },
            each.count(),
            Target::AtLeast(1_000.0),
        ),
        Figure::times("one of them, claim to release", each, Target::None),
    ]
}

#[derive(Clone)]
struct Claimer {
    bus: bus::Bus,
    store: store::Store,
    owner: Uuid,
}

impl Claimer {
    async fn stay_alive(self) {
        loop {
            self.bus.renew(&self.owner.to_string()).await.expect("an answer of Redis");
            tokio::time::sleep(Duration::from_millis(limits::HEARTBEAT_MS)).await;
        }
    }

    /// Claims and finishes one session after the other, as a worker does, until none is ready.
    async fn finish_all(self, seed: u32) -> Samples {
        let (worker, mut ids) =
            (self.owner.to_string(), Ids::new([u8::try_from(seed).expect("few tasks"); 32]));
        let mut samples = Samples::default();
        loop {
            let begun = Instant::now();
            let Claims::Some(claimed) = self.bus.claim(&worker, 1).await.expect("an answer of Redis") else {
                panic!("Redis was emptied");
            };
            let Some(session) = claimed.first() else { return samples };
            let took =
                self.store.take_session(session.tenant, &session.session, self.owner, SuspectPolicy::Accept);
            let TakeResult::Taken(taken) = took.await.expect("an answer of Postgres") else {
                panic!("another worker took the session");
            };
            let mut fence = taken.take_over.fence;
            fence.write_seq += 1;
            let change =
                |event| Change { id: EventId::make(&mut ids, Timestamp(0)), body: ChangeBody::Event(event) };
            // The last events of every turn; the prompt is the only input.
            let changes: Vec<_> =
                [Event::SessionStatus(Status::Idle), Event::SessionIdle(Outcome::Done)].map(change).into();
            let park = Park::Idle { outcome: Outcome::Done, error: None, answer: None };
            let parked = self.store.park(&fence, &changes, 1, &park, Timestamp(0)).await;
            assert!(
                matches!(parked.expect("an answer of Postgres"), ParkOutcome::Parked(_)),
                "the session has no new input"
            );
            let released = self.bus.release(session.tenant, &session.session, &worker, ReleaseTo::Rest).await;
            released.expect("an answer of Redis");
            samples.push(begun.elapsed());
        }
    }
}
