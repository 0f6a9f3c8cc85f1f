//! Starts sandboxes. All starts go through one thread that lives as long as the service: the kernel kills a sandbox when
//! the *thread* that started it ends (PR_SET_PDEATHSIG), and the threads of an async runtime come and go.

use super::{
    cgroup::{Entrances, Group},
    child::ChildSetup,
    facts::Facts,
    policy::{Network, Scheduling, User},
    priority::NICE,
    process::{ProcessStart, SandboxProcess, SpawnJob},
    root::{
        copies::{Copies, TenantCopies},
        host,
        image::{self, Overlay, Root},
        loader::{self, Loader},
    },
    seccomp::{self, Filters},
    stage::{Stage, keep},
};
use chassis::tasks::Tasks;
use domain::{ids::TenantId, session::environment::SandboxOptions};
use shares::Share;
use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Seek as _, Write as _},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::PermissionsExt as _,
    },
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};
use tokio::{process::Command, sync::mpsc};

/// Sandboxes that wait for the thread to start them; each start takes a few milliseconds. Further ones wait for a place in the queue.
const STARTS_WAITING_MAX: usize = 64;
/// Functions that bound a helper.
const BOUNDS: &str = include_str!("bounds.sh");
/// The path of the init inside the sandbox.
pub const INIT_INSIDE: &str = "/opt/flotilla/init";

/// What runs in a sandbox.
#[derive(Debug)]
pub enum Program {
    /// `flotilla-init` as PID 1, which speaks over this socket.
    Init(OwnedFd),
    /// A bash script and its arguments; its standard streams are pipes (input: nothing). Bubblewrap is PID 1.
    Script(&'static str, Vec<String>),
}

/// A file or directory of the machine that the sandbox sees.
#[derive(Debug, Clone)]
pub struct Mount {
    /// The path on this machine.
    pub source: PathBuf,
    /// The path inside. Never below another mount that the tenant writes.
    pub inside: &'static str,
    /// Whether the sandbox may write to it.
    pub writable: bool,
}

impl Mount {
    /// Shows `source` read-only.
    pub fn read(source: impl Into<PathBuf>, inside: &'static str) -> Self {
        Self { source: source.into(), inside, writable: false }
    }

    /// Shows `source` to be written.
    pub fn write(source: impl Into<PathBuf>, inside: &'static str) -> Self {
        Self { source: source.into(), inside, writable: true }
    }
}

/// One sandbox to be started.
#[derive(Debug)]
pub struct LaunchSpec {
    /// What runs in it.
    pub program: Program,
    /// The tenant for which it runs.
    pub tenant: TenantId,
    /// The session's user; not used when sandboxes run as the service's user.
    pub uid: u32,
    /// What it sees at `/`.
    pub root: Root,
    /// What it sees besides. One of them is /workspace, where it starts.
    pub mounts: Vec<Mount>,
    /// What it can reach.
    pub network: Network,
    /// What its programs may do besides.
    pub options: SandboxOptions,
    /// The right to run it, given back when it is gone.
    pub share: Option<Share>,
}

/// Directories of the launcher.
#[derive(Debug)]
pub struct Directories {
    /// /etc of all sandboxes. It exists.
    pub etc: PathBuf,
    /// What the init needs in an image.
    pub libraries: PathBuf,
    /// The copies that tenants have of files of the machine.
    pub copies: PathBuf,
}

/// The launcher. Clones share its thread, which ends with the last of them; all its sandboxes end then.
#[derive(Debug, Clone)]
pub struct Launcher {
    facts: Arc<Facts>,
    etc: Arc<PathBuf>,
    loader: Arc<Option<Loader>>,
    copies: Arc<Copies>,
    filters: Arc<Filters>,
    /// The further filters of a build.
    fake_root: Arc<[Vec<u8>; 2]>,
    starts: mpsc::Sender<SpawnJob>,
    tasks: Tasks,
}

impl Launcher {
    /// Fills the directories and starts the thread. Must be called inside a runtime; `tasks` own the processes.
    ///
    /// # Errors
    /// When it cannot write the files, compile the filters or start the thread.
    pub fn start(facts: Facts, directories: Directories, tasks: Tasks) -> anyhow::Result<Self> {
        let Directories { etc, libraries, copies } = directories;
        host::write_etc(&etc)?;
        let copies = Arc::new(Copies::start(copies)?);
        let mut facts = facts;
        let loader = Loader::copy(&facts.init, &libraries).unwrap_or_else(|error| {
            facts.overlay = Overlay::Unsupported(format!("the init cannot run in an image: {error:#}"));
            None
        });
        let loader = Arc::new(loader);
        let (filters, fake_root) = (Filters::compile()?, Arc::new(seccomp::fake_root()?));
        let (starts, mut waiting) = mpsc::channel::<SpawnJob>(STARTS_WAITING_MAX);
        let runtime = tokio::runtime::Handle::current();
        std::thread::Builder::new().name("launcher".to_owned()).spawn(move || {
            // The child's end is watched by the runtime, hence the guard.
            let _guard = runtime.enter();
            while let Some(job) = waiting.blocking_recv() {
                job.run();
            }
        })?;
        let (facts, etc, filters) = (Arc::new(facts), Arc::new(etc), Arc::new(filters));
        Ok(Self { facts, etc, loader, copies, filters, fake_root, starts, tasks })
    }

