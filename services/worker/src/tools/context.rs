//! The context of a running tool.

use super::{
    outcome::{Output, ToolError},
    path::absolute,
};
use crate::process::{deps::Deps, sandbox::Identity};
use convert_client::converter::TenantConverter;
use domain::limits;
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use settings::Settings;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::mpsc;

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) call_id: String,
    /// The call's id in the sandbox: identical in every attempt, by every worker.
    pub(crate) exec_id: String,
    pub(crate) tool: String,
    pub(crate) input: Value,
    /// Whether an earlier worker already stored the start of the call.
    pub(crate) resumed: bool,
    /// The milliseconds after which a command of a person is ended. `None`: a model made the call, whose arguments say it.
    pub(crate) person_timeout_ms: Option<u32>,
}

/// The progress of a running tool, for clients.
#[derive(Debug, Clone)]
pub(crate) struct ToolProgress {
    pub(crate) title: String,
    pub(crate) metadata: Map<String, Value>,
}

/// How much of an answer the model sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) lines: usize,
    pub(crate) bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { lines: limits::TOOL_OUTPUT_LINES_MAX, bytes: limits::TOOL_OUTPUT_BYTES_MAX }
    }
}

impl Bounds {
    /// The bounds from the settings, which were validated when they were read.
    pub(crate) fn of(settings: &Settings) -> Self {
        let or = |configured: Option<u64>, usual: usize| {
            configured.and_then(|value| usize::try_from(value).ok()).map_or(usual, |value| value.max(1))
        };
        let (usual, configured) = (Self::default(), &settings.tool_output);
        Self { lines: or(configured.max_lines, usual.lines), bytes: or(configured.max_bytes, usual.bytes) }
    }
}

/// An event of a running call for its loop.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) call_id: String,
    pub(crate) event: CallEvent,
}

/// The kinds of events of a running call.
#[derive(Debug)]
pub(crate) enum CallEvent {
    Progress(ToolProgress),
    Ended {
        result: Result<Output, ToolError>,
        /// The files that the call wrote, whatever its result.
        written: BTreeSet<String>,
    },
}

/// Performs a call inside another call. It is validated and bounded like a separate call. The permission for the outer
/// call covers it.
pub(crate) type PerformInner = for<'a> fn(&'a CallContext) -> BoxFuture<'a, Result<Output, ToolError>>;

/// The context of a running tool.
pub(crate) struct CallContext {
    pub(crate) deps: Arc<Deps>,
    pub(crate) identity: Identity,
    pub(crate) call: Call,
    /// Instruction files that the model has already seen.
    pub(crate) seen_instructions: Arc<Mutex<BTreeSet<String>>>,
    pub(crate) bounds: Bounds,
    /// The files that the call and the calls inside it wrote.
    pub(crate) written: Arc<Mutex<BTreeSet<String>>>,
    /// `None`: clients do not see the progress of this call.
    pub(crate) reports: Option<mpsc::Sender<Box<Report>>>,
    pub(crate) perform_inner: PerformInner,
}

impl CallContext {
    /// The conversions of the session's tenant.
    pub(crate) fn converter(&self) -> TenantConverter<'_> {
        self.deps.converter.of(self.identity.tenant)
    }

    /// Reports the tool's progress to clients.
    pub(crate) async fn show_progress(&self, title: String, metadata: Map<String, Value>) {
        self.report(CallEvent::Progress(ToolProgress { title, metadata })).await;
    }

    /// Sends an event to the loop.
    pub(crate) async fn report(&self, event: CallEvent) {
        let Some(reports) = &self.reports else { return };
        let report = Report { call_id: self.call.call_id.clone(), event };
        if reports.send(Box::new(report)).await.is_err() {
            tracing::debug!("a report came after the loop had ended");
        }
    }

    /// Records that the call wrote a file.
    pub(crate) fn note_written(&self, path: &str) {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).insert(absolute(path));
    }

    /// Creates the context of a call inside this one. Its progress is not reported: clients see the progress of the
    /// outer call.
    pub(crate) fn inner(&self, number: usize, tool: &str, input: Value) -> Self {
        Self {
            deps: Arc::clone(&self.deps),
            identity: self.identity.clone(),
            call: Call {
                exec_id: format!("{}-{number}", self.call.exec_id),
                tool: tool.to_owned(),
                input,
                ..self.call.clone()
            },
            seen_instructions: Arc::clone(&self.seen_instructions),
            bounds: self.bounds,
            written: Arc::clone(&self.written),
            reports: None,
            perform_inner: self.perform_inner,
        }
    }
}
