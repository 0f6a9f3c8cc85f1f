//! One database with a tenant and a project, and helpers for common setups.

use domain::{
    event::{Event, Status},
    ids::{ProjectId, SessionId, TenantId},
    limits,
    money::{Tokens, UsdPicos},
    policy::permission::{OnAsk, Rules},
    session::{Class, ExplicitChoices, Outcome, Source},
};
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use store::{
    Store,
    control::workers::Heartbeat,
    log::{
        change::{Change, ChangeBody, Charge},
        record::{Fence, Progress, WriteReceipt},
    },
    rows::ledger::{CallOutcome, LedgerEntry, Purpose},
    session::{
        creation::NewSession,
        inputs::{Prompt, PromptReceipt, Reply, VariantChoice},
        park::{Park, ParkOutcome},
        runs::{SuspectPolicy, TakeOver, TakeResult},
    },
};
use testkit::{
    database::{Database, connect},
    sample::{self, NOW, Sample},
};
use uuid::Uuid;

pub(crate) struct World {
    pub database: Database,
    pub store: Store,
    pub sample: Sample,
    pub tenant: TenantId,
    pub project: ProjectId,
}

/// A session that a living worker runs.
pub(crate) struct Running {
    pub session: SessionId,
    pub worker: Uuid,
    pub fence: Fence,
}

/// Makes a worker's description of itself.
pub(crate) fn beat(incarnation: Uuid) -> Heartbeat {
    Heartbeat { incarnation, name: "worker".to_owned(), slots: 4, draining: false, capabilities: None }
}

/// Makes the end of a turn.
pub(crate) fn idle(outcome: Outcome, error: Option<&str>) -> Park {
    Park::Idle { outcome, error: error.map(ToOwned::to_owned), answer: None }
}

impl World {
    pub(crate) async fn new() -> Self {
        let database = testkit::database().await;
        let store = Store::connect(&database.app_url, &database.system_url, 10).unwrap();
        let mut sample = Sample::new(1);
        let tenant = sample.tenant();
        store.create_tenant(tenant, "first").await.unwrap();
        let project = sample.project();
        store.create_project(tenant, &project, "sample", &Source::default()).await.unwrap();
        Self { database, store, sample, tenant, project }
    }

    pub(crate) fn new_session(&mut self) -> NewSession {
        NewSession {
            id: self.sample.session(),
            project_id: self.project.clone(),
            worktree_id: None,
            title: "A session".to_owned(),
            agent: "build".to_owned(),
            model: sample::model(),
            variant: None,
            chosen: ExplicitChoices { agent: true, model: false },
            source: None,
            class: Class::Interactive,
            rules: Rules::default(),
            budget: None,
            on_ask: OnAsk::Park,
            tries_environment: false,
            key: None,
        }
    }

    pub(crate) async fn session(&mut self) -> SessionId {
        let (new, event) = (self.new_session(), self.sample.event());
        self.store.create_session(self.tenant, &new, &event, NOW).await.unwrap();
        new.id
    }

    /// Makes a prompt with one text; its key and its hash follow from the text.
    pub(crate) fn prompt(&mut self, session: &SessionId, text: &str) -> Prompt {
        let id = self.sample.message();
        let parts = vec![self.sample.text(session, &id, text)];
        let mut body_sha256 = [0; 32];
        body_sha256.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
        let event_ids = vec![self.sample.event(), self.sample.event()];
        Prompt {
            id,
            session_id: session.clone(),
            agent: None,
            model: None,
            variant: VariantChoice::default(),
            system: None,
            tools: None,
            format: None,
            parts,
            dedupe: text.to_owned(),
            body_sha256,
            traceparent: None,
            event_ids,
            reply: Reply::Expected,
            only_when_idle: false,
            with_queue_position: false,
        }
    }

    pub(crate) async fn accept(&mut self, session: &SessionId, text: &str) -> PromptReceipt {
        let prompt = self.prompt(session, text);
        self.store.accept_prompt(self.tenant, &prompt, NOW).await.unwrap()
    }

