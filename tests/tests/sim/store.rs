//! The simulated Postgres against the real store: the same random transactions, by current and by outdated owners, new and
//! repeated. After each of them the answer and every control row must be the same.

use domain::{
    event::{Event, Status},
    ids::{SessionId, TenantId},
    session::{Outcome, Source},
};
use e2e::sim::{
    postgres::{Attempts, Fence, Input, Park, Phase, Postgres, Run, Take, Turn, Write, Written},
    rules::Rules,
    scenario::Scenario,
    walk::Dice,
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use store::{
    Store,
    error::Error,
    inputs::Prompt,
    record::{self, Change, Progress, What},
    sessions::NewSession,
};
use testkit::{
    database::Database,
    sample::{self, NOW, Sample},
};
use uuid::Uuid;

const SESSIONS: usize = 3;
const WORKERS: usize = 3;
const RUNS: u64 = 12;
const CALLS: usize = 120;

/// A loop that took a session once; it may be the owner still or not.
struct Holder {
    fence: Fence,
    /// Its newest write, with what the real one was given.
    newest: Option<(Change, Write, Kind)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Append,
    Park,
}

/// Both databases.
struct Pair {
    store: Store,
    sql: PgConnection,
    model: Postgres,
    sample: Sample,
    tenant: TenantId,
    sessions: Vec<SessionId>,
    workers: Vec<Uuid>,
    holders: Vec<Holder>,
    aborts: u8,
}

/// What of a write both must say.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Stored,
    NewInput,
    Fenced,
}

