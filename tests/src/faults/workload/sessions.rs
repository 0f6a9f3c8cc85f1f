//! The sessions of the workload: each receives one prompt after the other, in every manner that clients use. The seed
//! decides the prompts; their timing depends on the system.

use super::{
    canary::Canaries,
    client::Client,
    script::{self, Script},
    subscriber::{self, Record},
};
use crate::faults::history::{Abort, History, Poison, Prompt, now_us};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Number of prompts before a new session replaces this one: conversations must stay small, and the start of a session is
/// worth testing.
const PROMPTS_PER_SESSION: usize = 10;
/// How long a client waits for the end of its turn. Only a lost turn takes longer.
const TURN: Duration = Duration::from_secs(150);
/// Share of the sessions that ask a person before each command.
const ASKS: f64 = 0.15;
/// Share of the sessions that another tenant tries to follow.
const SPIED: f64 = 0.1;
/// The tenant with the poisons: a light one, because it has few other sessions.
const POISON_TENANT: usize = 1;
/// Longest life of a poison: it kills six workers, one after the other, and the lease of each must expire.
pub const POISON_LIFETIME: Duration = Duration::from_secs(60);
/// How long a roaming subscriber stays at one gateway.
const STAY: Duration = Duration::from_secs(3);

/// The manner in which a prompt is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Once; the client waits for its end.
    Once,
    Burst,
    /// Twice at the same moment with the same key, at both gateways.
    Twice,
    /// At the moment at which the previous turn ends.
    AtTheEnd,
    /// By a client that disconnects before the answer, and sends it again.
    Hasty,
    /// Once, with an abort while it runs.
    WithAbort,
}

/// Each manner occurs as often as it is listed.
const MANNERS: [Manner; 9] = [
    Manner::Once,
    Manner::Once,
    Manner::Once,
    Manner::Burst,
    Manner::Twice,
    Manner::AtTheEnd,
    Manner::AtTheEnd,
    Manner::Hasty,
    Manner::WithAbort,
];

/// The size of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Number of sessions that were started.
    pub sessions: usize,
    /// Number of turns that ended.
    pub turns: usize,
}

/// The clients of all tenants, and the record of what they did. Clones share it.
#[derive(Clone)]
pub struct Workload {
    shared: Arc<Shared>,
}

struct Shared {
    seed: u64,
    /// Cancelled when clients must send no further prompts.
    stop: CancellationToken,
    sessions: AtomicUsize,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    prompts: Vec<Prompt>,
    aborts: Vec<Abort>,
    subscribers: Vec<Arc<Record>>,
    poisons: Vec<Poison>,
    /// The sessions that receive prompts.
    live: Vec<String>,
    turns: usize,
}

