//! Runs the tool calls of one step in parallel, and reports their results.

use super::perform::{perform, perform_inner};
use crate::{
    process::{clean, deps::Deps, sandbox::Identity},
    repository::workspace::Workspace,
    tools::{
        bash,
        context::{Bounds, Call, CallContext, CallEvent, Report},
        files::{
            preview::{self, PlannedFailure, Preview},
            read::loaded_instructions,
        },
        outcome::{Output, ToolError, opening_error},
        registry,
        tool::{Repeat, Tool},
    },
};
use domain::limits;
use futures::FutureExt as _;
use rpc::v1;
use serde_json::{Map, Value};
use settings::Settings;
use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use store::log::messages::MessageWithParts;
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::{Instant, timeout_at},
};
use tracing::Instrument as _;

/// Reports that can wait for the loop: a few for each running call. Then the calls wait.
const REPORTS_MAX: usize = 4 * limits::TOOLS_PARALLEL_MAX;
/// How long an abort waits for the sandbox to confirm that the commands were ended, and to give their output.
const KILL_WAIT: Duration = Duration::from_millis(700);
/// How long the loop waits for the change that a call would make, and then for what its arguments tell, before it asks a person to
/// allow the call.
const PREVIEW_WAIT: Duration = Duration::from_secs(1);

/// A call without an answer.
struct RunningCall {
    /// The exec ids of its commands in the sandbox.
    exec_ids: Vec<String>,
    repeat: Repeat,
}

/// The running calls of one loop. Dropping it ends the tasks, but not the commands in the sandbox.
pub(crate) struct RunningCalls {
    deps: Arc<Deps>,
    identity: Identity,
    workspace: Workspace,
    permits: Arc<Semaphore>,
    sender: mpsc::Sender<Box<Report>>,
    /// Boxed: the channel allocates room for many reports when it is created.
    reports: mpsc::Receiver<Box<Report>>,
    tasks: JoinSet<()>,
    /// By call id.
    running: BTreeMap<String, RunningCall>,
    seen_instructions: Arc<Mutex<BTreeSet<String>>>,
    bounds: Bounds,
}

impl RunningCalls {
    pub(crate) fn new(deps: Arc<Deps>, identity: Identity, workspace: Workspace) -> Self {
        let (sender, reports) = mpsc::channel(REPORTS_MAX);
        Self {
            bounds: Bounds::default(),
            deps,
            identity,
            workspace,
            permits: Arc::new(Semaphore::new(limits::TOOLS_PARALLEL_MAX)),
            sender,
            reports,
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
            seen_instructions: Arc::default(),
        }
    }

    /// Returns a handle that runs calls that no model made.
    pub(crate) fn silent_calls(&self) -> SilentCalls {
        SilentCalls {
            deps: Arc::clone(&self.deps),
            identity: self.identity.clone(),
            seen_instructions: Arc::clone(&self.seen_instructions),
            bounds: self.bounds,
        }
    }

    /// Records which instruction files the model reads anyway: in its system prompt, or with an earlier answer.
    pub(crate) fn note_instructions(&self, system: &[v1::GuidanceFile], entries: &[MessageWithParts]) {
        let mut seen = self.seen_instructions.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = system.iter().map(|file| file.path.clone()).collect();
        let parts = entries.iter().flat_map(|entry| &entry.parts);
        seen.extend(parts.flat_map(|(_, part)| loaded_instructions(part)));
    }

    /// Applies the settings to calls that begin from now on.
    pub(crate) fn configure(&mut self, settings: &Settings) {
        self.bounds = Bounds::of(settings);
    }

