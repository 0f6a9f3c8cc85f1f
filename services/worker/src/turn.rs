//! One session's loop: performs what `domain::turn` decides, and feeds back what happened. All writes of the session go
//! through here, one after the other; the model's stream and the tools report to this task.
// Continues in `model` for a call, `tools` for its tools, and `record` for every write.

mod act;
mod calls;
mod child;
mod compact;
pub(crate) mod doubt;
mod files;
mod opening;
mod plan;
mod preparing;
mod snapshots;
mod step;
mod titling;
pub(crate) mod waiting;

use crate::{
    claim::drain::Leave,
    clock::now,
    commands::Expanded,
    contention::Contention,
    conversation::Conversation,
    deps::Deps,
    guidance::{Above, Failure},
    model::{ModelCall, Writer},
    record::{Record, Stopped, answered},
    rights::Rights,
    sandbox::Identity,
    snapshots::Look,
    tools::{
        ToolError,
        run::{Report, Tools},
    },
    workspace::Workspace,
};
use bus::queue::{Slots, Yield};
use domain::{
    ids::SessionId,
    limits,
    message::ModelRef,
    permission::OnAsk,
    session::{Class, ExplicitChoices},
    turn::{Action, CallId, Input, State, View},
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};
use store::{
    log::{change::Title, record::Progress},
    session::{
        mailbox::{Kind, MailboxInput},
        row::{ParentCall, Session},
        runs::TakeOver,
    },
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, sleep_until},
};

/// What the worker tells a loop.
pub(crate) struct Control {
    /// Counts nudges: an input was accepted that must not wait for the next step.
    pub(crate) nudges: watch::Receiver<u64>,
    /// Cancelled when the worker lets go of its sessions.
    pub(crate) leave: Leave,
    /// Whether the worker's lease certainly runs: without it nothing new is started.
    pub(crate) lease: watch::Receiver<bool>,
    /// The worker's slots: when none is free, others may have waited longer.
    pub(crate) slots: Arc<Semaphore>,
    /// Who may wait for a slot.
    pub(crate) contention: Arc<Contention>,
    /// The worker's place for one suspect, if this session is one.
    pub(crate) lane: Option<OwnedSemaphorePermit>,
}

/// How a loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The session is parked.
    Parked,
    /// Another worker shall go on.
    HandedOver,
    /// A worker of another version must go on: what is stored cannot be read here.
    Refused,
    /// Another worker has it already, or Postgres is away: nothing may be done here. What this worker still owns by the
    /// row is given back by its sweep.
    Dropped,
}

/// A session's loop on this worker.
struct Loop {
    deps: Arc<Deps>,
    record: Record,
    conversation: Conversation,
    control: Control,
    workspace: Workspace,
    opening: opening::Opening,
    snapshots: snapshots::Snapshots,
    titling: titling::Titling,
    /// The files of prompts that are being read.
    reading: Option<files::Reading>,
    /// The commands of prompts that are being expanded.
    expanding: Option<preparing::Expanding>,
    inputs: Vec<MailboxInput>,
    /// Calls that this loop's own model call asked for and that nobody has begun.
    fresh: BTreeSet<CallId>,
    /// Calls that wait for somebody else.
    waiting: BTreeMap<CallId, waiting::Awaited>,
    /// What happened and the turn has not been told.
    happened: VecDeque<Input>,
    model: Option<ModelCall>,
    tools: Tools,
    back_off_until: Option<Instant>,
    beat_at: Instant,
    /// What the first write says.
    take_over: Option<domain::event::Event>,
    /// What is fixed for the session.
    fixed: Fixed,
    /// Whether the tree of sessions has a limit to what it spends.
    has_budget: bool,
    /// Whether that was spent at the last look.
    out_of_budget: bool,
    rights: Rights,
    /// When the parent was told last how far this child is.
    reported_at: Option<Instant>,
    /// Steps that this loop has closed.
    steps: u32,
}

/// What does not change while a session lives.
struct Fixed {
    /// The tool call that it answers, for a child.
    call: Option<ParentCall>,
    root: SessionId,
    depth: i16,
    class: Class,
    on_ask: OnAsk,
    /// Who answers prompts that name no agent.
    agent: String,
    /// Who answers prompts that name no model.
    model: ModelRef,
    /// Which of both somebody chose.
    chosen: ExplicitChoices,
}