    /// Creates a worker with a valid lease.
    pub(crate) async fn worker(&self) -> Uuid {
        let worker = Uuid::now_v7();
        self.store.renew_worker(&beat(worker)).await.unwrap();
        worker
    }

    /// Wakes the sessions whose timer has expired, and returns their number.
    pub(crate) async fn wake_due(&self) -> usize {
        self.store.wake_due(limits::SWEEP_MAX).await.unwrap().len()
    }

    pub(crate) async fn take(&self, session: &SessionId, worker: Uuid) -> Option<TakeOver> {
        match self.store.take_session(self.tenant, session, worker, SuspectPolicy::Accept).await.unwrap() {
            TakeResult::Taken(taken) => Some(taken.take_over),
            TakeResult::Unavailable | TakeResult::Suspect | TakeResult::Exhausted { .. } => None,
        }
    }

    /// Creates a session with one prompt and a worker that took it.
    pub(crate) async fn running(&mut self) -> Running {
        let session = self.session().await;
        self.accept(&session, "begin").await;
        let worker = self.worker().await;
        let fence = self.take(&session, worker).await.unwrap().fence;
        Running { session, worker, fence }
    }

    pub(crate) fn busy(&mut self) -> Change {
        self.change(Event::SessionStatus(Status::Busy))
    }

    pub(crate) fn change(&mut self, event: Event) -> Change {
        Change { id: self.sample.event(), body: ChangeBody::Event(event) }
    }

    /// Makes the ledger entry of one model call; `id` names the call.
    pub(crate) fn entry(id: &str, tokens: Tokens, picos: i64) -> LedgerEntry {
        LedgerEntry {
            id: id.to_owned(),
            purpose: Purpose::Step,
            outcome: CallOutcome::Finished,
            model: sample::model(),
            tokens,
            cost: UsdPicos(picos),
            cost_max: None,
        }
    }

    /// Makes a change that charges a model call which no other change has charged.
    pub(crate) fn spend(&mut self, tokens: Tokens, picos: i64) -> Change {
        let id = self.sample.event();
        let entry = Self::entry(id.as_str(), tokens, picos);
        Change { id, body: ChangeBody::Spend(Charge::new(vec![entry])) }
    }

    /// Makes the same change as another event.
    pub(crate) fn change_again(&mut self, change: &Change) -> Change {
        Change { id: self.sample.event(), body: change.body.clone() }
    }

    /// Inserts a row of a started effect, as the owner of the tables.
    pub(crate) async fn exec(&self, session: &SessionId) {
        let tenant = self.tenant.0;
        let row = format!("'{tenant}', '{session}', 'prt_1', 'bash', 1, 'executing'");
        let columns = "tenant_id, session_id, exec_id, tool, epoch, state";
        self.sql(&format!("insert into tool_exec ({columns}) values ({row})")).await;
    }

    /// Writes one event that changes no other table.
    pub(crate) async fn append(&mut self, fence: &Fence) -> Result<WriteReceipt, store::error::Error> {
        let change = self.busy();
        self.store.append(fence, &[change], 0, Progress::None, NOW).await
    }

    /// Ends the turn after the first prompt.
    pub(crate) async fn park(&self, fence: &Fence) -> Option<WriteReceipt> {
        match self.store.park(fence, &[], 1, &idle(Outcome::Done, None), NOW).await.unwrap() {
            ParkOutcome::Parked(written) => Some(written),
            ParkOutcome::NewInput => None,
        }
    }