fn said(written: Written) -> Said {
    match written {
        Written::Now(_) | Written::Before => Said::Stored,
        Written::NewInput => Said::NewInput,
        Written::Fenced => Said::Fenced,
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
        for _ in 0..SESSIONS {
            let new = NewSession {
                id: sample.session(),
                project_id: project_id.clone(),
                title: String::new(),
                agent: "build".to_owned(),
                model: sample::model(),
                source: Source::default(),
                dedupe: None,
            };
            store.create_session(tenant, &new, &sample.event(), NOW).await.unwrap();
            sessions.push(new.id);
        }
        let run = Run { exists: true, event_seq: 1, ..Run::default() };
        let model = Postgres { runs: vec![run; SESSIONS], leases: vec![false; WORKERS] };
        let workers = (0..WORKERS).map(|_| Uuid::now_v7()).collect();
        Self { store, sql, model, sample, tenant, sessions, workers, holders: vec![], aborts: 0 }
    }

    async fn prompt(&mut self, session: usize, key: u8) {
        let prompt = Prompt {
            user: self.sample.user(&self.sessions[session]),
            parts: vec![],
            dedupe: format!("prompt {key}"),
            body_sha256: [key; 32],
            traceparent: None,
            event_ids: vec![self.sample.event()],
        };
        let accepted = self.store.accept_prompt(self.tenant, &prompt, NOW).await.unwrap();
        assert_eq!(accepted.runnable, self.model.accept_prompt(&Rules::SOUND, session, key));
    }

    async fn abort(&mut self, session: usize) {
        self.aborts += 1;
        let key = format!("abort {}", self.aborts);
        let real = self.store.accept_abort(self.tenant, &self.sessions[session], &key).await.unwrap();
        assert_eq!(real, self.model.accept_abort(&Rules::SOUND, session, self.aborts));
    }

    async fn take(&mut self, session: usize, worker: usize) {
        let limits = Attempts { suspect: u8::MAX, ..Scenario::PATIENT };
        let take = self.model.take(&Rules::SOUND, (session, worker), (limits, false), None);
        let real = self
            .store
            .take_session(self.tenant, &self.sessions[session], self.workers[worker])
            .await
            .unwrap()
            .map(|taken| (taken.fence.epoch, taken.input_ack, taken.attempts));
        let Take::Yes { epoch, input_ack, attempts } = take else { return assert_eq!(real, None) };
        assert_eq!(real, Some((epoch, input_ack, i16::from(attempts))));
        self.holders.push(Holder { fence: Fence { session, epoch, write_seq: 0 }, newest: None });
    }

    /// The next write of a holder: it takes all inputs, or parks with those that it took.
    async fn write(&mut self, holder: usize, kind: Kind) {
        let change =
            Change { id: self.sample.event(), what: What::Event(Event::SessionStatus(Status::Busy)) };
        let Fence { session, epoch, write_seq } = self.holders[holder].fence;
        let run = &self.model.runs[session];
        let ack = if kind == Kind::Append { run.input_seq } else { run.input_ack };
        let write = Write { events: 1, ack, progress: kind == Kind::Park, turn: Turn::default() };
        let fence = Fence { session, epoch, write_seq: write_seq + 1 };
        let said = self.store_both(fence, (&change, &write, kind)).await;
        if said != Said::NewInput {
            self.holders[holder] = Holder { fence, newest: Some((change, write, kind)) };
        }
    }

    /// The newest write of a holder once more, as after a lost answer.
    async fn repeat(&mut self, holder: usize) {
        let Holder { fence, newest } = &self.holders[holder];
        if let Some((change, write, kind)) = newest.clone() {
            self.store_both(*fence, (&change, &write, kind)).await;
        }
    }

    async fn store_both(&mut self, fence: Fence, (change, write, kind): (&Change, &Write, Kind)) -> Said {
        let real = record::Fence {
            tenant: self.tenant,
            session: self.sessions[fence.session].clone(),
            epoch: fence.epoch,
            write_seq: fence.write_seq,
        };
        let changes = std::slice::from_ref(change);
        let (real, model) = match kind {
            Kind::Append => {
                let real = self.store.append(&real, changes, write.ack, Progress::None, NOW).await;
                (real.map(Some), self.model.append(&Rules::SOUND, fence, write))
            }
            Kind::Park => {
                let end = (Outcome::Done, None);
                let real = self.store.park_idle(&real, changes, write.ack, end, NOW).await;
                (real, self.model.park(&Rules::SOUND, fence, write, Park::Idle))
            }
        };
        let real = match real {
            Ok(Some(written)) => {
                if let Written::Now(first) = model {
                    assert_eq!(written.events[0].seq, first);
                }
                Said::Stored
            }
            Ok(None) => Said::NewInput,
            Err(Error::Fenced) => Said::Fenced,
            Err(error) => panic!("{error:?}"),
        };
        assert_eq!(real, said(model));
        real
    }

    /// Gives a session back, cleanly or not.
    async fn give_back(&mut self, holder: usize, cleanly: bool) {
        let Fence { session, epoch, write_seq } = self.holders[holder].fence;
        let id = self.sessions[session].clone();
        if cleanly {
            let fence = record::Fence { tenant: self.tenant, session: id, epoch, write_seq };
            self.store.hand_over(&fence).await.unwrap();
            self.model.hand_over(session, epoch);
        } else {
            self.store.fail_attempt(self.tenant, &id, epoch).await.unwrap();
            self.model.fail_attempt(session, epoch, Attempts { suspect: u8::MAX, ..Scenario::PATIENT });
        }
    }

    /// Begins or ends the lease of a worker. It does not end by itself, however slow the machine is.
    async fn lease(&mut self, worker: usize, runs: bool) {
        let incarnation = self.workers[worker];
        self.store.renew_worker(incarnation, "worker", false).await.unwrap();
        let until = if runs { "'infinity'" } else { "now()" };
        let sql = format!("update worker set lease_until = {until} where incarnation = '{incarnation}'");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.sql).await.unwrap();
        self.model.leases[worker] = runs;
    }

    async fn call(&mut self, dice: &mut Dice) {
        let (session, worker) = (dice.below(SESSIONS), dice.below(WORKERS));
        // The newer holders more often: they are the ones that may write.
        let holder = (0..3).map(|_| dice.below(self.holders.len().max(1))).max().unwrap_or(0);
        match dice.below(16) {
            0..=1 => self.prompt(session, u8::try_from(dice.below(30)).unwrap()).await,
            2 => self.abort(session).await,
            // Beyond five attempts the real one gives the session up.
            3..=6 if self.model.runs[session].attempts < 5 => self.take(session, worker).await,
            7..=10 if !self.holders.is_empty() => self.write(holder, Kind::Append).await,
            11 if !self.holders.is_empty() => self.write(holder, Kind::Park).await,
            12 if !self.holders.is_empty() => self.repeat(holder).await,
            13 if !self.holders.is_empty() => self.give_back(holder, dice.below(2) == 0).await,
            14..=15 => self.lease(worker, dice.below(3) > 0).await,
            _ => {}
        }
    }

    /// Every control row as the real store has it.
    async fn rows(&mut self) -> Vec<Run> {
        let rows = sqlx::query(
            "select session_id, epoch, write_seq, event_seq, input_seq, input_ack, cancel_seq, phase, owner, attempts,
                    wake_at is not null as wakes
               from session_run where tenant_id = $1",
        )
        .bind(self.tenant.0)
        .fetch_all(&mut self.sql)
        .await
        .unwrap();
        let number = |row: &sqlx::postgres::PgRow, name| u64::try_from(row.get::<i64, _>(name)).unwrap();
        let phases = [Phase::Idle, Phase::Runnable, Phase::Running, Phase::Waiting, Phase::Quarantined];
        let run = |row: &sqlx::postgres::PgRow| Run {
            exists: true,
            parent: None,
            epoch: number(row, "epoch"),
            write_seq: number(row, "write_seq"),
            event_seq: number(row, "event_seq"),
            input_seq: number(row, "input_seq"),
            input_ack: number(row, "input_ack"),
            cancel_seq: number(row, "cancel_seq"),
            phase: phases[usize::try_from(row.get::<i16, _>("phase")).unwrap()],
            owner: row
                .get::<Option<Uuid>, _>("owner")
                .map(|owner| self.workers.iter().position(|worker| *worker == owner).unwrap()),
            attempts: u8::try_from(row.get::<i16, _>("attempts")).unwrap(),
            wakes: row.get("wakes"),
            inputs: vec![],
            turn: Turn::default(),
        };
        let find = |session: &SessionId| {
            rows.iter().find(|row| row.get::<&str, _>("session_id") == session.as_str())
        };
        self.sessions.iter().map(|session| run(find(session).unwrap())).collect()
    }

    async fn compare(&mut self) {
        let real = self.rows().await;
        let model: Vec<Run> =
            self.model.runs.iter().map(|run| Run { inputs: vec![], ..run.clone() }).collect();
        assert_eq!(real, model);
        let places = |listed: Vec<store::system::Place>| {
            let ours = listed.into_iter().filter(|place| place.tenant == self.tenant);
            let mut numbers: Vec<usize> = ours
                .map(|place| self.sessions.iter().position(|session| *session == place.session).unwrap())
                .collect();
            numbers.sort_unstable();
            numbers
        };
        let runnable = places(self.store.list_runnable(1_000).await.unwrap());
        let orphaned = places(self.store.list_orphaned(1_000).await.unwrap());
        let all = 0..SESSIONS;
        let is_runnable = |session: &usize| self.model.runs[*session].phase == Phase::Runnable;
        assert_eq!(runnable, all.clone().filter(is_runnable).collect::<Vec<_>>());
        assert_eq!(orphaned, all.filter(|session| self.model.is_orphaned(*session)).collect::<Vec<_>>());
    }

    /// The mailboxes as the real store has them.
    async fn compare_inputs(&self) {
        for (session, run) in self.sessions.iter().zip(&self.model.runs) {
            let real = self.store.list_inputs(self.tenant, session, 0).await.unwrap();
            let kinds: Vec<&str> = real.iter().map(|input| input.kind.as_str()).collect();
            let model = run.inputs.iter().map(|input| match input {
                Input::Prompt(_) => "prompt",
                Input::Abort(_) => "abort",
                Input::Answer(_) => "child",
            });
            assert_eq!(kinds, model.collect::<Vec<_>>());
        }
    }
}

#[tokio::test]
async fn the_store_does_what_the_model_does() {
    let database = testkit::database().await;
    let mut epochs = 0;
    for seed in 0..RUNS {
        let (mut pair, mut dice) = (Pair::new(&database, seed).await, Dice::from_seed(seed));
        for _ in 0..CALLS {
            pair.call(&mut dice).await;
            pair.compare().await;
        }
        pair.compare_inputs().await;
        epochs += pair.model.runs.iter().map(|run| run.epoch).sum::<u64>();
        pair.sql.close().await.unwrap();
    }
    // The calls must have led somewhere.
    assert!(epochs > 100, "{epochs}");
}