    /// What this machine gives.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Starts no sandbox with an image from now on, for this reason.
    pub fn refuse_images(&mut self, reason: String) {
        Arc::make_mut(&mut self.facts).overlay = Overlay::Unsupported(reason);
    }

    /// Starts a sandbox. Its standard error is a pipe, to which bubblewrap writes its errors.
    ///
    /// # Errors
    /// Those of the file system and of fork. If bubblewrap itself fails, it exits.
    ///
    /// Dropped midway: the sandbox is killed if it was started.
    pub async fn launch(&self, start: LaunchSpec) -> io::Result<SandboxProcess> {
        let mut start = start;
        let copies = self.copies(&start).await;
        let group = self.facts.cgroup.make(start.tenant, &self.facts.limits)?;
        let share = start.share.take();
        let prepared = group.as_ref().map_or(Ok(None), Group::entrances).and_then(|entrances| {
            let enters = entrances.is_some();
            Ok((self.command(start, copies.as_ref(), entrances.unwrap_or_default())?, enters))
        });
        match prepared {
            Ok((command, enters)) => {
                let start = ProcessStart { command, group, enters, share };
                start.run(self.starts.clone(), &self.tasks).await
            }
            Err(error) => {
                if let Some(group) = group {
                    group.remove().await;
                }
                Err(error)
            }
        }
    }

    /// The copies of the tenant, if the sandbox shows the files of the machine.
    async fn copies(&self, start: &LaunchSpec) -> Option<TenantCopies<'_>> {
        let Root::Host = start.root else { return None };
        let copies = self.copies.of(start.tenant).await;
        // A full disk ends no sandbox: it only shares more with others.
        copies
            .inspect_err(|error| tracing::warn!(%error, "a sandbox starts with files that all tenants share"))
            .ok()
    }

    fn command(
        &self,
        start: LaunchSpec,
        copies: Option<&TenantCopies<'_>>,
        entrances: Entrances,
    ) -> io::Result<Command> {
        let (mut fds, mut args) = (Vec::new(), Vec::new());
        let late = entrances.late.into_iter().map(keep).collect::<io::Result<Vec<_>>>()?;
        let is_build = start.root.is_writable();
        let user = if is_build { "0" } else { "1000" };
        args.extend(
            namespaces(start.network, start.options).chain(["--uid", user, "--gid", user]).map(Into::into),
        );
        let is_init = matches!(start.program, Program::Init(_));
        let mounts = self.mounts(start.mounts, &start.root, is_init);
        let mut stage = self.facts.can_stage.then(Stage::default);
        args.extend(self.root_arguments(&start.root, start.network, stage.as_mut())?);
        if let Some(copies) = copies {
            let directory = on_stage(&copies.directory, stage.as_mut())?;
            for (name, inside) in copies.files() {
                args.extend(["--ro-bind".into(), directory.join(name).into(), inside.into()]);
            }
        }
        self.file_system(&mut args, &mounts, stage.as_mut())?;
        if !is_build {
            args.extend(["--remount-ro", "/"].map(Into::into));
        }
        let fake_root = is_build.then_some(self.fake_root.iter()).into_iter().flatten();
        for filter in self.filters.of(start.options).iter().chain(fake_root) {
            let fd = keep(memory_file(filter)?)?;
            args.extend(["--add-seccomp-fd".into(), fd.as_raw_fd().to_string().into()]);
            fds.push(fd);
        }
        match start.program {
            Program::Init(socket) => {
                let fd = keep(socket)?;
                let mut init = self.init_arguments(&start.root, &fd, start.options);
                init.extend(late.iter().map(|entrance| entrance.as_raw_fd().to_string().into()));
                args.extend(init);
                fds.push(fd);
            }
            Program::Script(script, arguments) => {
                let script = format!("{BOUNDS}{}{}{script}", enter(&late), self.bounds());
                args.extend(["--", "/bin/bash", "-c", script.as_str(), "helper"].map(Into::into));
                args.extend(arguments.into_iter().map(Into::into));
            }
        }
        fds.extend(late);
        let child = ChildSetup {
            stage,
            groups: entrances.early,
            directory: None,
            kept: fds,
            uid: (self.facts.user == User::PerSession).then_some(start.uid),
            file_bytes_max: self.facts.limits.disk_bytes,
            is_nice: self.facts.scheduling != Scheduling::Tenants,
        };
        let mut command = std::process::Command::new(&self.facts.bwrap);
        // Empty: the sandbox can read bubblewrap's own environment; --clearenv clears only that of the program.
        command.args(args).env_clear().current_dir("/");
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        command.stdout(if is_init { Stdio::null() } else { Stdio::piped() });
        child.prepare(&mut command);
        let mut command = Command::from(command);
        command.kill_on_drop(true);
        Ok(command)
    }

