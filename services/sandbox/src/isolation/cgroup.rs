//! One cgroup for each sandbox where the service may make them: memory, processes and CPU, version 1 or 2. They are
//! made below the service's own group, so that the limits of the service's own group also apply. Without control groups
//! the limits are RLIMIT_NPROC and a watchdog inside the sandbox, and CPU is not limited; the operator must accept that.

mod balance;
mod counters;
mod discovery;
mod slices;

pub(crate) use balance::{Balancer, PAUSE as BALANCE_PAUSE};

use super::{policy::Limits, processes};
use counters::field;
use discovery::{find_v1, find_v2, takes_children};
use domain::ids::TenantId;
use rustix::process::{Pid, Signal, kill_process};
use slices::{PREFIX, Slices, Version, fresh_name};
use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

const CPU_PERIOD_US: u64 = 100_000;
/// Processes that a program can have started before it is in its group. Bubblewrap starts one or two. Beyond it the start fails.
const STARTED_MAX: u32 = 64;
/// Pauses between attempts to remove a group while the kernel still cleans up its last process: the first, which doubles, and the sum of all.
/// The kernel usually needs a fraction of a millisecond.
const REMOVE_PAUSE: Duration = Duration::from_micros(250);
const REMOVE_WAIT: Duration = Duration::from_secs(1);

/// Where groups can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// A directory for each controller that is usable: "memory", "pids", "cpu"; "cpuacct" if it is another one than that of "cpu".
    V1(BTreeMap<&'static str, PathBuf>),
    /// One directory whose children have the memory and pids controllers.
    V2(PathBuf),
    None,
}

/// The group of one sandbox. Removed by [`Group::remove`], when its processes are gone.
#[derive(Debug, Clone)]
pub struct Group {
    directories: Vec<PathBuf>,
    /// The slice that held it, of each hierarchy that has slices.
    slices: Vec<PathBuf>,
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    /// Where the kernel counts the use of the processors, if it does.
    processor_time: Option<PathBuf>,
    version: Version,
    /// Whether the tenant used little of the processors before, in version 1.
    is_calm: bool,
}

/// A group without processes. Dropped, it is removed.
#[derive(Debug)]
struct NewGroup(Option<Group>);

impl Drop for NewGroup {
    fn drop(&mut self) {
        if let Some(group) = &self.0 {
            group.remove_now();
        }
    }
}

/// Descriptors through which a process enters a group by itself, with the number 0. The kernel then needs no lock. To move another process,
/// it stops every fork and exit of the machine until each process that is about to fork or to exit has had its turn, and with a fork bomb of a
/// tenant that gets little of the processors this takes seconds.
#[derive(Debug, Default)]
pub(super) struct Entrances {
    /// Of the groups that limit memory and processes: the child enters before its program starts. If the tenant is calm, also of the groups that share out the
    /// processors: the child then gets its turns before the processes of busy tenants.
    pub(super) early: Vec<OwnedFd>,
    /// Of the groups that share out the processors, if the tenant is busy: the program enters first of all. The child must not, because it would then wait for
    /// a turn of its tenant, and the next start waits for the child.
    pub(super) late: Vec<OwnedFd>,
}

/// What the kernel counted in a group so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Events {
    /// Processes that the kernel killed because memory ran out.
    pub memory_kills: u64,
    pub fork_refusals: u64,
}

