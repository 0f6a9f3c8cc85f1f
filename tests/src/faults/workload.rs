//! The workload: tenants whose sessions get one prompt after the other, in every way that clients use. The seed decides
//! the prompts; their timing depends on the system.

use super::{
    canary::Canaries,
    client::Client,
    history::{Abort, History, Poison, Prompt, now_us},
    script::{self, Script},
    subscriber::{self, Shared},
};
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

/// Prompts of one session before a new one is begun: conversations must stay small, and beginnings are interesting.
const PROMPTS_PER_SESSION: usize = 10;
/// How long a client waits for the end of its turn. Only a system that lost the turn takes longer.
const TURN: Duration = Duration::from_secs(150);
/// How many sessions ask a person before each command.
const ASKS: f64 = 0.15;
/// How many sessions another tenant tries to follow.
const SPIED: f64 = 0.1;
/// The tenant that has a poison: a light one, so that its innocent sessions are few.
const POISONED: usize = 1;
/// How long a poison lives, and a little more: six workers end one after the other, and each is missed after its lease.
pub const POISON_LIVES: Duration = Duration::from_secs(60);
/// How long a subscriber that roams stays at one gateway.
const STAY: Duration = Duration::from_secs(3);

/// How a prompt is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Once, then its end is awaited.
    Once,
    /// Several in a row.
    Burst,
    /// Twice at the same moment with the same key, at both gateways.
    Twice,
    /// At the moment at which the turn before ends.
    AtTheEnd,
    /// By a client that leaves before the answer, and sends it again.
    Hasty,
    /// And stopped while it runs.
    Stopped,
}

/// Each as often as it stands here.
const MANNERS: [Manner; 9] = [
    Manner::Once,
    Manner::Once,
    Manner::Once,
    Manner::Burst,
    Manner::Twice,
    Manner::AtTheEnd,
    Manner::AtTheEnd,
    Manner::Hasty,
    Manner::Stopped,
];

/// Everything that clients do and see. Clones share it.
#[derive(Clone)]
pub struct Workload {
    shared: Arc<All>,
}

struct All {
    seed: u64,
    /// No further prompt is begun.
    enough: CancellationToken,
    sessions: AtomicUsize,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    prompts: Vec<Prompt>,
    aborts: Vec<Abort>,
    subscribers: Vec<Arc<Shared>>,
    poisons: Vec<Poison>,
    live: Vec<(usize, String)>,
    turns: usize,
}

