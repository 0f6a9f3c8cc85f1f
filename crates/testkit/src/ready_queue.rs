//! The ready queue of `bus` as a plain value. It models the Redis scripts without Redis, clock and network. The tests
//! of `bus` run both side by side, and a simulation may use it in place of Redis. Every step is one call, and time is
//! an argument.
//!
//! Its answers equal those of the scripts exactly. It computes virtual times in the same order and breaks ties by
//! number, so tests must give tenants, sessions and workers names that sort like their numbers.

use domain::{limits, session::Class};
use std::collections::{BTreeMap, BTreeSet};

pub type Tenant = u32;
pub type Session = u32;
pub type Worker = u32;

const CLASSES: usize = Class::ALL.len();
const QUANTUM_MS: f64 = limits::QUEUE_QUANTUM_MS as f64;
const DEBT_MAX_MS: f64 = limits::QUEUE_DEBT_MAX_MS as f64;
/// Sorts interrupted sessions before all new ones.
const FRONT: i64 = 10_000_000_000_000;

/// A session, with the data that the queue needs to be fair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueEntry {
    pub tenant: Tenant,
    /// Its number; a session never changes its tenant.
    pub session: Session,
    /// Its class; the newest value counts.
    pub class: Class,
    /// The tenant's share; `None` keeps the earlier one.
    pub share: Option<TenantShare>,
}

/// A tenant's share of the slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantShare {
    /// Limit of running loops.
    pub running_max: u32,
    /// Weight of the tenant.
    pub weight: u32,
}

/// The result of queueing a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnqueueResult {
    /// The session waits for a claim.
    Queued,
    /// A living worker holds the session; its release queues it again.
    Held,
    /// The queue was emptied and is not complete.
    Empty,
}

/// Whether an entry is part of a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Normal,
    /// An entry of the rebuild.
    Rebuild,
}

/// Where a released session goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseTo {
    /// Out of the queue, unless an input arrived meanwhile.
    Rest,
    /// Before all new sessions of its tenant and class.
    Front,
}

/// Whether the calling worker has a free slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slots {
    Free,
    /// No slot is free.
    Full,
}

/// Whether a session continues at a step boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Yield {
    Keep,
    /// It yields to another tenant that has used less.
    ToTenant,
    /// It yields to another class of the tenant that has used less of its share.
    ToClass,
}

/// The state of a tenant, and its share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlook {
    pub running: u64,
    /// Limit of running loops, and weight.
    pub share: TenantShare,
    /// Waiting sessions, by class.
    pub ready: [u64; CLASSES],
    /// Smoothed time between two claims while the tenant had waiting work; milliseconds.
    pub interval_ms: Option<u64>,
}

/// The holder of a session.
#[derive(Debug, Clone, PartialEq)]
struct Lease {
    worker: Worker,
    tenant: Tenant,
    class: usize,
    dirty: bool,
    /// The slot time is charged up to this time.
    paid_ms: u64,
}

/// The queue's data about a tenant.
#[derive(Debug, Clone, PartialEq, Default)]
struct Account {
    share: Option<TenantShare>,
    /// Ready sessions by class: interrupted ones first, then by time, then by number.
    ready: [BTreeSet<(i64, Session)>; CLASSES],
    running: BTreeSet<Session>,
    /// Whether the tenant may claim: it has ready work and is below its limit.
    active: bool,
    idle_since_ms: Option<u64>,
    virtual_ms: f64,
    /// Virtual times of the classes, and of the last claim.
    clocks: [f64; CLASSES],
    served_ms: f64,
    waits_since_ms: Option<u64>,
    interval_ms: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReadyQueue {
    complete: bool,
    /// The virtual time of the last claim.
    served_ms: f64,
    accounts: BTreeMap<Tenant, Account>,
    leases: BTreeMap<Session, Lease>,
    /// Known workers, and the end of their leases.
    workers: BTreeMap<Worker, u64>,
}

impl ReadyQueue {
    /// Loses all data, as Redis may at any moment.
    pub fn flush(&mut self) {
        *self = Self::default();
    }

    /// Marks the queue as complete after a rebuild.
    pub fn complete_rebuild(&mut self) {
        self.complete = true;
    }