/// Runs the loop of a session that was taken until it is parked, handed over or lost.
pub(crate) async fn run(deps: Arc<Deps>, taken: TakeOver, control: Control) -> End {
    let session = match Box::pin(read(&deps, &taken)).await {
        Ok(session) => session,
        Err(error @ store::error::Error::Unreadable { .. }) => {
            return Box::pin(refuse(&deps, &taken, &error)).await;
        }
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "a session could not be read");
            return End::Dropped;
        }
    };
    // Lent to its drive: a future that owned it would keep room for it twice.
    let mut loop_ = Loop::new(Arc::clone(&deps), &taken, session, control);
    match loop_.drive().await {
        Ok(end) => end,
        Err(Stopped::Store(error @ store::error::Error::Unreadable { .. })) => {
            Box::pin(refuse(&deps, &taken, &error)).await
        }
        Err(stopped) => {
            tracing::warn!(error = &stopped as &dyn std::error::Error, "the loop stops writing");
            End::Dropped
        }
    }
}

/// Reads a session and what binds it from above.
async fn read(deps: &Deps, taken: &TakeOver) -> Result<(Session, Above), store::error::Error> {
    let (tenant, session) = (taken.fence.tenant, &taken.fence.session);
    let stored = answered(deps.store.list_settings_of(tenant, session)).await?;
    // They were checked when they came: a newer version took them.
    let above = Above::of(&deps.platform, &stored).map_err(|problems| store::error::Error::Unreadable {
        what: "settings",
        source: Box::new(problems),
    })?;
    Ok((answered(deps.store.get_session(tenant, session)).await?, above))
}

/// Leaves a session to a worker of another version: a newer one wrote what cannot be read here.
async fn refuse(deps: &Arc<Deps>, taken: &TakeOver, error: &store::error::Error) -> End {
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    tracing::warn!(error = error as &dyn std::error::Error, "a session is left to a newer worker");
    match Record::new(Arc::clone(deps), taken, None).refuse(&format!("{error}: {source}")).await {
        Ok(()) => End::Refused,
        Err(_) => End::Dropped,
    }
}

impl Loop {
    fn new(
        deps: Arc<Deps>,
        taken: &TakeOver,
        (session, above): (Session, Above),
        mut control: Control,
    ) -> Self {
        let identity = Identity {
            tenant: taken.fence.tenant,
            session: taken.fence.session.clone(),
            epoch: taken.fence.epoch,
            workspace: session.root_id.clone(),
        };
        let titling = titling::Titling::of(&session.info);
        let workspace = Workspace::new(Arc::clone(&deps), identity.clone(), session.source);
        let mut rights = Rights::new(session.permissions);
        rights.configure(Arc::clone(&above.settings));
        let mut tools = Tools::new(Arc::clone(&deps), identity, workspace.clone());
        tools.configure(&above.settings);
        let take_over =
            domain::event::Event::LoopStarted { worker: deps.name.clone(), attempt: taken.attempts };
        Self {
            record: Record::new(Arc::clone(&deps), taken, control.lane.take()),
            conversation: Conversation::default(),
            tools,
            opening: opening::Opening::of(above),
            snapshots: snapshots::Snapshots::of(session.branch),
            titling,
            reading: None,
            expanding: None,
            inputs: vec![],
            fresh: BTreeSet::new(),
            waiting: BTreeMap::new(),
            happened: VecDeque::new(),
            model: None,
            back_off_until: None,
            beat_at: Instant::now() + Duration::from_millis(limits::LOOP_BEAT_MS),
            take_over: Some(take_over),
            fixed: Fixed {
                call: session.call,
                root: session.root_id,
                depth: session.depth,
                class: session.class,
                on_ask: session.on_ask,
                agent: session.info.agent,
                chosen: session.chosen,
                model: ModelRef {
                    provider_id: session.info.model.provider_id,
                    model_id: session.info.model.id,
                },
            },
            has_budget: session.budget.is_some(),
            out_of_budget: false,
            rights,
            reported_at: None,
            steps: 0,
            deps,
            control,
            workspace,
        }
    }
}

impl Loop {
    /// Runs the loop to its end. What it does rarely and then with much room is on the heap only meanwhile: most loops of
    /// a worker wait for their model's next word.
    async fn drive(&mut self) -> Result<End, Stopped> {
        let mut state = State::default();
        let mut actions = VecDeque::from([Action::Look]);
        let mut end = End::Parked;
        loop {
            let input = match actions.pop_front() {
                Some(Action::HandOver) => {
                    Box::pin(self.hand_over()).await?;
                    end = End::HandedOver;
                    None
                }
                Some(Action::Drop) => {
                    end = End::Dropped;
                    None
                }
                Some(action) => Box::pin(self.perform(action)).await?,
                None if state == State::Ended => return Ok(end),
                None => match self.happened.pop_front() {
                    Some(input) => Some(input),
                    None => self.next_input().await?,
                },
            };
            if let Some(input) = input {
                actions.extend(state.apply(input, now(), rand::random()));
            }
        }
    }

