//! Any order of calls: the scripts agree with the plain model in every answer and in the order of all claims.

use crate::world::World;
use bus::queue::{EnqueueResult, Mode, QueueEntry, ReleaseTo, Slots, TenantShare, Yield};
use domain::{
    ids::{SessionId, TenantId},
    limits,
    session::Class,
};
use proptest::{collection::vec, option, prelude::*, sample::select, test_runner::TestRunner};
use testkit::ready_queue::{self as model, ReadyQueue};

const SESSIONS: u32 = 24;
const WORKERS: u32 = 4;
const TENANTS: u32 = 3;
const OPERATIONS_MAX: usize = 160;

#[derive(Debug, Clone)]
enum Operation {
    Enqueue {
        session: u32,
        class: Class,
        share: Option<(u32, u32)>,
        mode: Mode,
    },
    Claim {
        worker: u32,
        count: usize,
    },
    /// Slot time passes for the sessions of a worker, and the worker renews.
    Renew {
        worker: u32,
        passed_ms: u64,
    },
    /// Released by the holder, or by its successor.
    Release {
        session: u32,
        stranger: Option<u32>,
        then: ReleaseTo,
    },
    Reap,
    Adopt {
        session: u32,
        class: Class,
        worker: u32,
    },
    Kill {
        worker: u32,
    },
    Flush,
    Complete,
    /// An hour passes for idle tenants.
    Forget,
    AskYield {
        session: u32,
        slots: Slots,
    },
    Look {
        tenant: u32,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    let session = || 0..SESSIONS;
    let worker = || 0..WORKERS;
    let class = || select(&Class::ALL);
    let share = option::weighted(0.2, (0..5_u32, 0..4_u32));
    let mode = prop_oneof![9 => Just(Mode::Normal), 1 => Just(Mode::Rebuild)];
    let then = prop_oneof![2 => Just(ReleaseTo::Rest), 1 => Just(ReleaseTo::Front)];
    prop_oneof![
        16 => (session(), class(), share, mode)
            .prop_map(|(session, class, share, mode)| Operation::Enqueue { session, class, share, mode }),
        12 => (worker(), 0..4_usize).prop_map(|(worker, count)| Operation::Claim { worker, count }),
        6 => (worker(), 0..12_000_u64).prop_map(|(worker, passed_ms)| Operation::Renew { worker, passed_ms }),
        8 => (session(), option::weighted(0.1, worker()), then)
            .prop_map(|(session, stranger, then)| Operation::Release { session, stranger, then }),
        2 => Just(Operation::Reap),
        2 => (session(), class(), worker())
            .prop_map(|(session, class, worker)| Operation::Adopt { session, class, worker }),
        2 => worker().prop_map(|worker| Operation::Kill { worker }),
        1 => Just(Operation::Flush),
        3 => Just(Operation::Complete),
        1 => Just(Operation::Forget),
        8 => (session(), select(&[Slots::Free, Slots::Full]))
            .prop_map(|(session, slots)| Operation::AskYield { session, slots }),
        4 => (0..TENANTS).prop_map(|tenant| Operation::Look { tenant }),
    ]
}

/// The queue and its model.
struct Pair {
    world: World,
    model: ReadyQueue,
    tenants: Vec<TenantId>,
    sessions: Vec<SessionId>,
    /// The server's time at the last step that recorded it.
    now_ms: u64,
}

fn name(worker: u32) -> String {
    format!("w{worker}")
}

impl Pair {
    async fn new() -> Self {
        let mut world = World::new().await;
        let mut tenants: Vec<_> = (0..TENANTS).map(|_| world.sample.tenant()).collect();
        let mut sessions: Vec<_> = (0..SESSIONS).map(|_| world.sample.session()).collect();
        // Names break ties.
        tenants.sort();
        sessions.sort();
        let mut model = ReadyQueue::default();
        model.complete_rebuild();
        Self { world, model, tenants, sessions, now_ms: 1 }
    }

    /// The number of a session's tenant.
    fn tenant(session: u32) -> u32 {
        session % TENANTS
    }

    fn tenant_id(&self, session: u32) -> TenantId {
        self.tenants[Self::tenant(session) as usize]
    }

    fn id(&self, session: u32) -> &SessionId {
        &self.sessions[session as usize]
    }

    fn entry(
        &self,
        session: u32,
        class: Class,
        share: Option<(u32, u32)>,
    ) -> (QueueEntry<'_>, model::QueueEntry) {
        let (tenant, id) = (self.tenant_id(session), self.id(session));
        let real = share.map(|(running_max, weight)| TenantShare { running_max, weight });
        let plain = share.map(|(running_max, weight)| model::TenantShare { running_max, weight });
        (
            QueueEntry { tenant, session: id, class, share: real },
            model::QueueEntry { tenant: Self::tenant(session), session, class, share: plain },
        )
    }

