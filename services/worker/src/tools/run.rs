//! Runs the tool calls of one step side by side, and reports what they say.

use super::{Output, Repeat, Tool, ToolError, check, find, output, output::Bounds, uses::absolute};
use crate::{
    deps::Deps,
    sandbox::{Identity, is_away},
    workspace::{self, Workspace},
};
use domain::{
    limits,
    message::Error,
    mutant::{self, Mutant},
};
use futures::FutureExt as _;
use rpc::v1;
use serde_json::{Map, Value};
use settings::Settings;
use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use store::log::messages::MessageWithParts;
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::Instant,
};
use tonic::Status;
use tracing::Instrument as _;

/// Reports that wait for the loop: a few for each running tool.
const REPORTS_MAX: usize = 4 * limits::TOOLS_PARALLEL_MAX;
/// How long the sandbox may take to confirm that a command was ended; the abort does not wait longer.
const KILL_WAIT: Duration = Duration::from_millis(700);

/// A call to run.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) call_id: String,
    /// Names the call to the sandbox: the same for every attempt.
    pub(crate) exec_id: String,
    pub(crate) tool: String,
    pub(crate) input: Value,
    /// Whether an earlier worker stored that it begins.
    pub(crate) resumed: bool,
}

/// Something that a tool says.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) call_id: String,
    pub(crate) said: Said,
}

#[derive(Debug)]
pub(crate) enum Said {
    Progress(Progress),
    /// The end, and the files that the call wrote, however it ended.
    Answer(Answer, BTreeSet<String>),
}

/// How far a running tool is, for clients.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    pub(crate) title: String,
    pub(crate) metadata: Map<String, Value>,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) enum Answer {
    Done(Output),
    Refused(String),
    Broken(Error),
    Fenced,
}

/// What a running tool may use.
pub(crate) struct Ctx {
    pub(crate) deps: Arc<Deps>,
    pub(crate) identity: Identity,
    pub(crate) call: Call,
    /// Files of instructions that the model was shown.
    pub(crate) shown: Arc<Mutex<BTreeSet<String>>>,
    /// How much of the answer a model is shown.
    pub(crate) bounds: Bounds,
    /// The files that the call and those inside it wrote.
    written: Arc<Mutex<BTreeSet<String>>>,
    reports: mpsc::Sender<Box<Report>>,
}

/// The running calls of one loop. Dropping it ends the tasks, not the commands in the sandbox.
pub(crate) struct Tools {
    deps: Arc<Deps>,
    identity: Identity,
    workspace: Workspace,
    permits: Arc<Semaphore>,
    sender: mpsc::Sender<Box<Report>>,
    /// Boxed: the channel keeps room for many from its beginning on.
    reports: mpsc::Receiver<Box<Report>>,
    tasks: JoinSet<()>,
    /// The calls that have no answer, by call id: the commands that each may run, and what a second run would mean.
    running: BTreeMap<String, (Vec<String>, Repeat)>,
    shown: Arc<Mutex<BTreeSet<String>>>,
    bounds: Bounds,
}

impl Tools {
    pub(crate) fn new(deps: Arc<Deps>, identity: Identity, workspace: Workspace) -> Self {
        let (sender, reports) = mpsc::channel(REPORTS_MAX);
        let permits = Arc::new(Semaphore::new(limits::TOOLS_PARALLEL_MAX));
        Self {
            bounds: Bounds::default(),
            deps,
            identity,
            workspace,
            permits,
            sender,
            reports,
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
            shown: Arc::default(),
        }
    }

    /// Who the loop is to the sandbox.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Runs calls that are no calls of a model's.
    pub(crate) fn aside(&self) -> Aside {
        Aside {
            deps: Arc::clone(&self.deps),
            identity: self.identity.clone(),
            shown: Arc::clone(&self.shown),
            bounds: self.bounds,
        }
    }