impl Workload {
    /// Creates a workload without clients.
    pub fn new(seed: u64) -> Self {
        let shared = Shared {
            seed,
            stop: CancellationToken::new(),
            sessions: AtomicUsize::new(0),
            log: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the clients, each with its number of concurrent sessions, and one poison after the other until `poison_until`.
    pub fn begin(&self, clients: &[(Client, usize)], poison_until: Instant) -> JoinSet<()> {
        let mut drivers = JoinSet::new();
        for (at, (client, sessions)) in clients.iter().enumerate() {
            let (stranger, _) = &clients[(at + 1) % clients.len()];
            for lane in 0..*sessions {
                drivers.spawn(self.clone().drive(client.clone(), stranger.clone(), lane));
            }
            if client.tenant == POISON_TENANT {
                drivers.spawn(self.clone().poison(client.clone(), poison_until));
            }
        }
        drivers
    }

    /// Stops sending prompts. The clients end after the answers to their last prompts.
    pub fn stop(&self) {
        self.shared.stop.cancel();
    }

    /// Chooses a session that receives prompts.
    pub fn choose_session(&self, rng: &mut StdRng) -> Option<String> {
        self.log().live.choose(rng).cloned()
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        Counts { sessions: self.shared.sessions.load(Ordering::Relaxed), turns: self.log().turns }
    }

    /// Writes the record of the clients into a history.
    pub fn write_into(&self, history: &mut History) {
        let log = self.log();
        history.transcripts = log.subscribers.iter().map(|subscriber| subscriber.transcript()).collect();
        (history.prompts, history.aborts) = (log.prompts.clone(), log.aborts.clone());
        history.poisons.clone_from(&log.poisons);
    }

    pub fn poisons(&self) -> Vec<String> {
        self.log().poisons.iter().map(|poison| poison.session_id.clone()).collect()
    }

    /// Records that a poison killed a worker, and returns the number of workers that it has killed.
    pub fn record_kill(&self, session_id: &str, worker: String) -> usize {
        let mut log = self.log();
        let poison = log.poisons.iter_mut().find(|poison| poison.session_id == session_id);
        poison.map_or(0, |poison| {
            poison.killed.push(worker);
            poison.killed.len()
        })
    }

    async fn poison(self, client: Client, until: Instant) {
        while Instant::now() < until {
            let number = self.shared.sessions.fetch_add(1, Ordering::Relaxed);
            let Some(session_id) = client.create_session(&format!("poison-{number}"), &[]).await else {
                return;
            };
            let poison = Poison { session_id: session_id.clone(), killed: vec![] };
            self.log().poisons.push(poison);
            let plan = SessionPlan { id: session_id, number, asks: false, roaming: Roaming::No };
            let session = Session::start(&self, &client, plan);
            let script = script::poison(&mut session.canaries());
            let Some(message_id) = session.send(script, 0).await else { return };
            session.wait("the end of a poison", session.subscriber.over_after(&message_id)).await;
        }
    }

    async fn drive(self, client: Client, stranger: Client, lane: usize) {
        let mut rng = StdRng::seed_from_u64(
            self.shared.seed ^ (client.tenant as u64 + 1).wrapping_mul(0x9e37_79b9) ^ ((lane as u64) << 40),
        );
        while !self.shared.stop.is_cancelled() {
            let number = self.shared.sessions.fetch_add(1, Ordering::Relaxed);
            let key = format!("session-{number}");
            let asks = rng.random_bool(ASKS);
            let rules: &[&str] = if asks { &["bash"] } else { &[] };
            let Some(session_id) = client.create_session(&key, rules).await else { return };
            let roaming = if rng.random_bool(0.5) { Roaming::Yes } else { Roaming::No };
            let plan = SessionPlan { id: session_id, number, asks, roaming };
            let session = Session::start(&self, &client, plan);
            if rng.random_bool(SPIED) {
                stranger.spy(&session.id).await;
            }
            self.log().live.push(session.id.clone());
            session.run(&mut rng).await;
            self.log().live.retain(|live| *live != session.id);
        }
    }
}

/// Whether a session has a second subscriber, which changes the gateway every few seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Roaming {
    Yes,
    No,
}

/// The parameters of a session.
struct SessionPlan {
    id: String,
    number: usize,
    /// Whether a person must allow each command.
    asks: bool,
    roaming: Roaming,
}

/// A session that receives prompts.
struct Session {
    workload: Workload,
    client: Client,
    id: String,
    number: usize,
    /// Whether a person must allow each command.
    asks: bool,
    canaries: Mutex<Canaries>,
    sent: AtomicUsize,
    subscriber: Arc<Record>,
    /// The roaming subscriber.
    second: Option<Arc<Record>>,
    stop: CancellationToken,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Session {
    fn start(workload: &Workload, client: &Client, plan: SessionPlan) -> Self {
        let SessionPlan { id, number, asks, roaming } = plan;
        let stop = CancellationToken::new();
        let subscribe = |stay| {
            let record = Record::new(client.tenant, &id);
            tokio::spawn(subscriber::follow(client.clone(), Arc::clone(&record), stay, stop.clone()));
            workload.log().subscribers.push(Arc::clone(&record));
            record
        };
        let subscriber = subscribe(None);
        let second = (roaming == Roaming::Yes).then(|| subscribe(Some(STAY)));
        Self {
            workload: workload.clone(),
            client: client.clone(),
            canaries: Mutex::new(Canaries::new(client.tenant, number)),
            id,
            number,
            asks,
            sent: AtomicUsize::new(0),
            subscriber,
            second,
            stop,
        }
    }

    async fn run(&self, rng: &mut StdRng) {
        let first = script::first(&mut self.canaries());
        let Some(mut newest) = self.send(first, 0).await else { return };
        while self.sent.load(Ordering::Relaxed) < PROMPTS_PER_SESSION
            && !self.workload.shared.stop.is_cancelled()
        {
            let manner = *MANNERS.choose(rng).unwrap_or(&Manner::Once);
            if manner == Manner::AtTheEnd {
                self.wait("the end of a step", self.subscriber.last_step_after(&newest)).await;
                tokio::time::sleep(Duration::from_micros(rng.random_range(0..4_000))).await;
            } else {
                self.await_turn(&newest).await;
            }
            if self.workload.shared.stop.is_cancelled() {
                break;
            }
            match self.send_in(manner, rng).await {
                Some(message_id) => newest = message_id,
                None => return,
            }
        }
        self.await_turn(&newest).await;
        if let Some(second) = &self.second {
            self.wait("the end of a turn at the roaming subscriber", second.idle_after(&newest)).await;
        }
    }

    async fn send_in(&self, manner: Manner, rng: &mut StdRng) -> Option<String> {
        let gateway = rng.random_range(0..2);
        let one = match manner {
            Manner::WithAbort => script::long(rng, &mut self.canaries()),
            Manner::Once | Manner::Burst | Manner::Twice | Manner::AtTheEnd | Manner::Hasty => {
                script::any(rng, &mut self.canaries())
            }
        };
        match manner {
            Manner::Once | Manner::AtTheEnd => self.send(one, gateway).await,
            Manner::Burst => {
                let mut newest = self.send(one, gateway).await;
                for _ in 0..rng.random_range(1..=3) {
                    let next = script::any(rng, &mut self.canaries());
                    newest = self.send(next, gateway).await;
                }
                newest
            }
            Manner::Twice => {
                let at = self.record(&one);
                let (key, id) = (self.key(at), &self.id);
                let (first, second) = tokio::join!(
                    self.client.prompt(id, &key, &one.text, 0),
                    self.client.prompt(id, &key, &one.text, 1),
                );
                [&first, &second].into_iter().flatten().for_each(|answer| self.record_answer(at, answer));
                first
            }
            Manner::Hasty => {
                let at = self.record(&one);
                let within = Duration::from_micros(rng.random_range(500..20_000));
                self.client.prompt_and_leave(&self.id, &self.key(at), &one.text, within).await;
                self.resend(at, &one, gateway).await
            }
            Manner::WithAbort => {
                let newest = self.send(one, gateway).await?;
                tokio::time::sleep(Duration::from_millis(rng.random_range(0..3_000))).await;
                let sent_us = now_us();
                if let Some(was_active) = self.client.abort(&self.id).await {
                    let abort =
                        Abort { session_id: self.id.clone(), sent_us, accepted_us: now_us(), was_active };
                    self.workload.log().aborts.push(abort);
                }
                Some(newest)
            }
        }
    }

    fn canaries(&self) -> MutexGuard<'_, Canaries> {
        self.canaries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, at: usize) -> String {
        self.workload.log().prompts[at].key.clone()
    }

