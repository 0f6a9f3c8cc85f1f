//! Compares the simulated Postgres with the real store. Both run the same random transactions of current and outdated owners,
//! new and repeated. After each transaction the answer and every control row must be the same.

#[path = "store/compare.rs"]
mod compare;

use domain::{
    event::{Event, Status},
    ids::{EventId, MessageId, PartId, SessionId, TenantId, Timestamp},
    limits,
    policy::permission,
    session::{Class, ExplicitChoices, Outcome, Source},
    wait::{Reason, Wait},
};
use e2e::sim::{
    postgres::{
        Attempts, Fence, Input, Park, Postgres, Run, TakeLimits, TakeResult, Turn, Write, WriteResult,
    },
    rules::Rules,
    walk::Dice,
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use store::{
    Store,
    control::workers::Heartbeat,
    error::Error,
    log::{
        change::{Change, ChangeBody},
        record::{self, Progress},
    },
    rows::session_row::ParentCall,
    session::{
        creation::NewSession,
        inputs::{Prompt, VariantChoice},
        park::{self, ParkOutcome},
        quarantine::QuarantineRule,
        runs::SuspectPolicy,
        tree::{
            answers::ChildAnswer,
            children::{Dispatch, DispatchOutcome, NewChild},
        },
    },
};
use testkit::{
    database::Database,
    sample::{self, NOW, Sample},
};
use uuid::Uuid;

/// Number of sessions that exist from the start; the others are children of the first one.
const ROOTS: usize = 2;
const SESSIONS: usize = 4;
const WORKERS: usize = 3;
const RUNS: u64 = 12;
const CALLS: usize = 150;
const ATTEMPTS: Attempts =
    Attempts { suspect: limits::ATTEMPTS_SUSPECT as u8, most: limits::ATTEMPTS_MAX as u8 };
/// The expiry of timers, in the year 2100: each test expires them itself.
const LATE: Timestamp = Timestamp(4_102_444_800_000);

/// A loop that took a session; it may or may not still be the owner.
struct Holder {
    fence: Fence,
    newest: Option<NewestWrite>,
}

/// A write of a holder, for both databases.
#[derive(Clone)]
struct NewestWrite {
    change: Change,
    write: Write,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Append,
    Park(Park),
    Dispatch(usize),
}

struct Pair {
    store: Store,
    sql: PgConnection,
    model: Postgres,
    sample: Sample,
    tenant: TenantId,
    sessions: Vec<SessionId>,
    workers: Vec<Uuid>,
    /// For each session, the call of the first session that it answers.
    calls: Vec<(MessageId, PartId)>,
    holders: Vec<Holder>,
    /// Number of refused inputs of quarantined sessions.
    refused: usize,
}

/// The result of a write, which must be the same in both databases.
#[derive(Debug, PartialEq, Eq)]
enum WriteOutcome {
    Stored,
    NewInput,
    Fenced,
}

fn outcome(written: WriteResult) -> WriteOutcome {
    match written {
        WriteResult::Now(_) | WriteResult::Before => WriteOutcome::Stored,
        WriteResult::NewInput => WriteOutcome::NewInput,
        WriteResult::Fenced => WriteOutcome::Fenced,
    }
}

impl Pair {
    async fn new(database: &Database, seed: u64) -> Self {
        let store = Store::connect(&database.app_url, &database.system_url, 4).unwrap();
        let sql = testkit::database::connect(&database.migrator_url).await;
        let mut sample = Sample::new(u8::try_from(seed).unwrap());
        let tenant = sample.tenant();
        store.create_tenant(tenant, &format!("tenant {seed}")).await.unwrap();
        let project_id = sample.project();
        store.create_project(tenant, &project_id, "sample", &Source::default()).await.unwrap();
        let mut sessions = vec![];
        for _ in 0..ROOTS {
            let new = NewSession {
                id: sample.session(),
                project_id: project_id.clone(),
                worktree_id: None,
                title: String::new(),
                agent: "build".to_owned(),
                model: sample::model(),
                variant: None,
                chosen: ExplicitChoices { agent: true, model: true },
                source: None,
                class: Class::Interactive,
                rules: permission::Rules::default(),
                budget: None,
                on_ask: Default::default(),
                tries_environment: false,
                key: None,
            };
            store.create_session(tenant, &new, &sample.event(), NOW).await.unwrap();
            sessions.push(new.id);
        }
        sessions.resize_with(SESSIONS, || sample.session());
        let mut model = Postgres { runs: vec![Run::default(); SESSIONS], leases: vec![false; WORKERS] };
        model.runs[..ROOTS].fill(Run { exists: true, event_seq: 1, ..Run::default() });
        let workers = (0..WORKERS).map(|_| Uuid::now_v7()).collect();
        let call = |_| (MessageId::make(&mut sample.ids, NOW), PartId::make(&mut sample.ids, NOW));
        let calls = (0..SESSIONS).map(call).collect();
        Self { store, sql, model, sample, tenant, sessions, workers, calls, holders: vec![], refused: 0 }
    }

    /// Makes a prompt with one event.
    fn prompt_of(&mut self, session: usize, key: u8) -> Prompt {
        Prompt {
            id: self.sample.message(),
            session_id: self.sessions[session].clone(),
            agent: None,
            model: None,
            variant: VariantChoice::default(),
            system: None,
            tools: None,
            format: None,
            parts: vec![],
            dedupe: format!("prompt {key}"),
            body_sha256: [key; 32],
            traceparent: None,
            event_ids: vec![self.sample.event()],
            reply: store::session::inputs::Reply::Expected,
            only_when_idle: false,
            with_queue_position: false,
        }
    }

    async fn prompt(&mut self, session: usize, key: u8) {
        let prompt = self.prompt_of(session, key);
        let real = self.store.accept_prompt(self.tenant, &prompt, NOW).await;
        let model = self.model.accept_prompt(&Rules::SOUND, session, key);
        self.compare_accepted(real.map(|accepted| accepted.runnable), model);
    }

    async fn abort(&mut self, session: usize, key: u8) {
        let dedupe = format!("abort {key}");
        let real = self.store.accept_abort(self.tenant, &self.sessions[session], &dedupe).await;
        let model = self.model.accept_abort(&Rules::SOUND, session, key);
        self.compare_accepted(real.map(|accepted| accepted.is_some()), model);
    }

    async fn take(&mut self, session: usize, worker: usize, suspects: SuspectPolicy) {
        let limits = TakeLimits { attempts: ATTEMPTS, has_suspect: suspects == SuspectPolicy::Skip };
        let take = self.model.take(&Rules::SOUND, session, worker, limits, None);
        let (id, owner) = (&self.sessions[session], self.workers[worker]);
        let real = match self.store.take_session(self.tenant, id, owner, suspects).await.unwrap() {
            store::session::runs::TakeResult::Taken(taken) => TakeResult::Yes {
                epoch: taken.take_over.fence.epoch,
                input_ack: taken.take_over.input_ack,
                attempts: u8::try_from(taken.take_over.attempts).unwrap(),
            },
            store::session::runs::TakeResult::Unavailable => TakeResult::No,
            store::session::runs::TakeResult::Suspect => TakeResult::Suspect,
            store::session::runs::TakeResult::Exhausted { .. } => TakeResult::Exhausted,
        };
        assert_eq!(real, take);
        if let TakeResult::Yes { epoch, .. } = take {
            self.holders.push(Holder { fence: Fence { session, epoch, write_seq: 0 }, newest: None });
        }
    }

    async fn quarantine(&mut self, session: usize, which: QuarantineRule) {
        let ids = [(); 3].map(|()| EventId::make(&mut self.sample.ids, NOW));
        let real = self.store.quarantine(
            self.tenant,
            &self.sessions[session],
            which,
            store::session::quarantine::Notice { reason: "test", event_ids: ids, at: NOW },
        );
        let model = match which {
            QuarantineRule::Exhausted => self.model.quarantine(&Rules::SOUND, session, ATTEMPTS),
            QuarantineRule::Any => self.model.take_out(&Rules::SOUND, session),
        };
        assert_eq!(real.await.unwrap().is_some(), model);
    }

    /// Expires the timer of one session only.
    async fn wake(&mut self, session: usize) {
        let sql = format!(
            "update session_run set wake_at = case when session_id = '{}' then now() else 'infinity' end
              where wake_at is not null",
            self.sessions[session]
        );
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.sql).await.unwrap();
        self.store.wake_due(limits::SWEEP_MAX).await.unwrap();
        self.model.wake(session);
    }

    /// Makes the next write of a holder: it takes all inputs, or parks with the inputs that it took.
    async fn write(&mut self, holder: usize, kind: Kind) {
        let change =
            Change { id: self.sample.event(), body: ChangeBody::Event(Event::SessionStatus(Status::Busy)) };
        let Fence { session, epoch, write_seq } = self.holders[holder].fence;
        let run = &self.model.runs[session];
        let (ack, progress) = match kind {
            Kind::Append => (run.input_seq, false),
            Kind::Park(_) => (run.input_ack, true),
            Kind::Dispatch(_) => (0, false),
        };
        let write = Write { events: 1, ack, progress, turn: Turn::default() };
        let fence = Fence { session, epoch, write_seq: write_seq + 1 };
        let newest = NewestWrite { change, write, kind };
        let outcome = self.store_both(fence, &newest).await;
        if outcome != WriteOutcome::NewInput {
            self.holders[holder] = Holder { fence, newest: Some(newest) };
        }
    }

    /// Makes the first session create a child that does not exist yet.
    async fn dispatch(&mut self, holder: usize) {
        let missing = (ROOTS..SESSIONS).find(|session| !self.model.runs[*session].exists);
        if let Some(child) = missing.filter(|_| self.holders[holder].fence.session == 0) {
            self.write(holder, Kind::Dispatch(child)).await;
        }
    }

    /// Repeats the newest write of a holder, as after a lost answer.
    async fn repeat(&mut self, holder: usize) {
        let Holder { fence, newest } = &self.holders[holder];
        let fence = *fence;
        if let Some(newest) = newest.clone() {
            self.store_both(fence, &newest).await;
        }
    }

    async fn store_both(&mut self, fence: Fence, newest: &NewestWrite) -> WriteOutcome {
        let NewestWrite { change, write, kind } = newest;
        let real = record::Fence {
            tenant: self.tenant,
            session: self.sessions[fence.session].clone(),
            epoch: fence.epoch,
            write_seq: fence.write_seq,
        };
        let changes = std::slice::from_ref(change);
        let (real, model) = match *kind {
            Kind::Append => {
                let real = self.store.append(&real, changes, write.ack, Progress::None, NOW).await;
                (real.map(Some), self.model.append(&Rules::SOUND, fence, write))
            }
            Kind::Park(park) => {
                let reason = self.park_reason(fence.session, park);
                let real =
                    self.store.park(&real, changes, write.ack, &reason, NOW).await.map(
                        |parked| match parked {
                            ParkOutcome::Parked(written) => Some(written),
                            ParkOutcome::NewInput => None,
                        },
                    );
                (real, self.model.park(&Rules::SOUND, fence, write, park))
            }
            Kind::Dispatch(child) => {
                let new = self.new_child(child);
                let real = self.store.dispatch_child(&real, changes, &new, Dispatch::New, NOW).await.map(
                    |outcome| match outcome {
                        DispatchOutcome::Dispatched { parent: written, .. } => Some(written),
                        DispatchOutcome::TooMany | DispatchOutcome::NotFree => panic!("{outcome:?}"),
                    },
                );
                self.open_call(child).await;
                (real, self.model.dispatch(&Rules::SOUND, fence, write, child))
            }
        };
        let real = match real {
            Ok(Some(written)) => {
                if let WriteResult::Now(first) = model {
                    assert_eq!(written.events[0].seq, first);
                }
                WriteOutcome::Stored
            }
            Ok(None) => WriteOutcome::NewInput,
            Err(Error::Fenced) => WriteOutcome::Fenced,
            Err(error) => panic!("{error:?}"),
        };
        assert_eq!(real, outcome(model));
        real
    }

    fn park_reason(&self, session: usize, park: Park) -> park::Park {
        let wait = |reason, until| park::Park::Waiting { wait: Wait { reason, until }, notify: None };
        match park {
            Park::Idle => {
                let answer = self.model.runs[session].parent.map(|parent| {
                    let part_id = self.calls[session].1.clone();
                    let child = self.sessions[session].clone();
                    let answer = ChildAnswer {
                        child,
                        part_id,
                        outcome: Outcome::Done,
                        text: String::new(),
                        summary: serde_json::Value::Null,
                    };
                    (self.sessions[parent].clone(), answer)
                });
                park::Park::Idle { outcome: Outcome::Done, error: None, answer }
            }
            Park::Waiting => wait(Reason::Children, None),
            Park::BackOff => wait(Reason::BackOff, Some(LATE)),
        }
    }

    fn new_child(&mut self, child: usize) -> NewChild {
        let (message_id, part_id) = self.calls[child].clone();
        NewChild {
            call: ParentCall { session: self.sessions[0].clone(), message_id, part_id },
            title: String::new(),
            agent: "build".to_owned(),
            model: sample::model(),
            is_model_chosen: true,
            permissions: vec![],
            own_source: None,
            prompt: self.prompt_of(child, 0),
            event_ids: [self.sample.event(), self.sample.event()],
        }
    }

    /// Stores that the first session waits for this child.
    async fn open_call(&mut self, child: usize) {
        let (tenant, session, part) = (self.tenant.0, &self.sessions[0], &self.calls[child].1);
        let sql = format!(
            "insert into tool_exec (tenant_id, session_id, exec_id, tool, epoch, state)
             values ('{tenant}', '{session}', '{part}', 'task', 1, 'executing') on conflict do nothing"
        );
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.sql).await.unwrap();
    }

    /// Gives a session back, by a handover or as a failed attempt.
    async fn give_back(&mut self, holder: usize, cleanly: bool) {
        let Fence { session, epoch, write_seq } = self.holders[holder].fence;
        let id = self.sessions[session].clone();
        if cleanly {
            let fence = record::Fence { tenant: self.tenant, session: id, epoch, write_seq };
            self.store.hand_over(&fence).await.unwrap();
            self.model.hand_over(session, epoch);
        } else {
            self.store.fail_attempt(self.tenant, &id, epoch).await.unwrap();
            self.model.fail_attempt(session, epoch, ATTEMPTS);
        }
    }

    /// Starts or ends the lease of a worker.
    async fn lease(&mut self, worker: usize, runs: bool) {
        let incarnation = self.workers[worker];
        let beat = Heartbeat {
            incarnation,
            name: "worker".to_owned(),
            slots: 1,
            draining: false,
            capabilities: None,
        };
        self.store.renew_worker(&beat).await.unwrap();
        if !runs {
            let sql = format!("update worker set lease_until = now() where incarnation = '{incarnation}'");
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.sql).await.unwrap();
        }
        self.model.leases[worker] = runs;
    }

    /// No lease ends by itself, however slow the machine is.
    async fn renew_leases(&mut self) {
        for worker in (0..WORKERS).filter(|worker| self.model.leases[*worker]).collect::<Vec<_>>() {
            self.lease(worker, true).await;
        }
    }

    async fn call(&mut self, dice: &mut Dice) {
        let (session, worker) = (dice.below(SESSIONS), dice.below(WORKERS));
        let key = u8::try_from(1 + dice.below(30)).unwrap();
        // The newer holders more often: they are the ones that may write.
        let holder = (0..3).map(|_| dice.below(self.holders.len().max(1))).max().unwrap_or(0);
        let number = dice.below(20);
        if number >= 18 {
            return self.lease(worker, dice.below(3) > 0).await;
        }
        if (8..18).contains(&number) {
            if self.holders.is_empty() {
                return;
            }
            return match number {
                8..=10 => self.write(holder, Kind::Append).await,
                11 => self.write(holder, Kind::Park(Park::Idle)).await,
                12 => self.write(holder, Kind::Park(Park::Waiting)).await,
                13 => self.write(holder, Kind::Park(Park::BackOff)).await,
                14 => self.dispatch(holder).await,
                15 => self.repeat(holder).await,
                _ => self.give_back(holder, dice.below(3) == 0).await,
            };
        }
        if self.model.runs[session].exists {
            match number {
                0..=1 => self.prompt(session, key).await,
                2 => self.abort(session, key).await,
                3..=5 => self.take(session, worker, SuspectPolicy::Accept).await,
                6 if dice.below(2) == 0 => self.take(session, worker, SuspectPolicy::Skip).await,
                6 if dice.below(3) == 0 => self.quarantine(session, QuarantineRule::Any).await,
                6 => self.quarantine(session, QuarantineRule::Exhausted).await,
                _ => self.wake(session).await,
            }
        }
    }
}

#[tokio::test]
async fn the_store_and_the_model_agree() {
    let database = testkit::database().await;
    let (mut epochs, mut answers, mut refused) = (0, 0, 0);
    for seed in 0..RUNS {
        let (mut pair, mut dice) = (Pair::new(&database, seed).await, Dice::from_seed(seed));
        for _ in 0..CALLS {
            pair.renew_leases().await;
            pair.call(&mut dice).await;
            pair.compare().await;
        }
        pair.compare_inputs().await;
        epochs += pair.model.runs.iter().map(|run| run.epoch).sum::<u64>();
        let inputs = pair.model.runs[0].inputs.iter();
        answers += inputs.filter(|input| matches!(input, Input::Answer(_))).count();
        refused += pair.refused;
        pair.sql.close().await.unwrap();
    }
    // The calls must cover takeovers, answers and refusals.
    assert!(epochs > 100 && answers > 3 && refused > 3, "{epochs} {answers} {refused}");
}