impl Base {
    /// Finds where this process may make groups, by making one.
    pub fn find() -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mut v1: BTreeMap<_, _> = ["memory", "pids", "cpu", "cpuacct"]
            .into_iter()
            .filter_map(|c| Some((c, find_v1(c, &own, &mounts)?)))
            .collect();
        // Most systems mount both together; then one group serves both.
        if v1.get("cpuacct") == v1.get("cpu") || !v1.contains_key("cpu") {
            v1.remove("cpuacct");
        }
        if v1.contains_key("memory") {
            return Self::V1(v1);
        }
        find_v2(&own, &mounts).map_or(Self::None, Self::V2)
    }

    /// Removes the groups that killed services left behind. The kernel refuses to remove a group in use.
    pub fn sweep(&self) {
        let bases: Vec<&PathBuf> = match self {
            Self::V1(directories) => directories.values().collect(),
            Self::V2(directory) => vec![directory],
            Self::None => Vec::new(),
        };
        for entry in bases.into_iter().filter_map(|base| fs::read_dir(base).ok()).flatten().flatten() {
            let name = entry.file_name();
            let owner = name
                .to_str()
                .and_then(|name| name.strip_prefix(PREFIX)?.split(['-', '.']).next()?.parse::<u32>().ok());
            if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
                slices::remove_tree(&entry.path());
            }
        }
    }

    /// One word or two for the isolation report.
    pub fn describe(&self) -> String {
        match self {
            Self::V1(directories) => {
                format!("v1 ({})", directories.keys().copied().collect::<Vec<_>>().join(", "))
            }
            Self::V2(_) => "v2 (memory, pids, cpu)".to_owned(),
            Self::None => "none (rlimits and a watchdog)".to_owned(),
        }
    }

    /// Whether the kernel enforces the memory limit.
    pub fn limits_memory(&self) -> bool {
        match self {
            Self::V1(directories) => directories.contains_key("memory"),
            Self::V2(_) => true,
            Self::None => false,
        }
    }

    /// Whether the kernel enforces the limit of processes.
    pub fn limits_processes(&self) -> bool {
        match self {
            Self::V1(directories) => directories.contains_key("pids"),
            Self::V2(_) => true,
            Self::None => false,
        }
    }

    /// Whether the kernel enforces the CPU limit.
    pub fn limits_cpu(&self) -> bool {
        match self {
            Self::V1(directories) => directories.contains_key("cpu"),
            // It is delegated less often than the other controllers.
            Self::V2(directory) => takes_children(directory, "cpu.max"),
            Self::None => false,
        }
    }

    /// The balancer of the tenants' weights; `None` where the kernel does not share the processors between them.
    pub(crate) fn balancer(&self) -> Option<Balancer> {
        match self {
            Self::V1(directories) => {
                let weights = directories.get("cpu")?.clone();
                let counters = directories.get("cpuacct").cloned().unwrap_or_else(|| weights.clone());
                Some(Balancer::new(counters, weights, Version::V1))
            }
            Self::V2(base) => {
                self.limits_cpu().then(|| Balancer::new(base.clone(), base.clone(), Version::V2))
            }
            Self::None => None,
        }
    }

    /// Makes a group of a tenant with `limits`; `None` where none can be made. The kernel makes and removes no group while it moves a process to another one, and a fork
    /// bomb of any tenant prolongs such a move. So no thread of the runtime waits for the kernel here.
    ///
    /// # Errors
    /// Those of the file system; nothing is left behind.
    ///
    /// Cancel-safe.
    pub async fn make(&self, tenant: TenantId, limits: Limits) -> io::Result<Option<Group>> {
        let base = self.clone();
        let make = move || base.make_now(tenant, &limits).map(NewGroup);
        let made = tokio::task::spawn_blocking(make).await;
        made.unwrap_or_else(|error| Err(io::Error::other(error))).map(|mut group| group.0.take())
    }

    fn make_now(&self, tenant: TenantId, limits: &Limits) -> io::Result<Option<Group>> {
        let version = if matches!(self, Self::V1(_)) { Version::V1 } else { Version::V2 };
        let mut group = Group::new(version);
        let creation = match self {
            Self::V1(directories) => make_v1(&mut group, directories, tenant, limits),
            Self::V2(directory) => make_v2(&mut group, directory, tenant, limits),
            Self::None => return Ok(None),
        };
        if let Err(error) = creation {
            group.remove_now();
            return Err(error);
        }
        Ok(Some(group))
    }
}

impl Group {
    /// A group without directories.
    fn new(version: Version) -> Self {
        Self {
            directories: vec![],
            slices: vec![],
            memory: None,
            pids: None,
            processor_time: None,
            version,
            is_calm: false,
        }
    }

    /// The entrances of the group; `None` in version 2, where [`Group::take_in`] moves the process.
    pub(super) fn entrances(&self) -> io::Result<Option<Entrances>> {
        if self.version == Version::V2 {
            return Ok(None);
        }
        let mut entrances = Entrances::default();
        for directory in &self.directories {
            let entrance = OpenOptions::new().write(true).open(directory.join("tasks"))?;
            let limits = [&self.memory, &self.pids].into_iter().flatten().any(|limit| limit == directory);
            let list = if limits || self.is_calm { &mut entrances.early } else { &mut entrances.late };
            list.push(entrance.into());
        }
        Ok(Some(entrances))
    }