    /// Queues a session; idempotent.
    pub fn enqueue(&mut self, entry: QueueEntry, mode: Mode, now_ms: u64) -> EnqueueResult {
        if mode == Mode::Normal && !self.complete {
            return EnqueueResult::Empty;
        }
        self.set_share(entry, now_ms);
        let class = place(entry.class);
        if let Some(lease) = self.leases.get_mut(&entry.session) {
            if self.workers.get(&lease.worker).is_some_and(|until_ms| now_ms <= *until_ms) {
                (lease.dirty, lease.class) = (true, class);
                self.settle(entry.tenant, now_ms);
                return EnqueueResult::Held;
            }
            self.free(entry.session);
        }
        let account = self.accounts.entry(entry.tenant).or_default();
        account.make_ready(class, score(now_ms), entry.session, now_ms);
        let others: Vec<_> = (0..CLASSES).filter(|other| *other != class).collect();
        if let Some(old) = account.take_out(entry.session, &others) {
            account.take_out(entry.session, &[class]);
            account.ready[class].insert((old, entry.session));
        }
        self.settle(entry.tenant, now_ms);
        EnqueueResult::Queued
    }

    /// Claims up to `count` sessions; `None` while the queue is incomplete.
    pub fn claim(&mut self, worker: Worker, count: usize, now_ms: u64) -> Option<Vec<(Tenant, Session)>> {
        if !self.complete {
            return None;
        }
        let mut claimed = vec![];
        while claimed.len() < count {
            let Some(tenant) = self.first(|_| true) else { break };
            let account = self.accounts.get_mut(&tenant)?;
            let class = (0..CLASSES)
                .filter(|class| !account.ready[*class].is_empty())
                .min_by(|a, b| account.clocks[*a].total_cmp(&account.clocks[*b]))?;
            let (_, session) = account.ready[class].pop_first()?;
            self.served_ms = self.served_ms.max(account.virtual_ms);
            account.served_ms = account.served_ms.max(account.clocks[class]);
            account.note_interval(now_ms);
            account.charge(class, limits::QUEUE_QUANTUM_MS);
            let paid_ms = now_ms + limits::QUEUE_QUANTUM_MS;
            self.hold(session, Lease { worker, tenant, class, dirty: false, paid_ms });
            self.settle(tenant, now_ms);
            claimed.push((tenant, session));
        }
        Some(claimed)
    }

    /// Renews a worker's lease for `ttl_ms` and charges its slot time. Returns whether the queue is complete.
    pub fn renew(&mut self, worker: Worker, ttl_ms: u64, now_ms: u64) -> bool {
        self.workers.insert(worker, now_ms.saturating_add(ttl_ms));
        let mut used: BTreeMap<Tenant, [Option<u64>; CLASSES]> = BTreeMap::new();
        for lease in self.leases.values_mut().filter(|lease| lease.worker == worker) {
            if now_ms > lease.paid_ms || lease.paid_ms > now_ms + limits::QUEUE_QUANTUM_MS {
                let sum = used.entry(lease.tenant).or_default()[lease.class].get_or_insert(0);
                *sum += now_ms.saturating_sub(lease.paid_ms).min(limits::LEASE_TTL_MS);
                lease.paid_ms = now_ms;
            }
        }
        for (tenant, used) in used {
            self.accounts.entry(tenant).or_default().charge_all(used);
        }
        self.complete
    }

    /// Releases a session, if the worker holds it. Returns whether an input arrived meanwhile.
    pub fn release(&mut self, session: Session, worker: Worker, to: ReleaseTo, now_ms: u64) -> bool {
        if self.leases.get(&session).is_none_or(|lease| lease.worker != worker) {
            return false;
        }
        let Some(lease) = self.free(session) else { return false };
        let front = if to == ReleaseTo::Front { FRONT } else { 0 };
        if lease.dirty || to == ReleaseTo::Front {
            let account = self.accounts.entry(lease.tenant).or_default();
            account.make_ready(lease.class, score(now_ms) - front, session, now_ms);
        }
        self.settle(lease.tenant, now_ms);
        lease.dirty
    }

    /// Queues the sessions of dead workers before all new ones. Returns their number.
    pub fn reap(&mut self, now_ms: u64) -> u64 {
        let dead: Vec<_> =
            self.workers.iter().filter(|(_, until)| now_ms > **until).map(|(worker, _)| *worker).collect();
        let mut count = 0;
        for worker in dead {
            // The scripts name sessions by their tenants first.
            let mut held: Vec<_> = self.held(worker);
            held.sort_by_key(|session| (self.leases.get(session).map(|lease| lease.tenant), *session));
            for session in held {
                let Some(lease) = self.free(session) else { continue };
                let account = self.accounts.entry(lease.tenant).or_default();
                account.make_ready(lease.class, score(now_ms) - FRONT, session, now_ms);
                self.settle(lease.tenant, now_ms);
                count += 1;
            }
            self.workers.remove(&worker);
        }
        count
    }