    /// Notes which files of instructions the model reads anyway: in its system prompt, or with an earlier answer.
    pub(crate) fn note_shown(&self, system: &[v1::GuidanceFile], entries: &[MessageWithParts]) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        *shown = system.iter().map(|file| file.path.clone()).collect();
        shown.extend(
            entries.iter().flat_map(|entry| &entry.parts).flat_map(|(_, part)| super::read::loaded(part)),
        );
    }

    /// Takes over what settings say of answers, for the calls that begin from now on.
    pub(crate) fn configure(&mut self, settings: &Settings) {
        self.bounds = Bounds::of(settings);
    }

    pub(crate) fn start(&mut self, call: Call) {
        let repeat = find(&call.tool).map_or(Repeat::Safe, |tool| tool.repeat(&call.input));
        let execs = super::execs(&call.tool, &call.exec_id, &call.input);
        self.running.insert(call.call_id.clone(), (execs, repeat));
        let span = tracing::info_span!(
            "execute_tool",
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = %call.tool,
            tool.name = %call.tool,
            call.id = %call.call_id,
            exec.id = %call.exec_id,
        );
        let (permits, workspace) = (Arc::clone(&self.permits), self.workspace.clone());
        let ctx = Ctx {
            deps: Arc::clone(&self.deps),
            identity: self.identity.clone(),
            call,
            shown: Arc::clone(&self.shown),
            bounds: self.bounds,
            written: Arc::default(),
            reports: self.sender.clone(),
        };
        self.tasks.spawn(
            async move {
                // The semaphore is never closed; without a permit the call would only run earlier.
                let _permit = permits.acquire_owned().await;
                let answer = AssertUnwindSafe(answer(&ctx, &workspace)).catch_unwind().await;
                let answer = answer.unwrap_or_else(|_| {
                    tracing::error!("a tool panicked");
                    Answer::Refused("The tool failed inside Flotilla. Try another way.".to_owned())
                });
                let written = std::mem::take(&mut *ctx.written());
                ctx.say(Said::Answer(answer, written)).await;
            }
            .instrument(span),
        );
    }

    /// Waits for the next report. Cancel-safe.
    pub(crate) async fn next_report(&mut self) -> Box<Report> {
        match self.reports.recv().await {
            Some(report) => {
                if matches!(report.said, Said::Answer(..)) {
                    self.running.remove(&report.call_id);
                    // Takes finished tasks off the list.
                    while self.tasks.try_join_next().is_some() {}
                }
                report
            }
            // Not reached: this struct holds a sender.
            None => std::future::pending().await,
        }
    }

    /// Ends all calls and the commands that they run, and those of `begun`. Waits only a moment for the sandbox: it refuses
    /// the next epoch's predecessor anyway, and a command's own time limit ends it at last.
    pub(crate) async fn kill_all(&mut self, begun: Vec<String>) {
        self.tasks.shutdown().await;
        let running = std::mem::take(&mut self.running).into_values().flat_map(|(execs, _)| execs);
        let execs: BTreeSet<String> = running.chain(begun).collect();
        let kills = execs.into_iter().map(|exec_id| {
            let request = v1::KillExecRequest { fence: self.identity.fence(), exec_id };
            let mut client = self.deps.sandbox.client();
            async move { client.kill_exec(request).await }
        });
        if tokio::time::timeout(KILL_WAIT, futures::future::join_all(kills)).await.is_err() {
            tracing::warn!("the sandbox did not confirm in time that the commands were ended");
        }
        while self.reports.try_recv().is_ok() {}
    }

    /// Ends the session's process in the sandbox, of a session that is parked.
    pub(crate) fn release_sandbox(&self) {
        self.deps.sandbox.release(&self.identity);
    }

    /// Whether another worker can go on with every call that runs.
    pub(crate) fn can_be_left(&self) -> bool {
        self.running.values().all(|(_, repeat)| *repeat == Repeat::Safe)
    }

    /// Ends all calls and leaves their commands running for the next worker.
    pub(crate) async fn leave_all(&mut self) {
        self.tasks.shutdown().await;
        self.running.clear();
    }
}

/// Runs calls that are no calls of a model's: nothing is shown on the way, and their answers are the caller's.
#[derive(Clone)]
pub(crate) struct Aside {
    deps: Arc<Deps>,
    identity: Identity,
    shown: Arc<Mutex<BTreeSet<String>>>,
    bounds: Bounds,
}

