//! The record of one exec: its files on disk, and its progress in memory.

use crate::{
    error::{Error, blocking},
    layout,
};
use rpc::v1::{ExecEnd, ExecExit};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::sync::watch;

/// The directory inside the sandbox with the outputs of the session's execs and tools.
pub const OUT_INSIDE: &str = domain::session::OUTPUTS;
/// The init ends an exec at its timeout. An init that has not done so this much later does not work, so its sandbox is
/// ended.
pub(super) const BACKSTOP: Duration = Duration::from_secs(15);

pub(super) const SPEC: &str = "spec.json";
pub(super) const STATE: &str = "state.json";
pub(super) const OUTPUT: &str = "output";
/// An empty file that marks the first exec in a sandbox that replaced an earlier one.
const IN_NEW_SANDBOX: &str = "in_new_sandbox";
/// A file that says what went wrong when the sandbox started. Only the first exec in a sandbox has it.
const START_FAILURE: &str = "start_failure";

/// `spec.json`: the parameters of an exec.
/// `{"exec_id":"call_1","timeout_ms":120000,"output_bytes_max":10485760,"epoch":3}`. Without the command and its
/// environment, which may hold secrets and are never read again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The id that the caller chose.
    pub exec_id: String,
    /// From the start; milliseconds.
    pub timeout_ms: u64,
    /// Bytes of output that are kept at most.
    pub output_bytes_max: u64,
    /// The caller's epoch.
    pub epoch: u64,
}

/// `state.json`: how it ended. `{"end":1,"code":0,"signal":0,"output_bytes":12,"dropped_bytes":0,"duration_ms":40,"message":""}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExecOutcome {
    /// An [`ExecEnd`] as its number.
    pub end: i32,
    /// The exit code, if the command exited by itself.
    pub code: i32,
    /// 0: none.
    pub signal: i32,
    /// Bytes of output in the file.
    pub output_bytes: u64,
    /// Bytes of output beyond the limit.
    pub dropped_bytes: u64,
    /// From the start.
    pub duration_ms: u64,
    /// For the model, if a limit ended the command.
    pub message: String,
}

impl ExecOutcome {
    /// The outcome of an exec whose end was not seen.
    pub fn lost(output_bytes: u64) -> Self {
        let message = "the sandbox stopped while the command ran; its outcome is unknown".to_owned();
        Self { end: ExecEnd::Lost.into(), output_bytes, message, ..Self::default() }
    }

    /// The outcome of an exec whose entry a crash of the machine may have removed.
    pub fn lost_with_entry() -> Self {
        let message =
            "the machine was restarted; the command may have run before, and its outcome is unknown";
        Self { message: message.to_owned(), ..Self::lost(0) }
    }

    /// As the caller sees it.
    pub async fn to_exit(&self, directory: &Path) -> ExecExit {
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        ExecExit {
            end: self.end,
            code: self.code,
            signal: self.signal,
            output_bytes: self.output_bytes,
            dropped_bytes: self.dropped_bytes,
            duration_ms: self.duration_ms,
            message: self.message.clone(),
            spill_path: format!("{OUT_INSIDE}/{name}/{OUTPUT}"),
            in_new_sandbox: tokio::fs::try_exists(directory.join(IN_NEW_SANDBOX)).await.unwrap_or(false),
            start_failure: tokio::fs::read_to_string(directory.join(START_FAILURE)).await.unwrap_or_default(),
        }
    }
}

/// How far an exec is.
#[derive(Debug, Clone, Default)]
pub struct ExecProgress {
    /// Output on disk.
    pub output_bytes: u64,
    /// Its number in the sandbox, once it runs.
    pub number: Option<u64>,
    /// A caller killed it, perhaps before it ran.
    pub is_killed: bool,
    /// It never ran, and this entry will never run.
    pub is_cancelled: bool,
    /// Set once, last.
    pub end: Option<ExecOutcome>,
}

/// An exec that runs or is about to run.
#[derive(Debug)]
pub struct Exec {
    /// The directory of its files.
    pub directory: PathBuf,
    pub progress: watch::Sender<ExecProgress>,
}

/// Makes the files of an exec in its directory, which exists. A crash of the machine may undo it. Blocks.
pub fn write_spec(directory: &Path, spec: &Spec) -> io::Result<()> {
    layout::replace_quickly(&directory.join(SPEC), &serde_json::to_vec(spec)?)?;
    fs::File::create_new(directory.join(OUTPUT)).map(drop)
}

/// Marks the first exec in a sandbox that replaced an earlier one.
pub async fn mark_in_new_sandbox(directory: &Path) -> Result<(), Error> {
    tokio::fs::write(directory.join(IN_NEW_SANDBOX), []).await.map_err(Error::io("mark an exec"))
}

/// Marks the first exec in a sandbox at whose start something went wrong.
pub async fn mark_start_failure(directory: &Path, failure: &str) -> Result<(), Error> {
    tokio::fs::write(directory.join(START_FAILURE), failure).await.map_err(Error::io("mark an exec"))
}

/// Reads the outcome of an exec; `None` if it was not written.
pub async fn read_end(directory: &Path) -> Option<ExecOutcome> {
    let bytes = tokio::fs::read(directory.join(STATE)).await.ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Writes the outcome of an exec. A failure is logged; the exec then counts as lost after a restart.
pub async fn write_end(directory: &Path, end: &ExecOutcome) {
    let (path, end) = (directory.join(STATE), end.clone());
    // If the machine crashes and the file is gone, the exec counts as lost, which is close enough to the truth.
    let write = move || layout::replace_quickly(&path, &serde_json::to_vec(&end)?);
    let written = blocking("write an exec's end", write).await;
    if let Err(error) = written {
        tracing::error!("{}", error.chain());
    }
}