    async fn send(&self, script: Script, gateway: usize) -> Option<String> {
        let at = self.record(&script);
        self.resend(at, &script, gateway).await
    }

    async fn resend(&self, at: usize, script: &Script, gateway: usize) -> Option<String> {
        let message_id = self.client.prompt(&self.id, &self.key(at), &script.text, gateway).await?;
        self.record_answer(at, &message_id);
        Some(message_id)
    }

    /// Records that a prompt is about to be sent, and returns its position in the record.
    fn record(&self, script: &Script) -> usize {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        let mut log = self.workload.log();
        log.prompts.push(Prompt {
            tenant: self.client.tenant,
            session_id: self.id.clone(),
            key: format!("prompt-{}-{number}", self.number),
            canary: script.canary.clone(),
            calls: script.calls.clone(),
            subtasks: script.subtasks.clone(),
            asks: self.asks,
            ..Prompt::default()
        });
        log.prompts.len() - 1
    }

    fn record_answer(&self, at: usize, message_id: &str) {
        let mut log = self.workload.log();
        let prompt = &mut log.prompts[at];
        prompt.answers.push(message_id.to_owned());
        prompt.accepted_us.get_or_insert_with(now_us);
    }

    async fn await_turn(&self, message_id: &str) {
        self.wait("the end of a turn", self.subscriber.idle_after(message_id)).await;
        self.workload.log().turns += 1;
    }

    async fn wait(&self, what: &str, event: impl Future<Output = ()>) {
        if tokio::time::timeout(TURN, event).await.is_err() {
            self.client.record_surprise(&self.id, format!("waited {} s for {what}", TURN.as_secs()));
        }
    }
}