    async fn hand_over(&mut self) -> Result<(), Stopped> {
        let events = vec![domain::event::Event::LoopHandedOver { worker: self.deps.name.clone() }];
        self.record.write(&mut self.conversation, events, Progress::None).await?;
        self.record.hand_over().await
    }

    async fn perform(&mut self, action: Action) -> Result<Option<Input>, Stopped> {
        match action {
            Action::Look => self.look().await.map(Some),
            Action::Call { failed } => self.call(failed).await,
            Action::BackOff { attempt, until, error } => {
                self.back_off(attempt, until, &error).await.map(|()| None)
            }
            Action::Compact { overflow } => self.compact(overflow).await.map(|()| None),
            Action::Summarize { failed } => self.summarize(failed).await,
            Action::Resume => self.resume().await.map(|()| None),
            Action::Prepare => self.prepare().await,
            Action::BeginCalls => self.begin_calls().await.map(|()| None),
            Action::Run(calls) => self.run_tools(calls).await.map(|()| None),
            Action::Finish => self.finish().await.map(|()| None),
            Action::Doubt => self.doubt().await.map(Some),
            Action::Stop(stop) => self.stop(&stop).await.map(Some),
            Action::Close(error) => self.close(error).await.map(|()| None),
            Action::Park(end) => self.park(end).await.map(Some),
            Action::HandOver | Action::Drop => Ok(None),
        }
    }

    /// Reads what came since the last look. Right after a write that found nothing new there is nothing to read; what
    /// comes later is found when the turn is parked, at the latest.
    async fn look(&mut self) -> Result<Input, Stopped> {
        if !self.record.has_seen_all() {
            self.read_inputs().await?;
        }
        self.back_off_until = None;
        self.look_at_budget().await?;
        let leaving = self.control.leave.soon.is_cancelled() || self.others_waited_longer().await;
        let view = self.conversation.view(&self.inputs, leaving);
        let view = self.with_room(view);
        Ok(Input::Looked(View { out_of_budget: self.out_of_budget, ..view }))
    }

    /// Reads what the tree of sessions spent. A limit that is set later comes through the mailbox.
    async fn look_at_budget(&mut self) -> Result<(), Stopped> {
        self.has_budget |= self.inputs.iter().any(|input| input.kind == Kind::Budget);
        if self.has_budget {
            let budget = answered(self.deps.store.get_budget(self.record.tenant(), &self.fixed.root));
            self.out_of_budget = budget.await.map_err(Stopped::Store)?.is_used_up();
        }
        Ok(())
    }

    /// Whether this session should give up its slot at a step boundary. It has its first step in any case.
    async fn others_waited_longer(&mut self) -> bool {
        if self.steps == 0 {
            return false;
        }
        let slots = if self.control.slots.available_permits() == 0 { Slots::Full } else { Slots::Free };
        if !self.control.contention.may_concern(self.record.tenant(), slots) {
            return false;
        }
        let worker = self.deps.incarnation.to_string();
        match self.deps.bus.should_yield(self.record.session(), &worker, slots).await {
            Ok(Yield::Keep) => false,
            Ok(Yield::ToTenant | Yield::ToClass) => {
                metrics::counter!("flotilla_yields_total").increment(1);
                true
            }
            // Without Redis nobody knows who waits; Postgres' order of claims is fair enough meanwhile.
            Err(_) => false,
        }
    }

    async fn read_inputs(&mut self) -> Result<(), Stopped> {
        let (tenant, session) = (self.record.tenant(), self.record.session().clone());
        let store = self.deps.store.clone();
        let inputs = self.record.input_ack();
        // The mailbox first: every prompt in it is then among the messages.
        self.inputs = answered(store.list_inputs(tenant, &session, inputs)).await.map_err(Stopped::Store)?;
        let read = answered(self.conversation.read(&store, tenant, &session));
        Box::pin(read).await.map_err(Stopped::Store)?;
        if let Some(newest) = self.inputs.last() {
            self.record.saw_input(newest.seq);
        }
        Ok(())
    }

