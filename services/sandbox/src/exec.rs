//! One exec: its record on disk, who may read along, and its end.
//!
//! An exec belongs to its session, not to the call that started it: it runs on when the caller is gone, and whoever asks
//! for its id later gets its output from the disk. What a restart of the service interrupted is `LOST`.

pub mod attach;
pub mod registry;

use crate::{
    error::Error,
    layout,
    sandbox::{Event, Sandbox},
    session::Use,
    wire,
};
use domain::limits;
use rpc::v1::{ExecEnd, ExecExit};
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    io::AsyncWriteExt as _,
    sync::{mpsc, watch},
};

/// Where the output of all execs of a session, and what else was kept of its tools, is seen from inside.
pub const OUT_INSIDE: &str = domain::session::OUTPUTS;
/// The init ends an exec in time; when it does not answer this much later, the sandbox is ended.
const BACKSTOP: Duration = Duration::from_secs(15);
/// 128 + SIGKILL: how a shell reports a killed child.
const CODE_KILLED: i32 = 137;
/// 128 + SIGXFSZ.
const CODE_FILE_SIZE: i32 = 153;

const SPEC: &str = "spec.json";
const STATE: &str = "state.json";
const OUTPUT: &str = "output";

/// `spec.json`: what was asked for. `{"exec_id":"call_1","timeout_ms":120000,"output_bytes_max":10485760,"epoch":3}`.
/// Not the command and its environment, which may hold secrets: nobody reads them again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// As the caller names it.
    pub exec_id: String,
    /// From the start; milliseconds.
    pub timeout_ms: u64,
    /// Kept at most.
    pub output_bytes_max: u64,
    /// Of the caller.
    pub epoch: u64,
}

/// `state.json`: how it ended. `{"end":1,"code":0,"signal":0,"output_bytes":12,"dropped_bytes":0,"duration_ms":40,"message":""}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct End {
    /// An [`ExecEnd`] as its number.
    pub end: i32,
    /// When it exited by itself.
    pub code: i32,
    /// 0: none.
    pub signal: i32,
    /// In the file.
    pub output_bytes: u64,
    /// Beyond the limit.
    pub dropped_bytes: u64,
    /// From the start.
    pub duration_ms: u64,
    /// For the model, when a limit ended it.
    pub message: String,
}

impl End {
    /// The end of an exec that nobody watched to its end.
    pub fn lost(output_bytes: u64) -> Self {
        let message = "the sandbox stopped while the command ran; it is not known what it did".to_owned();
        Self { end: ExecEnd::Lost.into(), output_bytes, message, ..Self::default() }
    }

    /// As the caller sees it.
    pub fn to_exit(&self, directory: &Path) -> ExecExit {
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
        }
    }
}

/// How far an exec is.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Output on disk.
    pub output_bytes: u64,
    /// Its number in its sandbox, once it runs.
    pub number: Option<u64>,
    /// Somebody asked for its end, perhaps before it ran.
    pub is_killed: bool,
    /// It never ran, and never will under this entry.
    pub is_cancelled: bool,
    /// Set once, last.
    pub end: Option<End>,
}

/// An exec that runs, or is about to.
#[derive(Debug)]
pub struct Exec {
    /// Of its files.
    pub directory: PathBuf,
    /// How far it is.
    pub progress: watch::Sender<Progress>,
}

/// The task that writes down what an exec does.
#[derive(Debug)]
pub struct Recorder {
    /// Which.
    pub exec: Arc<Exec>,
    /// Keeps the sandbox alive.
    pub sandbox: Use,
    /// From the sandbox.
    pub events: mpsc::Receiver<Event>,
    /// As asked for.
    pub spec: Spec,
    /// What the control group had counted before.
    pub before: crate::isolation::cgroup::Events,
    /// The limits, for the text to the model.
    pub limits: crate::isolation::Limits,
}

impl Recorder {
    /// Records to the end and gives it. The state is on disk before anybody is told.
    pub async fn run(mut self) -> End {
        let started = Instant::now();
        let mut end = match self.record(started).await {
            Ok(end) => end,
            Err(error) => {
                tracing::error!("the output of an exec could not be written: {}", chain(&error));
                let mut end = End::lost(self.exec.progress.borrow().output_bytes);
                end.message =
                    "the output of the command could not be kept: the disk of the sandbox service failed"
                        .to_owned();
                end
            }
        };
        end.duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        write_end(&self.exec.directory, &end).await;
        // Before anybody is told: whoever knows that the exec is over may ask for the end of the sandbox.
        drop(self.sandbox);
        self.exec.progress.send_modify(|progress| progress.end = Some(end.clone()));
        let name = ExecEnd::try_from(end.end).unwrap_or_default().as_str_name();
        metrics::counter!("flotilla_execs_ended_total", "end" => name).increment(1);
        metrics::histogram!("flotilla_exec_duration_ms").record(end.duration_ms as f64);
        tracing::debug!(duration_ms = end.duration_ms, end = name, "an exec ended");
        end
    }