    /// Reads the server's time from what the last step wrote.
    async fn note(&mut self, key: &str, member: &str) {
        if let Some(score) = self.world.number("ZSCORE", &[&self.world.key(key), member]).await {
            // The first entry has a time in the past.
            let at = if score < 0.0 { score + 1e13 } else { score };
            self.now_ms = self.now_ms.max(at as u64);
        }
    }

    async fn note_ready(&mut self, session: u32) {
        for class in Class::ALL {
            let key = format!("r:{}:{}", self.tenant_id(session), class.to_i16());
            let id = self.id(session).to_string();
            self.note(&key, &id).await;
        }
    }

    async fn note_running(&mut self, session: u32) {
        let (key, id) = (format!("run:{}", self.tenant_id(session)), self.id(session).to_string());
        self.note(&key, &id).await;
    }

    async fn perform(&mut self, operation: &Operation) {
        match *operation {
            Operation::Enqueue { session, class, share, mode } => {
                let (entry, plain) = self.entry(session, class, share);
                let answer = self.world.bus.enqueue(entry, mode).await.unwrap();
                self.note_ready(session).await;
                let mode = if mode == Mode::Normal { model::Mode::Normal } else { model::Mode::Rebuild };
                let expected = match self.model.enqueue(plain, mode, self.now_ms) {
                    model::EnqueueResult::Queued => EnqueueResult::Queued,
                    model::EnqueueResult::Held => EnqueueResult::Held,
                    model::EnqueueResult::Empty => EnqueueResult::Empty,
                };
                assert_eq!(answer, expected);
            }
            Operation::Claim { worker, count } => {
                self.claim(worker, count).await;
            }
            Operation::Renew { worker, passed_ms } => self.renew(worker, passed_ms).await,
            Operation::Release { session, stranger, then } => self.release(session, stranger, then).await,
            Operation::Reap => self.reap().await,
            Operation::Adopt { session, class, worker } => {
                let (entry, plain) = self.entry(session, class, None);
                self.world.bus.adopt(entry, &name(worker)).await.unwrap();
                self.note_running(session).await;
                self.model.adopt(plain, worker, self.now_ms);
            }
            Operation::Kill { worker } => {
                self.world.kill(&name(worker)).await;
                self.model.kill(worker);
            }
            Operation::Flush => {
                let keys = self.world.redis("KEYS", &[&self.world.key("*")]).await;
                for key in redis::from_redis_value::<Vec<String>>(keys).unwrap() {
                    self.world.redis("DEL", &[&key]).await;
                }
                self.model.flush();
            }
            Operation::Complete => {
                self.world.bus.complete_rebuild().await.unwrap();
                self.model.complete_rebuild();
            }
            Operation::Forget => self.forget().await,
            Operation::AskYield { session, slots } => self.ask(session, slots).await,
            Operation::Look { tenant } => self.look(tenant).await,
        }
    }

    async fn claim(&mut self, worker: u32, count: usize) -> Vec<u32> {
        let answer = self.world.bus.claim(&name(worker), count).await.unwrap();
        let bus::queue::Claims::Some(claimed) = answer else {
            assert_eq!(self.model.claim(worker, count, self.now_ms), None);
            return vec![];
        };
        let number = |id| self.sessions.iter().position(|session| session == id).unwrap() as u32;
        let claimed: Vec<_> = claimed.iter().map(|one| (one.tenant, number(&one.session))).collect();
        if let Some((_, session)) = claimed.first() {
            self.note_running(*session).await;
        }
        for (tenant, session) in &claimed {
            assert_eq!(*tenant, self.tenant_id(*session));
            assert_eq!(self.model.holder(*session), None, "{session} has a holder");
        }
        let sessions: Vec<_> = claimed.iter().map(|(_, session)| *session).collect();
        let expected = self.model.claim(worker, count, self.now_ms).expect("it is complete");
        assert_eq!(sessions, expected.iter().map(|(_, session)| *session).collect::<Vec<_>>());
        sessions
    }

    async fn renew(&mut self, worker: u32, passed_ms: u64) {
        for session in self.model.held(worker) {
            let key = self.world.key(&format!("l:{}:{}", self.tenant_id(session), self.id(session)));
            // Redis knows no number `-0`.
            let change = 0_i64.saturating_sub_unsigned(passed_ms).to_string();
            self.world.redis("HINCRBY", &[&key, "paid", &change]).await;
            *self.model.paid_ms(session).unwrap() -= passed_ms;
        }
        self.world.live(&name(worker)).await;
        let key = self.world.key(&format!("w:{}", name(worker)));
        self.now_ms = self.now_ms.max(self.world.number("GET", &[&key]).await.unwrap() as u64);
        self.model.renew(worker, u64::MAX, self.now_ms);
    }

