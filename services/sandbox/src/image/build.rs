//! One build of an environment: a script runs as root in a sandbox whose root can be written, and what it changed becomes a layer. Nothing of
//! a build that fails is kept but its log.

use super::{
    arrival::Arrival,
    cleaning::{SETUP_ENTRIES_MAX, clean, too_large},
    environment::EnvironmentSpec,
    layer::{EnvironmentName, LayerName},
    store::Store,
};
use crate::{
    code::Code,
    disk::survey,
    error::{Error, blocking},
    exec::tail::Tail,
    isolation::launch::{Launcher, Mount},
    sandbox::{Event, Sandbox, SandboxSpec},
};
use chassis::tasks::Tasks;
use rpc::v1::ExecEnd;
use sandbox_wire::v1::{Exec, Exit};
use shares::Share;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Pause between two looks at what a build takes of the disk; ten times the look itself, if that is longer.
const DISK_PAUSE: Duration = Duration::from_millis(250);
/// How long after its time limit a build may take to end before its sandbox is ended.
const BACKSTOP: Duration = Duration::from_secs(10);
/// What a person sees of the output of a failed build.
const LINES_SHOWN: usize = 40;
const LINES_SHOWN_BYTES: usize = 4 * 1024;
/// What runs before the script: it ends with the first command that fails, like a step of a build elsewhere.
const PRELUDE: &str = "set -e; cd /\n";

/// What builds may take.
#[derive(Debug, Clone, Copy)]
pub struct BuildLimits {
    /// Longest run of a script.
    pub time: Duration,
    /// Files that it may leave, bytes.
    pub bytes: u64,
    /// Whether builds run on a machine that cannot bound the terminals of a sandbox.
    pub without_terminals: bool,
}

/// What builds need of the service.
#[derive(Debug)]
pub struct BuildMeans {
    /// The layers.
    pub store: Arc<Store>,
    /// Starts sandboxes.
    pub launcher: Launcher,
    /// Own the builds.
    pub tasks: Tasks,
    /// Cancelled when the service stops.
    pub shutdown: CancellationToken,
    /// What builds may take.
    pub limits: BuildLimits,
}

/// A build that a caller asks for.
#[derive(Debug)]
pub struct BuildOrder {
    /// What is built.
    pub spec: EnvironmentSpec,
    /// The variables of the script, those of the network among them.
    pub env: Vec<String>,
    /// What the script sees besides: the door of the session.
    pub mounts: Vec<Mount>,
    /// Whether the session has files already. Its door is then that of its own programs, and no build begins.
    pub has_files: bool,
}

/// How far a build is.
#[derive(Debug, Default)]
pub struct Progress {
    /// What it printed.
    pub log: Tail,
    /// Its end.
    pub end: Option<BuildEnd>,
}

/// The end of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildEnd {
    /// `None`: the machine has the environment.
    pub code: Option<Code>,
    /// What went wrong, for a person.
    pub message: String,
}

/// A build that runs.
pub(super) struct Build<'a> {
    pub(super) means: &'a BuildMeans,
    pub(super) name: &'a EnvironmentName,
    pub(super) order: &'a BuildOrder,
    pub(super) progress: &'a watch::Sender<Progress>,
    /// Cancelled when the build must end.
    pub(super) stop: &'a CancellationToken,
}

