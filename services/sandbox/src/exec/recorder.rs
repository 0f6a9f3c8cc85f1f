//! The task that records what an exec does.

use super::record::{BACKSTOP, Exec, ExecOutcome, OUTPUT, Spec, write_end};
use crate::{
    error::Error,
    isolation::{cgroup, policy::Limits},
    running::guard::SandboxGuard,
    sandbox::Event,
};
use rpc::v1::ExecEnd;
use sandbox_wire::v1::Exit;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{io::AsyncWriteExt as _, sync::mpsc};

/// 128 + SIGKILL: how a shell reports a killed child.
const CODE_KILLED: i32 = 137;
/// 128 + SIGXFSZ.
const CODE_FILE_SIZE: i32 = 153;

/// The task that records what an exec does.
#[derive(Debug)]
pub struct Recorder {
    /// The exec that it records.
    pub exec: Arc<Exec>,
    /// Keeps the sandbox from ending.
    pub sandbox: SandboxGuard,
    /// The events from the sandbox.
    pub events: mpsc::Receiver<Event>,
    pub spec: Spec,
    /// The counters of the control group before the start.
    pub before: cgroup::Events,
    /// The limits, for the text to the model.
    pub limits: Limits,
}

impl Recorder {
    /// Records the exec to its end and returns the outcome. The outcome is on disk before any caller sees it.
    pub async fn run(mut self) -> ExecOutcome {
        let started = Instant::now();
        let mut end = match self.record(started).await {
            Ok(end) => end,
            Err(error) => {
                tracing::error!("the output of an exec could not be written: {}", error.chain());
                let mut end = ExecOutcome::lost(self.exec.progress.borrow().output_bytes);
                end.message =
                    "the output of the command could not be kept: the disk of the sandbox service failed"
                        .to_owned();
                end
            }
        };
        end.duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        write_end(&self.exec.directory, &end).await;
        self.sandbox.disk().note_end();
        // Drop it before the outcome is published: a caller that sees the outcome may release the sandbox at once.
        drop(self.sandbox);
        self.exec.progress.send_modify(|progress| progress.end = Some(end.clone()));
        let name = ExecEnd::try_from(end.end).unwrap_or_default().as_str_name();
        metrics::counter!("flotilla_execs_ended_total", "end" => name).increment(1);
        metrics::histogram!("flotilla_exec_duration_ms").record(end.duration_ms as f64);
        tracing::debug!(duration_ms = end.duration_ms, end = name, "an exec ended");
        end
    }

    async fn record(&mut self, started: Instant) -> Result<ExecOutcome, Error> {
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
                    let mut end = ExecOutcome::lost(self.exec.progress.borrow().output_bytes);
                    end.end = ExecEnd::Timeout.into();
                    end.message = self.timeout_text();
                    return Ok(end);
                }
                None => return Ok(self.lost()),
            }
        }
    }

    /// The outcome of a command that ended with its sandbox.
    fn lost(&self) -> ExecOutcome {
        let lost = ExecOutcome::lost(self.exec.progress.borrow().output_bytes);
        // The kernel may choose the program that holds the sandbox together, as gVisor does.
        if self.sandbox.sandbox().events().memory_kills == self.before.memory_kills {
            return lost;
        }
        let message = self.memory_text("killed with everything else in the sandbox");
        ExecOutcome { end: ExecEnd::MemoryLimit.into(), signal: libc::SIGKILL, message, ..lost }
    }

    /// Determines which limit ended the command, and describes it for a model.
    fn explain(&self, exit: &Exit) -> ExecOutcome {
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
        let message = match end {
            ExecEnd::Timeout => self.timeout_text(),
            ExecEnd::MemoryLimit => self.memory_text("killed"),
            ExecEnd::ProcessLimit => {
                format!("failed: needed more than {} processes; lower parallelism", self.limits.processes)
            }
            ExecEnd::DiskLimit => self.sandbox.disk().explain_end(),
            ExecEnd::Exited if out_of_memory => {
                let memory = self.limits.memory_bytes >> 20;
                format!(
                    "one of its processes was killed: together they used more than {memory} MiB of memory"
                )
            }
            ExecEnd::Exited | ExecEnd::Killed | ExecEnd::Lost | ExecEnd::Unspecified => String::new(),
        };
        ExecOutcome {
            end: end.into(),
            code: exit.code,
            signal: exit.signal,
            output_bytes: exit.kept_bytes,
            dropped_bytes: exit.dropped_bytes,
            duration_ms: 0,
            message,
        }
    }

    /// Says what a limit of memory did to the command.
    fn memory_text(&self, what: &str) -> String {
        let memory = self.limits.memory_bytes >> 20;
        format!("{what}: used more than {memory} MiB of memory; lower parallelism or work in parts")
    }

    fn timeout_text(&self) -> String {
        let time = match self.spec.timeout_ms {
            whole if whole.is_multiple_of(1_000) => format!("{} s", whole / 1_000),
            ms => format!("{ms} ms"),
        };
        format!("stopped after {time} with everything it had started")
    }
}