    async fn release(&mut self, session: u32, stranger: Option<u32>, then: ReleaseTo) {
        let worker = stranger.or(self.model.holder(session)).unwrap_or(0);
        let (tenant, id) = (self.tenant_id(session), self.id(session));
        let again = self.world.bus.release(tenant, id, &name(worker), then).await.unwrap();
        self.note_ready(session).await;
        let model_then =
            if then == ReleaseTo::Front { model::ReleaseTo::Front } else { model::ReleaseTo::Rest };
        assert_eq!(again, self.model.release(session, worker, model_then, self.now_ms));
    }

    async fn reap(&mut self) {
        let held: Vec<_> = (0..=WORKERS).flat_map(|worker| self.model.held(worker)).collect();
        let count = self.world.bus.reap().await.unwrap();
        for session in held {
            self.note_ready(session).await;
        }
        assert_eq!(count, self.model.reap(self.now_ms));
    }

    async fn forget(&mut self) {
        for tenant in &self.tenants {
            let key = self.world.key(&format!("t:{tenant}"));
            if self.world.number("PTTL", &[&key]).await.unwrap() > 0.0 {
                self.world.redis("DEL", &[&key]).await;
            }
        }
        self.model.forget_idle(self.now_ms + 2 * limits::QUEUE_TENANT_IDLE_MS);
    }

    async fn ask(&self, session: u32, slots: Slots) {
        let worker = self.model.holder(session).unwrap_or(0);
        let (tenant, id) = (self.tenant_id(session), self.id(session));
        let answer = self.world.bus.should_yield(tenant, id, &name(worker), slots).await.unwrap();
        let slots = if slots == Slots::Full { model::Slots::Full } else { model::Slots::Free };
        let expected = match self.model.should_yield(session, worker, slots) {
            model::Yield::Keep => Yield::Keep,
            model::Yield::ToTenant => Yield::ToTenant,
            model::Yield::ToClass => Yield::ToClass,
        };
        assert_eq!(answer, expected);
    }

    async fn look(&self, tenant: u32) {
        let outlook = self.world.bus.outlook(self.tenants[tenant as usize]).await.unwrap();
        let expected = self.model.outlook(tenant);
        assert_eq!((outlook.running, outlook.ready), (expected.running, expected.ready));
        assert_eq!(
            (outlook.running_max, outlook.weight),
            (expected.share.running_max, expected.share.weight)
        );
        let key = self.world.key(&format!("t:{}", self.tenants[tenant as usize]));
        let interval_ms =
            self.world.number("HGET", &[&key, "interval"]).await.map(|interval| interval as u64);
        assert_eq!(interval_ms, expected.interval_ms);
        // Time passes since the newest claim.
        assert_eq!(outlook.interval_ms.is_some(), interval_ms.is_some());
        assert!(outlook.interval_ms >= interval_ms, "{outlook:?}");
    }

    /// All workers die. One worker then claims every session that was ready or held, in the model's order.
    async fn drain(&mut self) {
        self.perform(&Operation::Complete).await;
        for worker in 0..WORKERS {
            self.perform(&Operation::Kill { worker }).await;
        }
        self.perform(&Operation::Reap).await;
        for tenant in 0..TENANTS {
            let share = Some((64, 1));
            let enqueue =
                Operation::Enqueue { session: tenant, class: Class::Interactive, share, mode: Mode::Normal };
            self.perform(&enqueue).await;
        }
        self.perform(&Operation::Renew { worker: WORKERS, passed_ms: 0 }).await;
        while let Some(session) = self.claim(WORKERS, 1).await.first().copied() {
            self.release(session, None, ReleaseTo::Rest).await;
        }
        for tenant in 0..TENANTS {
            self.look(tenant).await;
            assert_eq!(self.model.outlook(tenant).ready, [0, 0, 0], "nothing is left");
        }
    }
}

#[test]
fn random_calls_give_the_same_answers_as_the_model() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let config =
        ProptestConfig { cases: 40, max_shrink_iters: 150, failure_persistence: None, ..Default::default() };
    let operations = vec(operation(), 1..OPERATIONS_MAX);
    let result = TestRunner::new(config).run(&operations, |operations| {
        runtime.block_on(async {
            let mut pair = Pair::new().await;
            for operation in &operations {
                pair.perform(operation).await;
            }
            pair.drain().await;
        });
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