    /// Starts a call, or attaches to it if an earlier worker may have started it.
    pub(crate) fn start(&mut self, call: Call) {
        let repeat =
            registry::find(&call.tool).map_or(Repeat::Safe, |tool| registry::repeat(tool, &call.input));
        let exec_ids = registry::exec_ids(&call.tool, &call.exec_id, &call.input);
        self.running.insert(call.call_id.clone(), RunningCall { exec_ids, repeat });
        let span = tracing::info_span!(
            "execute_tool",
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = %call.tool,
            tool.name = %call.tool,
            call.id = %call.call_id,
            exec.id = %call.exec_id,
        );
        let (permits, workspace) = (Arc::clone(&self.permits), self.workspace.clone());
        let ctx = CallContext { reports: Some(self.sender.clone()), ..self.silent_calls().context(call) };
        self.tasks.spawn(
            async move {
                // The semaphore is never closed. Without a permit, the call would only run earlier.
                let _permit = permits.acquire_owned().await;
                let result = AssertUnwindSafe(run(&ctx, &workspace)).catch_unwind().await;
                let result = result.unwrap_or_else(|_| {
                    tracing::error!("a tool panicked");
                    Err(ToolError::Model("The tool failed inside Flotilla. Try another way.".to_owned()))
                });
                let written =
                    std::mem::take(&mut *ctx.written.lock().unwrap_or_else(PoisonError::into_inner));
                ctx.report(CallEvent::Ended { result, written }).await;
            }
            .instrument(span),
        );
    }

    /// Waits for the next report. Cancel-safe.
    pub(crate) async fn next_report(&mut self) -> Box<Report> {
        let Some(report) = self.reports.recv().await else {
            // Unreachable, because this struct holds a sender.
            return std::future::pending().await;
        };
        match &report.event {
            CallEvent::Progress(_) => {}
            CallEvent::Ended { .. } => {
                self.running.remove(&report.call_id);
                // Removes finished tasks from the set.
                while self.tasks.try_join_next().is_some() {}
            }
        }
        report
    }

    /// Ends all calls and their commands, and the commands in `begun`. Returns the answers of the ended commands by exec id, as far
    /// as the sandbox gives them. Waits only briefly for the sandbox: it refuses calls of this epoch once another worker takes over,
    /// and every command has its own time limit.
    pub(crate) async fn kill_all(&mut self, begun: Vec<String>) -> BTreeMap<String, Output> {
        self.tasks.shutdown().await;
        let running = std::mem::take(&mut self.running).into_values().flat_map(|call| call.exec_ids);
        let exec_ids: BTreeSet<String> = running.chain(begun).collect();
        let until = Instant::now() + KILL_WAIT;
        let calls = self.silent_calls();
        let kills = exec_ids.into_iter().map(|exec_id| calls.kill(exec_id, until));
        let answers: BTreeMap<String, Output> =
            futures::future::join_all(kills).await.into_iter().flatten().collect();
        while self.reports.try_recv().is_ok() {}
        answers
    }

    /// Whether another worker can continue every running call.
    pub(crate) fn can_be_left(&self) -> bool {
        self.running.values().all(|call| call.repeat == Repeat::Safe)
    }

    /// Ends all calls and leaves their commands running for the next worker.
    pub(crate) async fn leave_all(&mut self) {
        self.tasks.shutdown().await;
        self.running.clear();
    }
}

/// Runs calls that no model made, and prepares and ends those of models. Clients do not see the progress of these calls, and the
/// caller gets their answers.
#[derive(Clone)]
pub(crate) struct SilentCalls {
    deps: Arc<Deps>,
    identity: Identity,
    seen_instructions: Arc<Mutex<BTreeSet<String>>>,
    bounds: Bounds,
}

impl SilentCalls {
    /// Runs a call in an open workspace. The sandbox runs each `exec_id` once: a repeated call attaches to it.
    pub(crate) async fn perform(&self, tool: Tool, exec_id: &str, input: Value) -> Result<Output, ToolError> {
        let ctx = self.context(Call {
            call_id: exec_id.to_owned(),
            exec_id: exec_id.to_owned(),
            tool: tool.name().to_owned(),
            input,
            resumed: false,
            person_timeout_ms: None,
        });
        perform(&ctx).await
    }