    /// Runs SQL as the owner of the tables.
    pub(crate) async fn sql(&self, sql: &str) {
        let mut owner = self.database.owner().await;
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut *owner).await.unwrap();
    }

    /// Removes the rows of deleted sessions, as workers do. Returns the rows of each step.
    pub(crate) async fn remove_rows(&self, tenant: TenantId) -> Vec<u64> {
        let mut steps = vec![];
        while let Some(rows) = self.store.remove_rows(tenant).await.unwrap() {
            steps.push(rows);
        }
        steps
    }

    /// Returns the single number of a query, run as the owner of the tables.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let mut owner = self.database.owner().await;
        sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_one(&mut *owner).await.unwrap().get(0)
    }

    /// Begins the write of a client to a session. It has an event and is not committed.
    pub(crate) async fn writing_client(&self, session: &SessionId) -> PgConnection {
        let mut client = connect(&self.database.migrator_url).await;
        let held = format!(
            "begin;
             update session_run set event_seq = event_seq + 1 where session_id = '{session}';
             insert into session_event (tenant_id, session_id, epoch, at, seq, id, kind, properties)
             select tenant_id, session_id, 0, now(), event_seq, 'evt_client', 'session.status', '{{}}'
               from session_run where session_id = '{session}'"
        );
        sqlx::raw_sql(AssertSqlSafe(held)).execute(&mut client).await.unwrap();
        client
    }

    /// Begins a write of a client that renames the session. It is not committed.
    pub(crate) async fn renaming_client(&self, session: &SessionId, title: &str) -> PgConnection {
        let mut client = self.writing_client(session).await;
        let rename = format!("update session set title = '{title}' where id = '{session}'");
        sqlx::raw_sql(AssertSqlSafe(rename)).execute(&mut client).await.unwrap();
        client
    }

    /// Asserts that a write waits for that of a client, which has event 4, and is stored once behind it.
    pub(crate) async fn assert_written_behind(
        &self,
        mut client: PgConnection,
        fence: &Fence,
        changes: &[Change],
    ) {
        let write = || self.store.append(fence, changes, 1, Progress::None, NOW);
        // The test drops the first attempt while it waits. The second attempt finds out whether Postgres stored it.
        tokio::select! {
            stored = write() => panic!("it did not wait: {stored:?}"),
            () = self.wait_for_lock() => {}
        }
        let repeated = async { (write().await.unwrap(), write().await.unwrap()) };
        let commit = async { sqlx::raw_sql("commit").execute(&mut client).await.unwrap() };
        let ((written, again), _) = tokio::join!(repeated, commit);
        let newest = 4 + changes.len() as u64;
        let seqs: Vec<u64> = written.events.iter().map(|event| event.seq).collect();
        assert_eq!(seqs, (5..=newest).collect::<Vec<_>>());
        assert_eq!(again.events, written.events);
        assert_eq!(self.gap_free(&fence.session).await, newest);
    }

    /// Waits until a statement of the store waits for a lock.
    pub(crate) async fn wait_for_lock(&self) {
        let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        testkit::eventually("a write waits", async || self.number(waiting).await > 0).await;
    }

    /// Returns the newest statement of the connections that see one tenant. A long one is cut.
    pub(crate) async fn newest_statement(&self) -> String {
        let mut owner = self.database.owner().await;
        let newest = "select query from pg_stat_activity where datname = current_database() and usename = 'flotilla_app'
                       order by query_start desc limit 1";
        sqlx::query_scalar(newest).fetch_one(&mut *owner).await.unwrap()
    }

    /// Asserts that the events of a session have the numbers 1, 2, 3, …; returns their count.
    pub(crate) async fn gap_free(&self, session: &SessionId) -> u64 {
        let mut pages = self.store.event_pages(self.tenant, session.clone(), 0);
        let mut seqs = vec![];
        while let Some(events) = pages.next_whole().await.unwrap() {
            seqs.extend(events.into_iter().map(|event| event.seq));
        }
        let head = self.store.get_head(self.tenant, session).await.unwrap();
        assert_eq!(seqs, (1..=head.seq).collect::<Vec<_>>());
        head.seq
    }
}

impl Running {
    /// The loop as it begins, after the inputs up to `input_ack`.
    pub(crate) fn take_over(&self, input_ack: u64) -> TakeOver {
        TakeOver { fence: self.fence.clone(), input_ack, attempts: 1 }
    }

    /// Returns the fence for the write with this number.
    pub(crate) fn write(&self, write_seq: u64) -> Fence {
        Fence { write_seq, ..self.fence.clone() }
    }
}