    /// Records during a rebuild that a worker holds a session.
    pub fn adopt(&mut self, entry: QueueEntry, worker: Worker, now_ms: u64) {
        self.set_share(entry, now_ms);
        if !self.leases.contains_key(&entry.session) {
            let account = self.accounts.entry(entry.tenant).or_default();
            let dirty = account.take_out(entry.session, &[0, 1, 2]).is_some();
            let class = place(entry.class);
            self.hold(entry.session, Lease { worker, tenant: entry.tenant, class, dirty, paid_ms: now_ms });
        }
        self.settle(entry.tenant, now_ms);
    }

    /// Returns whether a held session should give up its slot at a step boundary.
    pub fn should_yield(&self, session: Session, worker: Worker, slots: Slots) -> Yield {
        let Some(lease) = self.leases.get(&session).filter(|lease| lease.worker == worker) else {
            return Yield::Keep;
        };
        let Some(own) = self.accounts.get(&lease.tenant) else { return Yield::Keep };
        let other = self.first(|tenant| tenant != lease.tenant).and_then(|tenant| self.accounts.get(&tenant));
        let is_better = |other: &Account| other.virtual_ms + other.quantum_ms() <= own.virtual_ms;
        if slots == Slots::Full && other.is_some_and(is_better) {
            return Yield::ToTenant;
        }
        let class_is_better = |other: usize| {
            !own.ready[other].is_empty()
                && own.clocks[other] + class_quantum_ms(other) <= own.clocks[lease.class]
        };
        if (slots == Slots::Full || own.is_full()) && (0..CLASSES).any(class_is_better) {
            return Yield::ToClass;
        }
        Yield::Keep
    }

    /// Returns a tenant's state and share.
    pub fn outlook(&self, tenant: Tenant) -> Outlook {
        let account = self.accounts.get(&tenant).cloned().unwrap_or_default();
        Outlook {
            running: account.running.len() as u64,
            share: account.share(),
            ready: [0, 1, 2].map(|class| account.ready[class].len() as u64),
            interval_ms: account.interval_ms.map(|interval| interval as u64),
        }
    }

    /// Ends a worker's lease early.
    pub fn kill(&mut self, worker: Worker) {
        if let Some(until_ms) = self.workers.get_mut(&worker) {
            *until_ms = 0;
        }
    }

    /// Forgets the tenants that were idle for long enough. Every other step does so for its own tenant.
    pub fn forget_idle(&mut self, now_ms: u64) {
        self.accounts.retain(|_, account| {
            account.idle_since_ms.is_none_or(|since_ms| now_ms <= since_ms + limits::QUEUE_TENANT_IDLE_MS)
        });
    }

    /// Returns the sessions that a worker holds.
    pub fn held(&self, worker: Worker) -> Vec<Session> {
        let of_worker = self.leases.iter().filter(|(_, lease)| lease.worker == worker);
        of_worker.map(|(session, _)| *session).collect()
    }

    /// Returns the worker that holds a session, dead or alive.
    pub fn holder(&self, session: Session) -> Option<Worker> {
        self.leases.get(&session).map(|lease| lease.worker)
    }

    /// The time up to which a held session is charged. A test changes it to let time pass.
    pub fn paid_ms(&mut self, session: Session) -> Option<&mut u64> {
        self.leases.get_mut(&session).map(|lease| &mut lease.paid_ms)
    }

    fn set_share(&mut self, entry: QueueEntry, now_ms: u64) {
        self.forget_idle(now_ms);
        if let Some(share) = entry.share {
            let share = TenantShare { weight: share.weight.max(1), ..share };
            self.accounts.entry(entry.tenant).or_default().share = Some(share);
        }
    }

    /// Returns the active tenant with the least virtual time among those for which `is_candidate` holds.
    fn first(&self, is_candidate: impl Fn(Tenant) -> bool) -> Option<Tenant> {
        let active =
            self.accounts.iter().filter(|(tenant, account)| account.active && is_candidate(**tenant));
        active.min_by(|a, b| a.1.virtual_ms.total_cmp(&b.1.virtual_ms)).map(|(tenant, _)| *tenant)
    }