    /// Waits for whatever happens next. Gives `None` when it is nothing that the turn must know.
    async fn next_input(&mut self) -> Result<Option<Input>, Stopped> {
        if self.record.abort_waits() {
            return Ok(Some(Input::Abort));
        }
        let flush_at = self.model.as_ref().and_then(ModelCall::next_flush);
        let wake_at = [self.back_off_until, flush_at].into_iter().flatten().fold(self.beat_at, Instant::min);
        // Without a model call there is nothing to lose: another worker attaches to what runs.
        let leaves_at_once = self.model.is_none() && self.tools.can_be_left();
        let happened = tokio::select! {
            biased;
            Ok(()) = self.control.nudges.changed() => Happened::Nudge,
            () = self.control.leave.now.cancelled() => Happened::Drain,
            () = self.control.leave.soon.cancelled(), if leaves_at_once => Happened::Drain,
            opened = self.opening.settled() => Happened::Opened(opened),
            read = files::settled(&mut self.reading) => Happened::Read(read),
            expanded = preparing::settled(&mut self.expanding) => Happened::Expanded(expanded),
            look = self.snapshots.settled() => Happened::Tracked(look),
            title = self.titling.settled() => Happened::Titled(title),
            report = self.tools.next_report() => Happened::Tool(report),
            said = next_said(&mut self.model) => Happened::Said(said),
            () = sleep_until(wake_at) => Happened::Tick,
        };
        Box::pin(self.happened(happened)).await
    }

    async fn happened(&mut self, happened: Happened) -> Result<Option<Input>, Stopped> {
        match happened {
            Happened::Nudge => self.nudged().await,
            Happened::Drain => Ok(Some(Input::Drain)),
            Happened::Opened(opened) => self.opened(opened).await,
            Happened::Read(read) => self.files_read(read).await,
            Happened::Expanded(expanded) => self.expanded(expanded).await,
            Happened::Tracked(look) => self.tracked(look).await,
            Happened::Titled(title) => self.titled(title).await.map(|()| None),
            Happened::Tool(report) => self.report(*report).await,
            Happened::Said(said) => {
                let Some(call) = &mut self.model else { return Ok(None) };
                let mut writer = Writer { record: &mut self.record, conversation: &mut self.conversation };
                let input = call.take(said, &mut writer).await?;
                if let Some(Input::Answered(calls)) = &input {
                    self.model = None;
                    self.fresh = calls.iter().cloned().collect();
                }
                Ok(input)
            }
            Happened::Tick => self.tick().await,
        }
    }

    /// Looks into the mailbox in the middle of a step: an abort, or what a waiting call waits for.
    async fn nudged(&mut self) -> Result<Option<Input>, Stopped> {
        // An operator may have taken the session out of service, or its owner may have deleted it.
        if !answered(self.deps.store.is_current(self.record.fence())).await.map_err(Stopped::Store)? {
            return Err(Stopped::Fenced);
        }
        self.read_inputs().await?;
        if self.inputs.iter().any(|input| input.kind == Kind::Abort) {
            return Ok(Some(Input::Abort));
        }
        self.settle_waiting().await.map(|()| None)
    }

    async fn tick(&mut self) -> Result<Option<Input>, Stopped> {
        let now = Instant::now();
        if now >= self.beat_at {
            self.record.beat();
            self.beat_at = now + Duration::from_millis(limits::LOOP_BEAT_MS);
        }
        if let Some(call) = &mut self.model {
            let mut writer = Writer { record: &mut self.record, conversation: &mut self.conversation };
            call.flush(&mut writer).await?;
        }
        if self.back_off_until.is_some_and(|until| until <= now) {
            self.back_off_until = None;
            return Ok(Some(Input::Waited));
        }
        Ok(None)
    }

    /// Waits until the worker's lease certainly runs: a frozen worker that wakes up starts nothing before.
    async fn lease_runs(&mut self) {
        while !*self.control.lease.borrow_and_update() {
            if self.control.lease.changed().await.is_err() {
                // The lease's thread is gone, and with it the right to begin anything; another worker goes on.
                std::future::pending::<()>().await;
            }
        }
    }
}

enum Happened {
    Nudge,
    Drain,
    Opened(Result<(), Failure>),
    Read((u32, Result<Vec<files::Told>, ToolError>)),
    Expanded(Result<Vec<Expanded>, ToolError>),
    Tracked(Option<Look>),
    Titled(Option<Box<Title>>),
    Tool(Box<Report>),
    Said(Option<Result<llm::event::Event, llm::error::Error>>),
    Tick,
}

/// Waits for the next piece of the model's answer, if a call is open. Cancel-safe.
async fn next_said(model: &mut Option<ModelCall>) -> Option<Result<llm::event::Event, llm::error::Error>> {
    match model {
        Some(call) => call.next().await,
        None => std::future::pending().await,
    }
}