    /// All mounts of a sandbox, in their order.
    fn mounts(&self, asked: Vec<Mount>, root: &Root, is_init: bool) -> Vec<Mount> {
        let mut mounts = Vec::new();
        if is_init {
            mounts.push(Mount::read(self.facts.init.as_path(), INIT_INSIDE));
            // On the machine's root the init finds its libraries in /usr.
            if let Some(loader) = self.loader.as_ref().as_ref().filter(|_| root.is_image()) {
                mounts.push(Mount::read(loader.directory.as_path(), loader::INSIDE));
            }
        }
        mounts.extend(asked);
        mounts
    }

    /// The program and the first arguments that start the init in a sandbox with this root.
    pub fn init(&self, root: &Root) -> Vec<String> {
        let mut args = vec![];
        if let Some(loader) = self.loader.as_ref().as_ref().filter(|_| root.is_image()) {
            args.extend([
                loader.program.display().to_string(),
                "--library-path".to_owned(),
                loader::INSIDE.to_owned(),
            ]);
        }
        args.push(INIT_INSIDE.to_owned());
        args
    }

    /// The arguments that start the init, which talks over `socket`. The numbers of the control groups that it enters follow.
    fn init_arguments(&self, root: &Root, socket: &OwnedFd, options: SandboxOptions) -> Vec<OsString> {
        let mut args: Vec<OsString> = ["--as-pid-1", "--"].map(Into::into).into();
        args.extend(self.init(root).into_iter().map(Into::into));
        let watched = self.watched_memory_bytes().unwrap_or(0);
        let nice = self.session_nice().unwrap_or(0);
        let processes = self.facts.limits.processes;
        let may_mount = u8::from(options.allow_user_namespaces);
        let descriptor = socket.as_raw_fd();
        let numbers = format!("{descriptor} {processes} {watched} {nice} {may_mount}");
        args.extend(numbers.split(' ').map(Into::into));
        args
    }