impl Aside {
    /// Runs a call in a workspace that is open. What the sandbox runs for `exec_id` it runs once: again attaches to it.
    pub(crate) async fn perform(&self, tool: Tool, exec_id: &str, input: Value) -> Result<Output, ToolError> {
        let (unheard, _) = mpsc::channel(1);
        let ctx = Ctx {
            deps: Arc::clone(&self.deps),
            identity: self.identity.clone(),
            call: Call {
                call_id: exec_id.to_owned(),
                exec_id: exec_id.to_owned(),
                tool: tool.name().to_owned(),
                input,
                resumed: false,
            },
            shown: Arc::clone(&self.shown),
            bounds: self.bounds,
            written: Arc::default(),
            reports: unheard,
        };
        output::bounded(&ctx, ctx.perform().await?).await
    }
}

impl Ctx {
    /// Shows how far the tool is.
    pub(crate) async fn progress(&self, title: String, metadata: Map<String, Value>) {
        self.say(Said::Progress(Progress { title, metadata })).await;
    }

    /// Notes that the call wrote a file.
    pub(super) fn wrote(&self, path: &str) {
        self.written().insert(absolute(path));
    }

    fn written(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn say(&self, said: Said) {
        let report = Report { call_id: self.call.call_id.clone(), said };
        if self.reports.send(Box::new(report)).await.is_err() {
            tracing::debug!("a report came after the loop had ended");
        }
    }

    /// Checks the call and runs it, in a workspace that is open.
    pub(crate) async fn perform(&self) -> Result<Output, ToolError> {
        let Call { tool, input, resumed, .. } = &self.call;
        let tool = find(tool).map_err(ToolError::Model)?;
        check(tool, input)?;
        // The intent is stored: whether the effect followed is not known for what an earlier worker began.
        if *resumed && tool.repeat(input) == Repeat::Unknown && !mutant::on(Mutant::RepeatUnchecked) {
            return Err(ToolError::Model(UNCERTAIN.to_owned()));
        }
        tool.run(self, input.clone()).await
    }

    /// A call inside this one. What it says on its way is not shown: the call as a whole is.
    pub(crate) fn inner(&self, number: usize, tool: &str, input: Value) -> Self {
        let (unheard, _) = mpsc::channel(1);
        Self {
            deps: Arc::clone(&self.deps),
            identity: self.identity.clone(),
            call: Call {
                exec_id: format!("{}-{number}", self.call.exec_id),
                tool: tool.to_owned(),
                input,
                ..self.call.clone()
            },
            shown: Arc::clone(&self.shown),
            bounds: self.bounds,
            written: Arc::clone(&self.written),
            reports: unheard,
        }
    }
}

async fn answer(ctx: &Ctx, workspace: &Workspace) -> Answer {
    let begun = Instant::now();
    let result = called(ctx, workspace).await;
    let outcome = match &result {
        Ok(_) => "ok",
        Err(ToolError::Model(_)) => "refused",
        Err(ToolError::Broken(_)) => "broken",
        Err(ToolError::Fenced) => "fenced",
    };
    metrics::counter!("flotilla_tool_calls_total", "outcome" => outcome).increment(1);
    metrics::histogram!("flotilla_tool_call_seconds").record(begun.elapsed().as_secs_f64());
    match result {
        Ok(output) => Answer::Done(output),
        Err(ToolError::Model(text)) => Answer::Refused(domain::text::without_nul(&text).into_owned()),
        Err(ToolError::Broken(error)) => Answer::Broken(error),
        Err(ToolError::Fenced) => Answer::Fenced,
    }
}

async fn called(ctx: &Ctx, workspace: &Workspace) -> Result<Output, ToolError> {
    workspace.ready().await.map_err(|status| ToolError::Broken(workspace::failure(&status)))?;
    let output = ctx.perform().await?;
    output::bounded(ctx, output).await
}

/// What the model is told of a change that may or may not have been made.
pub(super) const UNCERTAIN: &str = "This call was interrupted when its worker or the sandbox stopped. It may or may not have taken effect: \
                         look at the file before you repeat it.";

/// What a refusal of the sandbox means: a fault of the call is told to the model, ours ends the turn.
pub(crate) fn refused(status: &Status) -> ToolError {
    match rpc::status::code_of(status).as_deref() {
        Some("epoch_stale") => ToolError::Fenced,
        Some("sandbox_unavailable" | "token_invalid" | "workspace_missing") => {
            ToolError::Broken(workspace::failure(status))
        }
        Some(_) => ToolError::Model(status.message().to_owned()),
        None if is_away(status) => ToolError::Broken(workspace::failure(status)),
        None => ToolError::Model(format!("The sandbox refused the call: {}", status.message())),
    }
}
