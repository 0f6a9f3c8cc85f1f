//! The script that the settings run in each new sandbox (`environment.start`). It runs as a command of the agent, before the first exec or terminal of the
//! sandbox. What it leaves in the background stays as long as the sandbox. A script that fails or takes too long ends nothing but itself.

use crate::{
    disk::workspace::{Purpose, WorkspaceDisk},
    error::Error,
    exec::{
        registry::Registry,
        tail::Tail,
        variables::{NO_TERMINAL, environment},
    },
    running::{guard::SandboxGuard, start::SandboxStart},
    sandbox::Event,
    session::caller::Caller,
    tree::meta::Meta,
};
use rpc::v1::ExecEnd;
use sandbox_wire::v1::{Exec, Exit};
use std::{collections::HashMap, sync::Arc, time::Duration};

/// The output among those of the tools of a session.
const OUTPUT_ID: &str = "environment.start";
/// What people and models see of the output of a script that went wrong.
const LINES_SHOWN: usize = 20;
const LINES_SHOWN_BYTES: usize = 2 * 1024;
/// The init ends the script at its time limit. An init that has not done so this much later does not work, and the script counts as ended.
const BACKSTOP: Duration = Duration::from_secs(15);

/// Runs the script of the workspace in a sandbox, unless that was done, and returns when it has ended.
///
/// Dropped midway: the script goes on.
pub async fn run(caller: &Caller, guard: &SandboxGuard, meta: &Meta) {
    if meta.start.is_empty() {
        return;
    }
    let start = Arc::clone(guard.start());
    if start.begin() {
        let shared = &caller.session.shared;
        let script = StartScript {
            disk: Arc::clone(&caller.root.disk),
            execs: Arc::clone(&caller.session.execs),
            guard: guard.another(),
            limit: Duration::from_millis(shared.config.start_ms),
            exec: Exec {
                command: meta.start.clone(),
                env: environment(HashMap::new(), NO_TERMINAL, &shared.doors.variables(), &meta.env),
                timeout_ms: shared.config.start_ms,
                // Of a long output, the service keeps the end.
                output_bytes_max: u64::MAX,
                ..Exec::default()
            },
        };
        let landing = Landing { start: Arc::clone(&start), failure: Some(told("was interrupted")) };
        shared.tasks.spawn("sandbox start", script.run(landing));
    }
    start.over().await;
}

/// The script in one sandbox.
struct StartScript {
    disk: Arc<WorkspaceDisk>,
    execs: Arc<Registry>,
    /// Keeps the sandbox from ending.
    guard: SandboxGuard,
    limit: Duration,
    exec: Exec,
}

/// Ends a start however its task ends: its callers wait for it.
struct Landing {
    start: Arc<SandboxStart>,
    failure: Option<String>,
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.start.end(self.failure.take());
    }
}

impl StartScript {
    async fn run(self, mut landing: Landing) {
        let mut log = Tail::default();
        let what = match self.execute(&mut log).await {
            Ok(exit) => self.explain(&exit),
            Err(error) => Some(format!("did not run: {error}")),
        };
        self.guard.disk().note_end();
        let path = self.execs.keep(OUTPUT_ID, log.to_vec()).await;
        let path =
            path.inspect_err(|error| tracing::warn!("the output of a start is lost: {}", error.chain()));
        let is_failure = what.is_some();
        metrics::counter!("flotilla_sandbox_starts_total", "code" => if is_failure { "failed" } else { "ok" })
            .increment(1);
        landing.failure = what.map(|what| {
            let lines = log.last_lines(LINES_SHOWN, LINES_SHOWN_BYTES);
            match path {
                Ok(path) if !lines.trim().is_empty() => {
                    format!("{}; its output is in {path}, and ends with:\n{lines}", told(&what))
                }
                Ok(_) | Err(_) => format!("{}; it printed nothing", told(&what)),
            }
        });
        // Released before the callers go on: they may release the sandbox at once.
        drop(self);
    }

    async fn execute(&self, log: &mut Tail) -> Result<Exit, Error> {
        // In a full workspace only commands run that make it smaller.
        self.disk.admit(Purpose::Write).await?;
        let mut events = self.guard.sandbox().exec(self.exec.clone()).await?.events;
        let lost = Exit { end: ExecEnd::Lost.into(), ..Exit::default() };
        let read = async {
            while let Some(event) = events.recv().await {
                match event {
                    Event::Output(data) => log.push(&data),
                    Event::Exit(exit) => return exit,
                }
            }
            lost
        };
        let late = Exit { end: ExecEnd::Timeout.into(), ..Exit::default() };
        Ok(tokio::time::timeout(self.limit + BACKSTOP, read).await.unwrap_or(late))
    }

    /// What went wrong, if anything did.
    fn explain(&self, exit: &Exit) -> Option<String> {
        match exit.end() {
            ExecEnd::Exited if exit.code == 0 && exit.signal == 0 => None,
            ExecEnd::Exited if exit.signal != 0 => Some(format!("was ended by signal {}", exit.signal)),
            ExecEnd::Exited => Some(format!("failed with exit code {}", exit.code)),
            ExecEnd::Timeout => Some(format!(
                "was ended after {} s with everything that it had started; start servers in the background with `&`",
                self.limit.as_secs_f64()
            )),
            ExecEnd::MemoryLimit => Some("was ended, because it used too much memory".to_owned()),
            ExecEnd::ProcessLimit => Some("failed, because it needed too many processes".to_owned()),
            ExecEnd::DiskLimit => Some(format!("was ended: {}", self.disk.explain_end())),
            ExecEnd::Killed | ExecEnd::Lost | ExecEnd::Unspecified => Some("was interrupted".to_owned()),
        }
    }
}

/// A sentence about the script.
fn told(what: &str) -> String {
    format!("`environment.start`, which prepares this sandbox, {what}")
}