impl Workload {
    /// A workload that has not begun.
    pub fn new(seed: u64) -> Self {
        let all = All {
            seed,
            enough: CancellationToken::new(),
            sessions: AtomicUsize::new(0),
            seen: Mutex::default(),
        };
        Self { shared: Arc::new(all) }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins: `lanes` sessions at a time for each client, and one poison after the other until `poison_until`.
    pub fn begin(&self, clients: &[(Client, usize)], poison_until: Instant) -> JoinSet<()> {
        let mut drivers = JoinSet::new();
        for (at, (client, lanes)) in clients.iter().enumerate() {
            let (stranger, _) = &clients[(at + 1) % clients.len()];
            for lane in 0..*lanes {
                drivers.spawn(self.clone().drive(client.clone(), stranger.clone(), lane));
            }
            if client.tenant == POISONED {
                drivers.spawn(self.clone().poison(client.clone(), poison_until));
            }
        }
        drivers
    }

    /// Says that no further prompt is wanted. Drivers end when the prompts that they sent are answered.
    pub fn enough(&self) {
        self.shared.enough.cancel();
    }

    /// A session that gets prompts just now, with its tenant's number.
    pub fn live_session(&self, rng: &mut StdRng) -> Option<(usize, String)> {
        self.seen().live.choose(rng).cloned()
    }

    /// Sessions begun and turns ended so far.
    pub fn counts(&self) -> (usize, usize) {
        (self.shared.sessions.load(Ordering::Relaxed), self.seen().turns)
    }

    /// Puts what clients sent, stopped and saw into a history.
    pub fn tell(&self, history: &mut History) {
        let seen = self.seen();
        history.transcripts = seen.subscribers.iter().map(|subscriber| subscriber.transcript()).collect();
        (history.prompts, history.aborts) = (seen.prompts.clone(), seen.aborts.clone());
        history.poisons.clone_from(&seen.poisons);
    }

    /// The sessions whose calls end their workers.
    pub fn poisons(&self) -> Vec<String> {
        self.seen().poisons.iter().map(|poison| poison.session_id.clone()).collect()
    }

    /// Notes that a poison ended a worker; gives how many it ended so far.
    pub fn has_ended(&self, session_id: &str, worker: String) -> usize {
        let mut seen = self.seen();
        let poison = seen.poisons.iter_mut().find(|poison| poison.session_id == session_id);
        poison.map_or(0, |poison| {
            poison.ended.push(worker);
            poison.ended.len()
        })
    }

    async fn poison(self, client: Client, until: Instant) {
        while Instant::now() < until {
            let number = self.shared.sessions.fetch_add(1, Ordering::Relaxed);
            let Some(session_id) = client.create_session(&format!("poison-{number}"), &[]).await else {
                return;
            };
            let poison = Poison { session_id: session_id.clone(), ended: vec![] };
            self.seen().poisons.push(poison);
            let session = Session::begin(&self, &client, session_id, (number, false), Roams::No);
            let script = script::poison(&mut session.canaries());
            let Some(message_id) = session.send(script, 0).await else { return };
            session.wait("the end of a poison", session.subscriber.over_after(&message_id)).await;
        }
    }

    async fn drive(self, client: Client, stranger: Client, lane: usize) {
        let mut rng = StdRng::seed_from_u64(
            self.shared.seed ^ (client.tenant as u64 + 1).wrapping_mul(0x9e37_79b9) ^ ((lane as u64) << 40),
        );
        while !self.shared.enough.is_cancelled() {
            let number = self.shared.sessions.fetch_add(1, Ordering::Relaxed);
            let key = format!("session-{number}");
            let asks = rng.random_bool(ASKS);
            let rules: &[&str] = if asks { &["bash"] } else { &[] };
            let Some(session_id) = client.create_session(&key, rules).await else { return };
            let roams = if rng.random_bool(0.5) { Roams::Yes } else { Roams::No };
            let session = Session::begin(&self, &client, session_id, (number, asks), roams);
            if rng.random_bool(SPIED) {
                stranger.spy(&session.id).await;
            }
            self.seen().live.push((client.tenant, session.id.clone()));
            session.run(&mut rng).await;
            self.seen().live.retain(|(_, live)| *live != session.id);
        }
    }
}

/// Whether a second subscriber goes from gateway to gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Roams {
    Yes,
    No,
}

