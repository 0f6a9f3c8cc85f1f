//! Starts sandboxes. All starts go through one thread that lives as long as the service: the kernel kills a sandbox when
//! the *thread* that started it ends (PR_SET_PDEATHSIG), and the threads of an async runtime come and go.

mod queue;
mod seccomp;
mod spec;
mod view;

pub use self::spec::{LaunchSpec, Program};
use self::{queue::StartQueue, seccomp::Filters, view::SandboxView};
pub use super::root::mount::Mount;
use super::{
    cgroup::{Entrances, Group},
    child::ChildSetup,
    facts::Facts,
    gvisor,
    policy::{Network, Scheduling, User},
    priority::NICE,
    process::{ProcessStart, SandboxProcess},
    root::{
        copies::Copies,
        host::{self, HostView},
        image::{Overlay, Root},
        loader::{self, Loader},
    },
    stage::{Stage, keep},
};
use chassis::tasks::Tasks;
use domain::session::environment::SandboxOptions;
use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Seek as _, Write as _},
    os::{
        fd::{AsRawFd as _, OwnedFd, RawFd},
        unix::fs::PermissionsExt as _,
    },
    path::PathBuf,
    process::Stdio,
    sync::Arc,
};
use tokio::process::Command;

/// Functions that bound a helper.
const BOUNDS: &str = include_str!("bounds.sh");
/// The user that programs are inside, and their group.
const USER: u32 = 1_000;
/// The path of the init inside the sandbox.
pub const INIT_INSIDE: &str = "/opt/flotilla/init";

/// What the init is told.
struct InitSettings {
    /// The number of the descriptor over which it talks.
    socket: RawFd,
    /// The memory that it watches; 0: a control group limits it.
    memory_bytes: u64,
    /// The nice value of sessions of processes; 0: the kernel does not share the processors between them.
    nice: i32,
    may_mount: bool,
    /// The user that it becomes; 0: it stays who it is.
    user: u32,
}