    fn hold(&mut self, session: Session, lease: Lease) {
        self.workers.entry(lease.worker).or_insert(0);
        self.accounts.entry(lease.tenant).or_default().running.insert(session);
        self.leases.insert(session, lease);
    }

    fn free(&mut self, session: Session) -> Option<Lease> {
        let lease = self.leases.remove(&session)?;
        self.accounts.entry(lease.tenant).or_default().running.remove(&session);
        Some(lease)
    }

    /// Activates or deactivates a tenant, depending on its work and limit.
    fn settle(&mut self, tenant: Tenant, now_ms: u64) {
        let least = self.first(|_| true).and_then(|first| self.accounts.get(&first)).map(|a| a.virtual_ms);
        let served_ms = self.served_ms;
        let account = self.accounts.entry(tenant).or_default();
        let has_ready = account.ready.iter().any(|ready| !ready.is_empty());
        let is_idle = !has_ready && account.running.is_empty();
        account.idle_since_ms = is_idle.then_some(now_ms);
        if !has_ready || account.is_full() {
            account.active = false;
        } else if !account.active {
            account.virtual_ms = enter(account.virtual_ms, served_ms, least);
            account.active = true;
        }
    }
}

impl Account {
    fn share(&self) -> TenantShare {
        self.share.unwrap_or(TenantShare {
            running_max: limits::TENANT_RUNNING_MAX,
            weight: limits::TENANT_WEIGHT_DEFAULT,
        })
    }

    fn is_full(&self) -> bool {
        self.running.len() >= self.share().running_max as usize
    }

    fn quantum_ms(&self) -> f64 {
        QUANTUM_MS / f64::from(self.share().weight)
    }

    fn charge(&mut self, class: usize, used_ms: u64) {
        let mut used = [None; CLASSES];
        used[class] = Some(used_ms);
        self.charge_all(used);
    }

    fn charge_all(&mut self, used: [Option<u64>; CLASSES]) {
        for (class, used_ms) in used.iter().enumerate() {
            self.clocks[class] += used_ms.unwrap_or(0) as f64 / f64::from(Class::ALL[class].weight());
        }
        self.virtual_ms += used.iter().flatten().sum::<u64>() as f64 / f64::from(self.share().weight);
    }

    fn make_ready(&mut self, class: usize, score: i64, session: Session, now_ms: u64) {
        if self.ready[class].is_empty() {
            let others = (0..CLASSES).filter(|other| !self.ready[*other].is_empty());
            let least = others.map(|other| self.clocks[other]).reduce(f64::min);
            if least.is_none() {
                self.waits_since_ms = Some(now_ms);
            }
            self.clocks[class] = enter(self.clocks[class], self.served_ms, least);
        }
        if !self.ready[class].iter().any(|(_, other)| *other == session) {
            self.ready[class].insert((score, session));
        }
    }

    /// Removes a session from `classes`, and returns its score there.
    fn take_out(&mut self, session: Session, classes: &[usize]) -> Option<i64> {
        let mut found = None;
        for class in classes {
            let place = self.ready[*class].iter().find(|(_, other)| *other == session).copied();
            if let Some(place) = place {
                self.ready[*class].remove(&place);
                found = Some(place.0);
            }
        }
        found
    }

    fn note_interval(&mut self, now_ms: u64) {
        let newest = now_ms.saturating_sub(self.waits_since_ms.unwrap_or(now_ms)) as f64;
        let old = self.interval_ms.unwrap_or(newest);
        self.interval_ms = Some(old + (newest - old) / f64::from(limits::QUEUE_INTERVAL_SMOOTHING));
        self.waits_since_ms = Some(now_ms);
    }
}

/// The virtual time of a tenant or class that has work again: not before the last claim, and close to the waiting ones.
fn enter(own: f64, served: f64, least: Option<f64>) -> f64 {
    let floor = served.max(least.map_or(0.0, |least| least - DEBT_MAX_MS));
    own.max(floor).min(floor + DEBT_MAX_MS)
}

fn class_quantum_ms(class: usize) -> f64 {
    QUANTUM_MS / f64::from(Class::ALL[class].weight())
}

fn place(class: Class) -> usize {
    Class::ALL.iter().position(|other| *other == class).unwrap_or(0)
}

fn score(now_ms: u64) -> i64 {
    i64::try_from(now_ms).unwrap_or(i64::MAX)
}
