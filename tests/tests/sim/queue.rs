//! Compares the simulated queue with the real scripts. Both receive the same random calls, and the simulated queue must allow
//! each answer of the real one. The real queue chooses which of several ready sessions is claimed.

use bus::{
    Bus,
    queue::{Claims, EnqueueResult, Mode, QueueEntry, ReleaseTo, TenantShare},
};
use domain::{
    ids::{SessionId, TenantId},
    session::Class,
};
use e2e::sim::{
    queue::{self, Queue},
    rules::Rules,
    walk::Dice,
};
use testkit::sample::Sample;

const SESSIONS: usize = 4;
const WORKERS: usize = 3;
const CAP: usize = 3;
const RUNS: u64 = 30;
const CALLS: usize = 60;

struct Pair {
    bus: Bus,
    model: Queue,
    tenant: TenantId,
    sessions: Vec<SessionId>,
}

fn name(worker: usize) -> String {
    format!("worker-{worker}")
}

impl Pair {
    /// Creates both queues as after a flush: no worker is alive, and the queues are not complete. Each run has a separate
    /// namespace.
    async fn emptied(seed: u64) -> Self {
        let servers = testkit::servers().await;
        let bus = Bus::connect(&servers.nats_url, &servers.redis_url, &testkit::namespace()).await.unwrap();
        let mut sample = Sample::new(u8::try_from(seed).unwrap());
        let mut model = Queue::with_sessions(SESSIONS);
        model.alive = vec![false; WORKERS];
        model.flush();
        let sessions = (0..SESSIONS).map(|_| sample.session()).collect();
        Self { bus, model, tenant: sample.tenant(), sessions }
    }

    fn entry(&self, session: usize) -> QueueEntry<'_> {
        let share = Some(TenantShare { running_max: u32::try_from(CAP).unwrap(), weight: 1 });
        QueueEntry { tenant: self.tenant, session: &self.sessions[session], class: Class::Interactive, share }
    }

    async fn enqueue(&mut self, session: usize, rebuild: bool) {
        let mode = if rebuild { Mode::Rebuild } else { Mode::Normal };
        let real = self.bus.enqueue(self.entry(session), mode).await.unwrap();
        let real = match real {
            EnqueueResult::Queued => queue::EnqueueResult::Queued,
            EnqueueResult::Held => queue::EnqueueResult::Held,
            EnqueueResult::Empty => queue::EnqueueResult::Empty,
        };
        assert_eq!(real, self.model.enqueue(&Rules::SOUND, session, rebuild));
    }

    async fn claim(&mut self, worker: usize) {
        let claimed = match self.bus.claim(&name(worker), 1).await.unwrap() {
            Claims::Some(claimed) => claimed,
            Claims::Empty => return assert!(!self.model.complete),
        };
        assert!(self.model.complete);
        let Some(claimed) = claimed.first() else {
            let missed = (0..SESSIONS).find(|session| self.model.may_claim(*session, CAP));
            return assert_eq!(missed, None, "the real queue claims a session if the model allows one");
        };
        let session = self.sessions.iter().position(|session| *session == claimed.session).unwrap();
        assert!(self.model.may_claim(session, CAP), "{:?}", self.model);
        self.model.claim(session, worker);
    }

    async fn release(&mut self, session: usize, worker: usize, front: bool) {
        let (then, model_then) = if front {
            (ReleaseTo::Front, queue::ReleaseTo::Front)
        } else {
            (ReleaseTo::Rest, queue::ReleaseTo::Rest)
        };
        let real = self.bus.release(self.tenant, &self.sessions[session], &name(worker), then).await.unwrap();
        assert_eq!(real, self.model.release(&Rules::SOUND, session, worker, model_then));
    }

    async fn call(&mut self, dice: &mut Dice) {
        // Renews the leases, so that no worker dies on a slow machine.
        for worker in (0..WORKERS).filter(|worker| self.model.alive[*worker]) {
            assert_eq!(self.bus.renew(&name(worker)).await.unwrap(), self.model.complete);
        }
        let (session, worker) = (dice.below(SESSIONS), dice.below(WORKERS));
        match dice.below(16) {
            0..=3 => self.enqueue(session, false).await,
            4 => self.enqueue(session, !self.model.complete).await,
            5..=8 => self.claim(worker).await,
            9..=12 => self.release(session, worker, dice.below(3) == 0).await,
            13 => assert_eq!(self.bus.reap().await.unwrap(), self.model.reap() as u64),
            14 if !self.model.complete => {
                self.bus.adopt(self.entry(session), &name(worker)).await.unwrap();
                self.model.adopt(session, worker);
            }
            14 => self.model.alive[worker] = true,
            _ if dice.below(4) == 0 => {
                self.bus.complete_rebuild().await.unwrap();
                self.model.complete = true;
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn the_model_allows_every_answer_of_the_scripts() {
    let (mut claims, mut dirty) = (0, 0);
    for seed in 0..RUNS {
        let (mut pair, mut dice) = (Pair::emptied(seed).await, Dice::from_seed(seed));
        for _ in 0..CALLS {
            pair.call(&mut dice).await;
            claims += pair.model.held();
            dirty += pair.model.holds.iter().flatten().filter(|hold| hold.dirty).count();
        }
    }
    // The calls must cover claims and dirty marks.
    assert!(claims > 500 && dirty > 50, "{claims} {dirty}");
}