    /// Describes the change of files that a call would make, for the person whom the session asks for permission. If the sandbox does
    /// not answer soon, the description tells what the arguments alone tell. Empty for a call that changes no files by itself.
    pub(crate) async fn preview(&self, workspace: &Workspace, call: Call) -> Preview {
        let Ok(tool) = registry::find(&call.tool) else { return Preview::Change(Map::new()) };
        let changes = preview::file_calls(tool, &call.input);
        if changes.is_empty() {
            return Preview::Change(Map::new());
        }
        let ctx = self.context(call);
        let planned = async {
            workspace.ready().await.ok()?;
            Some(preview::of_files(&ctx, &changes).await)
        };
        match tokio::time::timeout(PREVIEW_WAIT, planned).await {
            Ok(Some(Preview::Change(change))) => Preview::Change(clean::map(change)),
            Ok(Some(Preview::Failure(PlannedFailure { answer, paths, written }))) => {
                let written = clean::map(written);
                if tool == Tool::Batch {
                    // Its other calls may still succeed.
                    return Preview::Change(written);
                }
                Preview::Failure(PlannedFailure { answer, paths, written })
            }
            Ok(None) | Err(_) => {
                let told = tokio::time::timeout(PREVIEW_WAIT, preview::of_arguments(&ctx, &changes)).await;
                Preview::Change(clean::map(told.unwrap_or_else(|_| preview::names(&changes))))
            }
        }
    }

    /// Ends a command, and returns its answer with its id if the sandbox knows the command.
    async fn kill(&self, exec_id: String, until: Instant) -> Option<(String, Output)> {
        let (fence, sandbox) = (self.identity.fence(), &self.deps.sandbox);
        let request = v1::KillExecRequest { fence: fence.clone(), exec_id: exec_id.clone() };
        if timeout_at(until, sandbox.client().kill_exec(request)).await.is_err() {
            tracing::warn!("the sandbox did not confirm in time that a command was ended");
        }
        let request = v1::AttachExecRequest { fence, exec_id: exec_id.clone(), from_offset_bytes: 0 };
        let output = bash::read_aborted(sandbox, request, self.bounds, until).await?;
        Some((exec_id, output))
    }

    fn context(&self, call: Call) -> CallContext {
        CallContext {
            deps: Arc::clone(&self.deps),
            identity: self.identity.clone(),
            call,
            seen_instructions: Arc::clone(&self.seen_instructions),
            bounds: self.bounds,
            written: Arc::default(),
            reports: None,
            perform_inner,
        }
    }
}

async fn run(ctx: &CallContext, workspace: &Workspace) -> Result<Output, ToolError> {
    let begun = Instant::now();
    let result = run_in_workspace(ctx, workspace).await;
    let outcome = match &result {
        Ok(_) => "ok",
        Err(ToolError::Model(_)) => "refused",
        Err(ToolError::Broken(_)) => "broken",
        Err(ToolError::Fenced) => "fenced",
    };
    metrics::counter!("flotilla_tool_calls_total", "outcome" => outcome).increment(1);
    metrics::histogram!("flotilla_tool_call_seconds").record(begun.elapsed().as_secs_f64());
    result
}

async fn run_in_workspace(ctx: &CallContext, workspace: &Workspace) -> Result<Output, ToolError> {
    if registry::find(&ctx.call.tool).is_ok_and(|tool| !tool.needs_files()) {
        return perform(ctx).await;
    }
    workspace.ready().await.map_err(|status| opening_error(&status))?;
    let network = workspace.egress().ready().await;
    if let Err(status) = network
        && registry::uses_network(&ctx.call.tool)
    {
        let code = rpc::status::code_of(&status).unwrap_or_default();
        let text = format!(
            "The rules of the network could not be set, so nothing ran: {} ({code}).",
            status.message()
        );
        return Err(ToolError::Model(text));
    }
    perform(ctx).await
}