    async fn record(&mut self, started: Instant) -> Result<End, Error> {
        let path = self.exec.directory.join(OUTPUT);
        let mut file =
            tokio::fs::File::options().append(true).open(path).await.map_err(Error::io("open the output"))?;
        let backstop = started + Duration::from_millis(self.spec.timeout_ms) + BACKSTOP;
        let backstop = tokio::time::sleep_until(backstop.into());
        tokio::pin!(backstop);
        let mut late = false;
        loop {
            let event = tokio::select! {
                event = self.events.recv() => event,
                () = &mut backstop, if !late => {
                    late = true;
                    tracing::warn!("an exec did not end in time; its sandbox is ended");
                    self.sandbox.sandbox().stop().await;
                    continue;
                }
            };
            match event {
                Some(Event::Output(data)) => {
                    file.write_all(&data).await.map_err(Error::io("write output"))?;
                    file.flush().await.map_err(Error::io("write output"))?;
                    self.exec.progress.send_modify(|progress| progress.output_bytes += data.len() as u64);
                }
                Some(Event::Exit(exit)) => return Ok(self.explain(&exit)),
                None if late => {
                    let mut end = End::lost(self.exec.progress.borrow().output_bytes);
                    end.end = ExecEnd::Timeout.into();
                    end.message = self.timeout_text();
                    return Ok(end);
                }
                None => return Ok(End::lost(self.exec.progress.borrow().output_bytes)),
            }
        }
    }

    /// Finds out which limit ended it and says so in words that help a model.
    fn explain(&self, exit: &wire::Exit) -> End {
        let after = self.sandbox.sandbox().events();
        let out_of_memory = after.memory_kills > self.before.memory_kills;
        let out_of_processes = after.fork_refusals > self.before.fork_refusals;
        let killed = exit.signal == libc::SIGKILL || exit.code == CODE_KILLED;
        let too_large = exit.signal == libc::SIGXFSZ || exit.code == CODE_FILE_SIZE;
        let failed = exit.code != 0 || exit.signal != 0;
        let end = match exit.end() {
            ExecEnd::Exited if out_of_memory && killed => ExecEnd::MemoryLimit,
            ExecEnd::Exited if too_large => ExecEnd::DiskLimit,
            ExecEnd::Exited if out_of_processes && failed => ExecEnd::ProcessLimit,
            end => end,
        };
        let memory = self.limits.memory_bytes >> 20;
        let message = match end {
            ExecEnd::Timeout => self.timeout_text(),
            ExecEnd::MemoryLimit => {
                format!("killed: used more than {memory} MiB of memory; lower parallelism or work in parts")
            }
            ExecEnd::ProcessLimit => {
                format!("failed: needed more than {} processes; lower parallelism", self.limits.processes)
            }
            ExecEnd::DiskLimit => format!(
                "killed: the workspace, or one file in it, grew beyond {} MiB; remove what is not needed",
                self.limits.disk_bytes >> 20
            ),
            ExecEnd::Exited if out_of_memory => {
                format!("a process of it was killed: all together used more than {memory} MiB of memory")
            }
            ExecEnd::Exited | ExecEnd::Killed | ExecEnd::Lost | ExecEnd::Unspecified => String::new(),
        };
        End {
            end: end.into(),
            code: exit.code,
            signal: exit.signal,
            output_bytes: exit.kept_bytes,
            dropped_bytes: exit.dropped_bytes,
            duration_ms: 0,
            message,
        }
    }

    fn timeout_text(&self) -> String {
        let seconds = self.spec.timeout_ms.div_ceil(1_000);
        format!(
            "stopped after {seconds} s with everything it had started; start servers in the background with `&`"
        )
    }
}

/// Makes the files of an exec in its directory, which exists.
///
/// # Errors
/// Those of the file system.
pub async fn write_spec(directory: &Path, spec: &Spec) -> Result<(), Error> {
    let (directory, spec) = (directory.to_owned(), spec.clone());
    blocking("write an exec's files", move || {
        layout::replace(&directory.join(SPEC), &serde_json::to_vec(&spec)?)?;
        std::fs::File::create_new(directory.join(OUTPUT)).map(drop)
    })
    .await
}

/// Reads how an exec ended; `None` if that was not written.
pub async fn read_end(directory: &Path) -> Option<End> {
    let bytes = tokio::fs::read(directory.join(STATE)).await.ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Writes how an exec ended. A failure is logged: the exec then counts as lost after a restart.
pub async fn write_end(directory: &Path, end: &End) {
    let (path, end) = (directory.join(STATE), end.clone());
    // Lost with the machine, it makes the exec count as lost, which is then as good as true.
    let write = move || layout::replace_quickly(&path, &serde_json::to_vec(&end)?);
    let written = blocking("write an exec's end", write).await;
    if let Err(error) = written {
        tracing::error!("{}", chain(&error));
    }
}

/// Asks for the end of an exec. One that is about to start ends as soon as it has.
pub async fn ask_to_end(exec: &Exec, sandbox: Option<&Sandbox>) {
    exec.progress.send_modify(|progress| progress.is_killed = true);
    let number = exec.progress.borrow().number;
    if let Some((number, sandbox)) = number.zip(sandbox) {
        sandbox.kill(number).await;
    }
}

/// Waits until an exec that was asked to end is over. Gives whether it ever ran.
pub async fn wait_for_end(exec: &Exec) -> bool {
    let mut progress = exec.progress.subscribe();
    let grace = Duration::from_millis(limits::EXEC_KILL_GRACE_MS) + BACKSTOP;
    let is_over = |progress: &Progress| progress.end.is_some() || progress.is_cancelled;
    // A tree that does not die is ended with its sandbox by the recorder; the caller need not wait for that.
    drop(tokio::time::timeout(grace, progress.wait_for(is_over)).await);
    !exec.progress.borrow().is_cancelled
}

/// Ends an exec that runs.
pub async fn kill(exec: &Exec, sandbox: &Sandbox) {
    ask_to_end(exec, Some(sandbox)).await;
    wait_for_end(exec).await;
}

async fn blocking(
    doing: &'static str,
    work: impl FnOnce() -> std::io::Result<()> + Send + 'static,
) -> Result<(), Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(Error::io(doing))
}

fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