    /// Moves a process that has just been started into the group, with the processes that it has started since. What it starts later begins
    /// inside.
    ///
    /// # Errors
    /// Those of the file system; `Other` if there are too many processes. The process must then be killed. One that has ended is no error.
    pub fn take_in(&self, pid: u32) -> io::Result<()> {
        let (mut todo, mut moves) = (vec![pid], 0);
        while let Some(pid) = todo.pop() {
            moves += 1;
            if moves > STARTED_MAX {
                return Err(io::Error::other(
                    "a program started too many processes before it was in its control group",
                ));
            }
            for directory in &self.directories {
                match fs::write(directory.join("cgroup.procs"), pid.to_string()) {
                    Err(error) if error.raw_os_error() != Some(libc::ESRCH) => return Err(error),
                    Ok(()) | Err(_) => {}
                }
            }
            // After the move: a child that is not in this list was born inside.
            todo.extend(processes::children(pid).unwrap_or_default());
        }
        Ok(())
    }

    /// Gives the processes in it, as this process numbers them. Empty when the group is gone.
    pub fn processes(&self) -> Vec<i32> {
        self.directories.first().map(|directory| processes_in(directory)).unwrap_or_default()
    }

    /// Gives the counters so far; zero for those that the kernel does not have.
    pub fn events(&self) -> Events {
        let count = |directory: &Option<PathBuf>, files: &[&str], word: &str| {
            let Some(directory) = directory else { return 0 };
            files
                .iter()
                .find_map(|file| field(&fs::read_to_string(directory.join(file)).ok()?, word))
                .unwrap_or(0)
        };
        Events {
            memory_kills: count(&self.memory, &["memory.events", "memory.oom_control"], "oom_kill"),
            fork_refusals: count(&self.pids, &["pids.events"], "max"),
        }
    }

    /// Reads the processor time of everything in it so far; µs. `None`: the kernel does not count it, or the group is gone.
    pub fn processor_time_us(&self) -> Option<u64> {
        counters::processor_time_us(self.processor_time.as_ref()?, self.version).ok()
    }

    /// Kills what is left in it after bubblewrap has ended: usually nothing, because the kernel then ends the sandbox. A bubblewrap that was killed while it
    /// started leaves its child, which waits for ever.
    pub(super) fn kill_left(&self) {
        for directory in &self.directories {
            // Processes outside the namespace of this one are 0.
            for pid in processes_in(directory).into_iter().filter_map(Pid::from_raw) {
                kill_process(pid, Signal::KILL).ok();
            }
        }
    }