impl Build<'_> {
    /// Runs the script and keeps what it left.
    ///
    /// # Errors
    /// `setup_failed`, `setup_timeout`, `setup_disk_full`, `setup_interrupted`; `disk_full`, `layers_missing`, `images_full`,
    /// `sandbox_unavailable`. Nothing is kept then.
    pub(super) async fn run(&self, share: Share) -> Result<(), Error> {
        let store = Arc::clone(&self.means.store);
        let (image, layer) = (self.order.spec.image.clone(), LayerName::Environment(self.name.clone()));
        let found = move || Ok((store.has(&layer), store.pin(&image)));
        let (is_there, pin) = blocking("find the layers of an image", found).await?;
        let _pin = pin?;
        if is_there {
            // The build before ended in this moment.
            return Ok(());
        }
        self.means.store.check_host()?;
        let store = Arc::clone(&self.means.store);
        let arrival = blocking("make the directory of a build", move || {
            let arrival = Arrival::make(&store)?;
            store.make_work(arrival.path())?;
            Ok(arrival)
        });
        let arrival = arrival.await?;
        let built = self.fill(&arrival, share).await;
        if let Err(error) = built {
            arrival.remove().await;
            return Err(error);
        }
        self.keep(arrival).await
    }

    /// Runs the script, whose changes are in `arrival` when this returns, and all of its processes are gone.
    async fn fill(&self, arrival: &Arrival, share: Share) -> Result<(), Error> {
        let BuildMeans { store, launcher, tasks, limits, .. } = self.means;
        let (roots, image, path) =
            (Arc::clone(store), self.order.spec.image.clone(), arrival.path().to_owned());
        let root = tokio::task::spawn_blocking(move || roots.build_root(&image, &path)).await;
        let root =
            root.map_err(|error| Error::io("find the layers of an image")(std::io::Error::other(error)))??;
        let spec = SandboxSpec {
            tenant: self.name.tenant,
            uid: store.owner().unwrap_or_default(),
            root,
            mounts: self.order.mounts.clone(),
            share: Some(share),
        };
        let sandbox = Sandbox::start(launcher, tasks, spec).await?;
        let ended = if sandbox.bounds_terminals() || limits.without_terminals {
            self.execute(&sandbox, arrival).await
        } else {
            let text = "the terminals of the build cannot be bounded; try again";
            Err(Error::refused(Code::SandboxUnavailable, text))
        };
        let memory_kills = sandbox.events().memory_kills;
        // Background processes that the script left end here.
        sandbox.stop().await;
        self.judge(&ended?, memory_kills > 0)
    }

    /// Runs the script to its end, or to the moment in which it must end.
    async fn execute(&self, sandbox: &Sandbox, arrival: &Arrival) -> Result<Exit, Error> {
        let limit = self.means.limits.time;
        let exec = Exec {
            command: format!("{PRELUDE}{}", self.order.spec.script),
            env: self.order.env.clone(),
            timeout_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            // Of a long output, the service keeps the end.
            output_bytes_max: u64::MAX,
            ..Exec::default()
        };
        let events = sandbox.exec(exec).await?.events;
        let interrupted = |text: &str| Err(Error::refused(Code::SetupInterrupted, text));
        tokio::select! {
            exit = self.record(events) => exit,
            error = self.watch_disk(sandbox, arrival) => Err(error),
            () = tokio::time::sleep(limit + BACKSTOP) => Err(self.too_slow()),
            () = self.stop.cancelled() => interrupted("the session of this build no longer waits for it; try again"),
            () = self.means.shutdown.cancelled() => interrupted("the sandbox service stops; try again"),
        }
    }

    async fn record(&self, mut events: mpsc::Receiver<Event>) -> Result<Exit, Error> {
        while let Some(event) = events.recv().await {
            match event {
                Event::Output(data) => self.progress.send_modify(|progress| progress.log.push(&data)),
                Event::Exit(exit) => return Ok(exit),
            }
        }
        Err(Error::refused(Code::SetupInterrupted, "the sandbox of the build ended; try again"))
    }

    /// Returns when the build has taken too much of the disk, or the machine has too little left.
    async fn watch_disk(&self, sandbox: &Sandbox, arrival: &Arrival) -> Error {
        let limit = self.means.limits.bytes;
        let tree = Store::tree(arrival.path());
        let mut pause = DISK_PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            if let Err(error) = self.means.store.check_host() {
                return error;
            }
            let (tree, pids, begun) = (tree.clone(), sandbox.processes(), Instant::now());
            let measure = move || survey::measure_changes(&tree, &pids, SETUP_ENTRIES_MAX);
            match blocking("measure what a build wrote", measure).await {
                Ok(measure) if measure.space.bytes > limit || measure.space.inodes > SETUP_ENTRIES_MAX => {
                    return self.with_output(too_large(limit));
                }
                Ok(_) => {}
                Err(error) => return error,
            }
            pause = DISK_PAUSE.max(begun.elapsed() * 10);
        }
    }

    /// Refuses the end of a script that is no success.
    fn judge(&self, exit: &Exit, is_out_of_memory: bool) -> Result<(), Error> {
        let memory = self.means.launcher.facts().limits.memory_bytes >> 20;
        let failed = |text: String| Err(self.with_output(Error::refused(Code::SetupFailed, text)));
        match exit.end() {
            ExecEnd::Timeout => Err(self.too_slow()),
            ExecEnd::MemoryLimit => failed(format!("the setup used more than {memory} MiB of memory")),
            ExecEnd::Exited if exit.code == 0 && exit.signal == 0 => Ok(()),
            ExecEnd::Exited if is_out_of_memory => {
                failed(format!("the setup failed; its processes used more than {memory} MiB of memory"))
            }
            ExecEnd::Exited if exit.signal != 0 => failed(format!("signal {} ended the setup", exit.signal)),
            ExecEnd::Exited => failed(format!("the setup failed with exit code {}", exit.code)),
            ExecEnd::ProcessLimit => failed("the setup needed too many processes".to_owned()),
            ExecEnd::Unspecified | ExecEnd::Killed | ExecEnd::Lost | ExecEnd::DiskLimit => {
                let text = "the setup was ended; try again";
                Err(self.with_output(Error::refused(Code::SetupInterrupted, text)))
            }
        }
    }

    fn too_slow(&self) -> Error {
        let text = format!(
            "the setup took more than {} s (FLOTILLA_SANDBOX_SETUP_MS); it may wait for input, which it never gets",
            self.means.limits.time.as_secs_f64()
        );
        self.with_output(Error::refused(Code::SetupTimeout, text))
    }

    /// The same with the last lines that the script printed.
    fn with_output(&self, error: Error) -> Error {
        let lines = self.progress.borrow().log.last_lines(LINES_SHOWN, LINES_SHOWN_BYTES);
        if lines.trim().is_empty() {
            return Error::refused(error.code(), format!("{error}; it printed nothing"));
        }
        Error::refused(error.code(), format!("{error}; its last lines:\n{lines}"))
    }

    /// Turns what the script left into a layer.
    async fn keep(&self, arrival: Arrival) -> Result<(), Error> {
        let store = Arc::clone(&self.means.store);
        let (layer, bytes_max) = (LayerName::Environment(self.name.clone()), self.means.limits.bytes);
        // A blocking task goes on when this one is dropped, so the ledger and the disk agree.
        let settled = tokio::task::spawn_blocking(move || {
            let settled = store.remove_work(arrival.path()).map_err(Error::io("clean what a setup left"));
            let settled = settled.and_then(|()| {
                let record = clean(&Store::tree(arrival.path()), store.owner(), bytes_max)?;
                store.settle(arrival.path(), &layer, record)
            });
            (arrival, settled)
        });
        let failed = |error| Error::io("keep what a setup left")(std::io::Error::other(error));
        let (arrival, settled) = settled.await.map_err(failed)?;
        // Where it succeeded, there is nothing left to remove.
        arrival.remove().await;
        settled
    }
}