/// A session while it gets prompts.
struct Session {
    workload: Workload,
    client: Client,
    id: String,
    number: usize,
    /// Whether a person must allow each command.
    asks: bool,
    canaries: Mutex<Canaries>,
    sent: AtomicUsize,
    subscriber: Arc<Shared>,
    /// One that goes from gateway to gateway.
    second: Option<Arc<Shared>>,
    stop: CancellationToken,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Session {
    fn begin(
        workload: &Workload,
        client: &Client,
        id: String,
        (number, asks): (usize, bool),
        roams: Roams,
    ) -> Self {
        let stop = CancellationToken::new();
        let subscribe = |stay| {
            let shared = Shared::new(client.tenant, &id);
            tokio::spawn(subscriber::follow(client.clone(), Arc::clone(&shared), stay, stop.clone()));
            workload.seen().subscribers.push(Arc::clone(&shared));
            shared
        };
        let subscriber = subscribe(None);
        let second = (roams == Roams::Yes).then(|| subscribe(Some(STAY)));
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
            && !self.workload.shared.enough.is_cancelled()
        {
            let manner = *MANNERS.choose(rng).unwrap_or(&Manner::Once);
            if manner == Manner::AtTheEnd {
                self.wait("the end of a step", self.subscriber.closing_after(&newest)).await;
                tokio::time::sleep(Duration::from_micros(rng.random_range(0..4_000))).await;
            } else {
                self.ended(&newest).await;
            }
            if self.workload.shared.enough.is_cancelled() {
                break;
            }
            match self.send_in(manner, rng).await {
                Some(message_id) => newest = message_id,
                None => return,
            }
        }
        self.ended(&newest).await;
        if let Some(second) = &self.second {
            self.wait("the end of a turn, as a subscriber that roams", second.idle_after(&newest)).await;
        }
    }

    async fn send_in(&self, manner: Manner, rng: &mut StdRng) -> Option<String> {
        let gateway = rng.random_range(0..2);
        let one = match manner {
            Manner::Stopped => script::long(rng, &mut self.canaries()),
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
                let at = self.note(&one);
                let (key, id) = (self.key(at), &self.id);
                let (first, second) = tokio::join!(
                    self.client.prompt(id, &key, &one.text, 0),
                    self.client.prompt(id, &key, &one.text, 1),
                );
                [&first, &second].into_iter().flatten().for_each(|answer| self.accepted(at, answer));
                first
            }
            Manner::Hasty => {
                let at = self.note(&one);
                let within = Duration::from_micros(rng.random_range(500..20_000));
                self.client.prompt_and_leave(&self.id, &self.key(at), &one.text, within).await;
                self.resend(at, &one, gateway).await
            }
            Manner::Stopped => {
                let newest = self.send(one, gateway).await?;
                tokio::time::sleep(Duration::from_millis(rng.random_range(0..3_000))).await;
                let sent_us = now_us();
                if let Some(was_active) = self.client.abort(&self.id).await {
                    let abort =
                        Abort { session_id: self.id.clone(), sent_us, accepted_us: now_us(), was_active };
                    self.workload.seen().aborts.push(abort);
                }
                Some(newest)
            }
        }
    }

    fn canaries(&self) -> MutexGuard<'_, Canaries> {
        self.canaries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, at: usize) -> String {
        self.workload.seen().prompts[at].key.clone()
    }

    async fn send(&self, script: Script, gateway: usize) -> Option<String> {
        let at = self.note(&script);
        self.resend(at, &script, gateway).await
    }

    async fn resend(&self, at: usize, script: &Script, gateway: usize) -> Option<String> {
        let message_id = self.client.prompt(&self.id, &self.key(at), &script.text, gateway).await?;
        self.accepted(at, &message_id);
        Some(message_id)
    }

    /// Writes down that a prompt is about to be sent, and gives its place.
    fn note(&self, script: &Script) -> usize {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        let mut seen = self.workload.seen();
        seen.prompts.push(Prompt {
            tenant: self.client.tenant,
            session_id: self.id.clone(),
            key: format!("prompt-{}-{number}", self.number),
            canary: script.canary.clone(),
            calls: script.calls.clone(),
            subtasks: script.subtasks.clone(),
            asks: self.asks,
            ..Prompt::default()
        });
        seen.prompts.len() - 1
    }

    fn accepted(&self, at: usize, message_id: &str) {
        let mut seen = self.workload.seen();
        let prompt = &mut seen.prompts[at];
        prompt.answers.push(message_id.to_owned());
        prompt.accepted_us.get_or_insert_with(now_us);
    }

    async fn ended(&self, message_id: &str) {
        self.wait("the end of a turn", self.subscriber.idle_after(message_id)).await;
        self.workload.seen().turns += 1;
    }

    async fn wait(&self, what: &str, event: impl Future<Output = ()>) {
        if tokio::time::timeout(TURN, event).await.is_err() {
            self.client.surprised(&self.id, format!("waited {} s in vain for {what}", TURN.as_secs()));
        }
    }
}