/// What starts the program of a sandbox.
struct ProgramStart {
    /// Bubblewrap's last arguments.
    args: Vec<OsString>,
    fds: Vec<OwnedFd>,
    /// The lists of tasks of the groups that the child enters.
    groups: Vec<OwnedFd>,
    /// Its input and its output.
    pipes: [Stdio; 2],
}

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
    queue: StartQueue,
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
        let (queue, mut waiting) = StartQueue::new();
        let runtime = tokio::runtime::Handle::current();
        std::thread::Builder::new().name("launcher".to_owned()).spawn(move || {
            // The child's end is watched by the runtime, hence the guard.
            let _guard = runtime.enter();
            while let Some(job) = waiting.blocking_recv() {
                job.run();
            }
        })?;
        let (facts, etc, filters) = (Arc::new(facts), Arc::new(etc), Arc::new(filters));
        Ok(Self { facts, etc, loader, copies, filters, fake_root, queue, tasks })
    }

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
        let place = self.queue.place(start.tenant).await?;
        let group = self.facts.cgroup.make(start.tenant, self.facts.limits).await?;
        let permit = start.permit.take();
        // Inside gVisor the init does not see the late groups, so the owner of the process moves it there.
        let is_in_gvisor = self.is_in_gvisor(&start.program, &start.root);
        let prepared = group.as_ref().map_or(Ok(None), Group::entrances).and_then(|entrances| {
            let enters = entrances.is_some() && !is_in_gvisor;
            Ok((self.command(start, copies, entrances.unwrap_or_default())?, enters))
        });
        match prepared {
            Ok((command, enters)) => {
                let start = ProcessStart { command, group, enters, permit };
                start.run(place, &self.tasks).await
            }
            Err(error) => {
                if let Some(group) = group {
                    group.remove().await;
                }
                Err(error)
            }
        }
    }

    /// Whether gVisor runs a program. A build becomes root and gives files to users, which gVisor would have to do to files of the machine.
    fn is_in_gvisor(&self, program: &Program, root: &Root) -> bool {
        self.facts.gvisor.is_some() && matches!(program, Program::Init(_)) && !root.is_writable()
    }

    /// The copies of the tenant, if the sandbox shows the files of the machine.
    async fn copies(&self, start: &LaunchSpec) -> Vec<Mount> {
        let Root::Host = start.root else { return Vec::new() };
        let copies = self.copies.of(start.tenant).await;
        // A full disk ends no sandbox: it only shares more with others.
        copies
            .inspect_err(|error| tracing::warn!(%error, "a sandbox starts with files that all tenants share"))
            .unwrap_or_default()
    }

    fn command(&self, start: LaunchSpec, copies: Vec<Mount>, entrances: Entrances) -> io::Result<Command> {
        let LaunchSpec { program, root, mounts, network, .. } = start;
        let is_build = root.is_writable();
        let user = if is_build { 0 } else { USER }.to_string();
        let is_in_gvisor = self.is_in_gvisor(&program, &root);
        // gVisor needs them for itself. Its own kernel gives them to the programs inside.
        let options = if is_in_gvisor { SandboxOptions::ALL } else { start.options };
        let mut args: Vec<OsString> = namespaces(network, options).map(Into::into).collect();
        args.extend(["--uid", &user, "--gid", &user].map(Into::into));
        let mut stage = self.facts.can_stage.then(Stage::default);
        let view = SandboxView {
            root: &root,
            overlay: &self.facts.overlay,
            host: self.host_view(&root, network, copies),
            mounts: self.mounts(mounts, &root, &program),
            is_in_gvisor,
            tmp_bytes: self.facts.limits.tmp_bytes,
        };
        args.extend(view.arguments(stage.as_mut())?);
        let ProgramStart { args: program, mut fds, groups, pipes: [input, output] } = match program {
            Program::Init(socket) if is_in_gvisor => self.gvisor_start(socket, &root, entrances)?,
            Program::Init(socket) => self.init_start(socket, &root, options, entrances)?,
            Program::Script(script, arguments) => self.script_start(script, arguments, entrances)?,
        };
        let fake_root = is_build.then_some(self.fake_root.iter()).into_iter().flatten();
        for filter in self.filters.of(options).iter().chain(fake_root) {
            let fd = keep(memory_file(filter)?)?;
            args.extend(["--add-seccomp-fd".into(), fd.as_raw_fd().to_string().into()]);
            fds.push(fd);
        }
        args.extend(program);
        let child = ChildSetup {
            stage,
            groups,
            directory: None,
            kept: fds,
            uid: (self.facts.user == User::PerSession).then_some(start.uid),
            // The memory of all programs in gVisor is one file.
            file_bytes_max: if is_in_gvisor { u64::MAX } else { self.facts.limits.disk_bytes },
            is_nice: self.facts.scheduling != Scheduling::Tenants,
        };
        let mut command = std::process::Command::new(&self.facts.bwrap);
        // Empty: the sandbox can read bubblewrap's own environment; --clearenv clears only that of the program.
        command.args(args).env_clear().current_dir("/");
        command.stdin(input).stdout(output).stderr(Stdio::piped());
        child.prepare(&mut command);
        let mut command = Command::from(command);
        command.kill_on_drop(true);
        Ok(command)
    }

    /// The start of the init, which talks over `socket`.
    fn init_start(
        &self,
        socket: OwnedFd,
        root: &Root,
        options: SandboxOptions,
        entrances: Entrances,
    ) -> io::Result<ProgramStart> {
        let Entrances { early, late } = entrances;
        let (socket, late) = (keep(socket)?, keep_all(late)?);
        let settings = InitSettings {
            socket: socket.as_raw_fd(),
            memory_bytes: self.watched_memory_bytes().unwrap_or(0),
            nice: self.session_nice().unwrap_or(0),
            may_mount: options.allow_user_namespaces,
            user: 0,
        };
        let mut args: Vec<OsString> = ["--as-pid-1", "--"].map(Into::into).into();
        args.extend(self.init_arguments(root, &settings).into_iter().map(Into::into));
        args.extend(late.iter().map(|entrance| entrance.as_raw_fd().to_string().into()));
        let fds = late.into_iter().chain([socket]).collect();
        Ok(ProgramStart { args, fds, groups: early, pipes: [Stdio::null(), Stdio::null()] })
    }

    /// The start of the init in gVisor.
    fn gvisor_start(&self, socket: OwnedFd, root: &Root, entrances: Entrances) -> io::Result<ProgramStart> {
        let limits = &self.facts.limits;
        let settings = InitSettings {
            socket: gvisor::SOCKET,
            memory_bytes: gvisor::memory_bytes(limits.memory_bytes),
            nice: 0,
            may_mount: true,
            user: USER,
        };
        let init = self.init_arguments(root, &settings);
        let config = keep(memory_file(&gvisor::config(&init, limits.disk_bytes))?)?;
        let (args, pipes) = (gvisor::arguments(&config), [socket.into(), Stdio::null()]);
        Ok(ProgramStart { args, fds: vec![config], groups: entrances.early, pipes })
    }

    /// The start of the script of a helper.
    fn script_start(
        &self,
        script: &str,
        arguments: Vec<String>,
        entrances: Entrances,
    ) -> io::Result<ProgramStart> {
        let fds = keep_all(entrances.late)?;
        let script = format!("{BOUNDS}{}{}{script}", enter(&fds), self.bounds());
        let shell = ["--", "/bin/bash", "-c", script.as_str(), "helper"].map(OsString::from);
        let args = shell.into_iter().chain(arguments.into_iter().map(Into::into)).collect();
        Ok(ProgramStart { args, fds, groups: entrances.early, pipes: [Stdio::null(), Stdio::piped()] })
    }

    /// All mounts of a sandbox, in their order.
    fn mounts(&self, asked: Vec<Mount>, root: &Root, program: &Program) -> Vec<Mount> {
        let mut mounts = Vec::new();
        let gvisor = self.facts.gvisor.as_ref().filter(|_| self.is_in_gvisor(program, root));
        mounts.extend(gvisor.map(|gvisor| Mount::read(gvisor.program(), gvisor::PROGRAM)));
        if let Program::Init(_) = program {
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

    /// The command that starts the init. The numbers of the control groups that it enters follow.
    fn init_arguments(&self, root: &Root, settings: &InitSettings) -> Vec<String> {
        let InitSettings { socket, memory_bytes, nice, may_mount, user } = settings;
        let (processes, may_mount) = (self.facts.limits.processes, u8::from(*may_mount));
        let numbers = format!("{socket} {processes} {memory_bytes} {nice} {may_mount} {user}");
        self.init(root).into_iter().chain(numbers.split(' ').map(Into::into)).collect()
    }

    /// What a sandbox with this root sees of the machine.
    fn host_view(&self, root: &Root, network: Network, copies: Vec<Mount>) -> HostView {
        let Root::Host = root else { return HostView::default() };
        let mut view = HostView::new(&self.etc, network);
        view.mounts.extend(copies);
        view
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
}

fn keep_all(fds: Vec<OwnedFd>) -> io::Result<Vec<OwnedFd>> {
    fds.into_iter().map(keep).collect()
}

/// The calls of `enter_group` for these groups.
fn enter(late: &[OwnedFd]) -> String {
    late.iter().map(|entrance| format!("enter_group {}\n", entrance.as_raw_fd())).collect()
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

/// A file in memory, to be read from its beginning.
pub(super) fn memory_file(content: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("filter", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file.into())
}

/// Gives `path` to the user of a session, when sandboxes have users of their own, and closes it to all others.
pub fn give_to(facts: &Facts, uid: u32, path: &std::path::Path) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    match facts.user {
        User::PerSession => std::os::unix::fs::chown(path, Some(uid), Some(uid)),
        User::Service => Ok(()),
    }
}