    /// Removes the group once its last process is gone; gives up after a second and leaves an empty directory. No thread of the runtime waits for the kernel.
    pub async fn remove(&self) {
        let mut pause = REMOVE_PAUSE;
        while pause < REMOVE_WAIT {
            let group = self.clone();
            if tokio::task::spawn_blocking(move || group.remove_now()).await.unwrap_or(false) {
                return;
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        tracing::warn!("a control group could not be removed: {:?}", self.directories);
    }

    fn remove_now(&self) -> bool {
        let is_gone = |directory: &PathBuf| match fs::remove_dir(directory) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        // All of them, also if one stays.
        let is_removed = self.directories.iter().filter(|directory| !is_gone(directory)).count() == 0;
        if is_removed {
            self.slices.iter().for_each(|slice| slices::remove_unused(slice));
        }
        is_removed
    }

    /// Makes its directory for a controller of the processors, inside the slice of its tenant.
    fn make_in_slices(&mut self, slices: &Slices<'_>, tenant: TenantId) -> io::Result<PathBuf> {
        self.slices.push(slices.of(tenant));
        let directory = slices.make_group(tenant, &fresh_name())?;
        self.directories.push(directory.clone());
        Ok(directory)
    }
}

/// Gives the processes in a directory of groups, as this process numbers them. Empty when it is gone.
fn processes_in(directory: &Path) -> Vec<i32> {
    let list = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    list.lines().filter_map(|pid| pid.parse().ok()).collect()
}

fn make_v1(
    group: &mut Group,
    directories: &BTreeMap<&'static str, PathBuf>,
    tenant: TenantId,
    limits: &Limits,
) -> io::Result<()> {
    for (controller, base) in directories {
        let directory = match *controller {
            "cpu" => {
                let slices = Slices { base, version: Version::V1 };
                let directory = group.make_in_slices(&slices, tenant)?;
                group.is_calm = slices.is_calm(tenant);
                directory
            }
            "cpuacct" => group.make_in_slices(&Slices { base, version: Version::V1Counters }, tenant)?,
            _ => {
                let directory = base.join(fresh_name());
                fs::create_dir(&directory)?;
                group.directories.push(directory.clone());
                directory
            }
        };
        match *controller {
            // It comes after "cpu", and is there only if the kernel does not count in that directory.
            "cpuacct" => group.processor_time = Some(directory),
            "memory" => {
                fs::write(directory.join("memory.limit_in_bytes"), limits.memory_bytes.to_string())?;
                // The file exists only with swap accounting; without it there is nothing to limit.
                drop(fs::write(
                    directory.join("memory.memsw.limit_in_bytes"),
                    limits.memory_bytes.to_string(),
                ));
                group.memory = Some(directory);
            }
            "pids" => {
                fs::write(directory.join("pids.max"), limits.processes.to_string())?;
                group.pids = Some(directory);
            }
            _ => {
                let quota = u64::from(limits.cpu_percent) * CPU_PERIOD_US / 100;
                fs::write(directory.join("cpu.cfs_period_us"), CPU_PERIOD_US.to_string())?;
                fs::write(directory.join("cpu.cfs_quota_us"), quota.to_string())?;
                group.processor_time = Some(directory);
            }
        }
    }
    Ok(())
}

fn make_v2(group: &mut Group, base: &Path, tenant: TenantId, limits: &Limits) -> io::Result<()> {
    let directory = group.make_in_slices(&Slices { base, version: Version::V2 }, tenant)?;
    fs::write(directory.join("memory.max"), limits.memory_bytes.to_string())?;
    drop(fs::write(directory.join("memory.swap.max"), "0"));
    fs::write(directory.join("pids.max"), limits.processes.to_string())?;
    let quota = u64::from(limits.cpu_percent) * CPU_PERIOD_US / 100;
    // Where the controller was not delegated, the operator has accepted that.
    drop(fs::write(directory.join("cpu.max"), format!("{quota} {CPU_PERIOD_US}")));
    group.memory = Some(directory.clone());
    group.pids = Some(directory.clone());
    group.processor_time = Some(directory);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    const LIMITS: Limits =
        Limits { memory_bytes: 1 << 30, processes: 77, cpu_percent: 50, disk_bytes: 1, tmp_bytes: 1 };

    #[test]
    fn version_2_gets_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let tenant = TenantId(uuid::Uuid::now_v7());
        let group = Base::V2(directory.path().to_owned()).make_now(tenant, &LIMITS).unwrap().unwrap();
        let file = |name: &str| fs::read_to_string(group.directories[0].join(name)).unwrap();
        assert_eq!(
            [file("memory.max"), file("pids.max"), file("cpu.max")],
            ["1073741824", "77", "50000 100000"]
        );
        let slice = &group.slices[0];
        assert_eq!(group.directories[0].parent(), Some(slice.as_path()));
        assert_eq!(fs::read_to_string(slice.join("cpu.weight")).unwrap(), "1000");
        fs::write(group.directories[0].join("memory.events"), "low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
            .unwrap();
        assert_eq!(group.events(), Events { memory_kills: 2, fork_refusals: 0 });
    }

    #[test]
    fn processor_time_is_read_where_the_kernel_counts_it() {
        for (controllers, counting) in
            [(&["cpu", "memory", "pids"][..], "cpu"), (&["cpu", "cpuacct", "memory"][..], "cpuacct")]
        {
            let all = tempfile::tempdir().unwrap();
            let base = |controller: &str| all.path().join(controller);
            let bases: BTreeMap<_, _> =
                controllers.iter().map(|controller| (*controller, base(controller))).collect();
            bases.values().for_each(|base| fs::create_dir(base).unwrap());
            let tenant = TenantId(uuid::Uuid::now_v7());
            let group = Base::V1(bases).make_now(tenant, &LIMITS).unwrap().unwrap();
            assert_eq!(group.processor_time_us(), None, "the kernel does not count");
            let directory =
                group.directories.iter().find(|directory| directory.starts_with(base(counting))).unwrap();
            fs::write(directory.join("cpuacct.usage"), "34567\n").unwrap();
            assert_eq!(group.processor_time_us(), Some(34));
        }
    }

    #[test]
    fn a_group_whose_caller_has_left_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let directory = base.path().join(name);
            fs::create_dir(&directory).unwrap();
            NewGroup(Some(Group { directories: vec![directory], ..Group::new(Version::V2) }))
        };
        let (left, mut kept) = (make("left"), make("kept"));
        let group = kept.0.take().unwrap();
        drop((left, kept));
        assert!(!base.path().join("left").exists() && group.directories[0].exists());
    }

    #[test]
    fn what_bubblewrap_left_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let tenant = TenantId(uuid::Uuid::now_v7());
        let group = Base::V2(directory.path().to_owned()).make_now(tenant, &LIMITS).unwrap().unwrap();
        let mut left = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        fs::write(group.directories[0].join("cgroup.procs"), format!("0\n{}\n", left.id())).unwrap();
        group.kill_left();
        let end = left.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&end), Some(libc::SIGKILL));
    }
}