    /// The arguments for everything at `/` that is not a mount of its own.
    fn root_arguments(
        &self,
        root: &Root,
        network: Network,
        stage: Option<&mut Stage>,
    ) -> io::Result<Vec<OsString>> {
        match (root, &self.facts.overlay, stage) {
            (Root::Host, _, stage) => {
                let etc = on_stage(&self.etc, stage)?;
                // Parts of the host's /etc are bound over files in it.
                let mut args = vec!["--ro-bind".into(), etc.into(), "/etc".into()];
                args.extend(host::arguments(network));
                Ok(args)
            }
            (Root::Image(root), Overlay::Launcher, Some(stage)) => {
                Ok(image::staged(stage.join(&root.layers)?))
            }
            (Root::Image(root), Overlay::Bubblewrap, _) => Ok(image::joined(&root.layers)),
            (Root::Build(root), Overlay::Launcher, Some(stage)) => {
                Ok(image::staged_for_build(stage.join_for_build(root)?))
            }
            (Root::Build(root), Overlay::Bubblewrap, _) => {
                Ok(image::joined_for_build(&root.layers, &root.directory))
            }
            (Root::Image(_) | Root::Build(_), Overlay::Unsupported(reason), _) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, reason.clone()))
            }
            (Root::Image(_) | Root::Build(_), Overlay::Launcher, None) => {
                Err(io::ErrorKind::Unsupported.into())
            }
        }
    }

    /// The memory that no control group limits; bytes.
    fn watched_memory_bytes(&self) -> Option<u64> {
        (!self.facts.cgroup.limits_memory()).then_some(self.facts.limits.memory_bytes)
    }

    /// The nice value that each session inside gives itself, if the kernel shares the processors between sessions.
    fn session_nice(&self) -> Option<i32> {
        (self.facts.scheduling == Scheduling::Sessions).then_some(NICE)
    }

    /// The calls of the functions of [`BOUNDS`]: bubblewrap is PID 1 of a helper and sets no limits.
    fn bounds(&self) -> String {
        let memory = self.watched_memory_bytes().map(|bytes| format!("watch_memory {}\n", bytes >> 10));
        let nice = self.session_nice().map(|nice| format!("lower_session {nice}\n"));
        let processes = self.facts.limits.processes;
        format!("{}limit_processes {processes}\n{}", nice.unwrap_or_default(), memory.unwrap_or_default())
    }

    fn file_system(
        &self,
        args: &mut Vec<OsString>,
        mounts: &[Mount],
        mut stage: Option<&mut Stage>,
    ) -> io::Result<()> {
        let limits = &self.facts.limits;
        let tmp_bytes = limits.tmp_bytes.to_string();
        args.extend(host::proc_arguments());
        // What stands in it counts as memory, as in /tmp. PostgreSQL and browsers share hundreds of MiB there.
        args.extend(
            ["--dev", "/dev", "--perms", "1777", "--size", &tmp_bytes, "--tmpfs", "/dev/shm"].map(Into::into),
        );
        // The tmpfs of /dev has no size. The devices, /dev/pts and /dev/shm are mounts of their own and stay writable.
        args.extend(["--remount-ro", "/dev"].map(Into::into));
        args.extend(["--perms", "1777", "--size", &tmp_bytes, "--tmpfs", "/tmp"].map(Into::into));
        args.extend(["--perms", "700", "--size", &tmp_bytes, "--tmpfs", "/home/agent"].map(Into::into));
        for mount in mounts {
            let how = if mount.writable { "--bind" } else { "--ro-bind" };
            let source = on_stage(&mount.source, stage.as_deref_mut())?;
            args.extend([how.into(), source.into(), OsString::from(mount.inside)]);
        }
        args.extend(["--chdir", "/workspace"].map(Into::into));
        Ok(())
    }
}

/// The calls of `enter_group` for these groups.
fn enter(late: &[OwnedFd]) -> String {
    late.iter().map(|entrance| format!("enter_group {}\n", entrance.as_raw_fd())).collect()
}

/// Adds a path to the stage, if there is one, and gives the path where bubblewrap finds it.
fn on_stage(path: &Path, stage: Option<&mut Stage>) -> io::Result<PathBuf> {
    stage.map_or_else(|| Ok(path.to_owned()), |stage| stage.add(path))
}

/// The arguments that give a sandbox namespaces of its own, and an end with its launcher.
fn namespaces(network: Network, options: SandboxOptions) -> impl Iterator<Item = &'static str> {
    // --unshare-all alone continues without a user namespace; --disable-userns needs an explicit one.
    let always = ["--unshare-user", "--unshare-all"];
    let further = (!options.allow_user_namespaces).then_some("--disable-userns");
    let network = (network == Network::Host).then_some("--share-net");
    let end = ["--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"];
    always.into_iter().chain(further).chain(network).chain(end)
}

fn memory_file(content: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("filter", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file.into())
}

/// Gives `path` to the user of a session, when sandboxes have users of their own, and closes it to all others.
///
/// # Errors
/// Those of the file system.
pub fn give_to(facts: &Facts, uid: u32, path: &std::path::Path) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    match facts.user {
        User::PerSession => std::os::unix::fs::chown(path, Some(uid), Some(uid)),
        User::Service => Ok(()),
    }
}
