//! The self-test: starts one sandbox in which a script tries to get out. The service serves only if every required
//! wall holds.

use crate::{
    disk::survey,
    isolation::{
        facts::Facts,
        launch::{self, Launcher, Mount},
        policy::User,
        processes::Restrictions,
        root::{
            accounts::Accounts,
            image::{ImageRoot, Overlay, Root},
            skeleton,
        },
    },
    sandbox::{Event, Sandbox, SandboxSpec},
    walls::{Gap, Wall},
};
use anyhow::Context as _;
use chassis::tasks::Tasks;
use domain::{ids::TenantId, session::environment::SandboxOptions};
use std::{
    collections::BTreeMap, fs::Permissions, os::unix::fs::PermissionsExt as _, path::Path, time::Duration,
};

/// The script prints `name=value` lines, and `canary`, so a sandbox that never ran cannot pass.
const SCRIPT: &str = include_str!("selftest.sh");
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// Bytes of the script's output. It prints far less; the rest would be dropped.
const OUTPUT_BYTES_MAX: u64 = 64 * 1024;
/// What the script leaves behind: the workspace, two files in it, a closed directory and a file without a name.
const INODES_LEFT: u64 = 5;
/// The closed directory among them.
const CLOSED: &str = "tree/closed";
/// The size of the file without a name.
const NAMELESS_BYTES: u64 = 64 * 1024;

/// The self-test runs before any tenant.
const NO_TENANT: TenantId = TenantId(uuid::Uuid::nil());

/// A property that a sandbox must have.
struct Requirement {
    name: &'static str,
    value: &'static str,
    /// The problem if the value differs.
    problem: &'static str,
}

const fn requirement(name: &'static str, value: &'static str, problem: &'static str) -> Requirement {
    Requirement { name, value, problem }
}

/// What every sandbox must have.
const REQUIRED: [Requirement; 16] = [
    requirement("canary", "yes", "the probe did not run inside"),
    requirement("script", "whole", "the self-test ended early, so it does not know what it misses"),
    requirement("uid", "1000", "the user is not mapped"),
    requirement("capabilities", "0000000000000000", "the sandbox kept capabilities"),
    requirement("no_new_privs", "1", "bubblewrap did not set no_new_privs"),
    requirement("seccomp", "2", "seccomp filters are not in force: is CONFIG_SECCOMP_FILTER in the kernel?"),
    requirement("seccomp_filters", "2 or more", "not both seccomp filters are in force"),
    requirement("host_file", "refused", "a file of the host can be read"),
    requirement("shadow", "refused", "/etc/shadow can be read"),
    requirement("init_environment", "refused", "the environment of PID 1 can be read"),
    requirement("init_memory", "refused", "the memory of PID 1 can be written"),
    requirement("system_write", "refused", "/usr can be written"),
    requirement("network", "refused", "the host's loopback network can be reached"),
    requirement("mount", "refused", "file systems can be mounted"),
    requirement(
        "workspace_write",
        "works",
        "the workspace cannot be written: may the sandbox's user reach the data directory?",
    ),
    requirement("tmp_write", "works", "/tmp cannot be written"),
];
/// What it must also have if its kernel is that of the machine. The namespaces of gVisor's kernel are its own.
const WITHOUT_GVISOR: Requirement =
    requirement("user_namespace", "refused", "a nested user namespace can be made");
/// What it must also have in gVisor.
const WITH_GVISOR: Requirement =
    requirement("kernel", "of gVisor", "the programs inside reach the kernel of the machine");
/// The seccomp filters that bubblewrap loads. A service in a container inherits more, and gVisor adds its own.
const FILTERS: u32 = 2;

/// The result of the self-test.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The properties of the sandbox, by name.
    pub properties: BTreeMap<String, String>,
    /// The required properties that do not hold, each with its likely cause.
    pub missing: Vec<String>,
    /// Walls that this machine lacks, and that the operator may do without.
    pub gaps: Vec<Gap>,
    /// Why the machine cannot run images, although it should be able to.
    pub images_problem: Option<String>,
}

struct Probe {
    /// What the script printed, by name.
    properties: BTreeMap<String, String>,
    /// Whether the service counted everything that the script left behind.
    sees_disk: bool,
    /// Whether the terminals of the sandbox are bounded.
    bounds_terminals: bool,
}

/// Runs the self-test in a directory of its own below `data`, as the user of the first workspace: no session runs yet.
///
/// # Errors
/// When no sandbox can be started at all; the text says why and how to mend it.
pub async fn run(launcher: &Launcher, tasks: &Tasks, data: &Path) -> anyhow::Result<Report> {
    let directory = data.join("selftest");
    clear(&directory);
    crate::layout::make_passage(&directory).context("make the self-test's directory")?;
    let found = probe(launcher, tasks, &directory).await;
    let images = probe_image(launcher, tasks, &directory).await;
    clear(&directory);
    let probe = found?;
    let gaps = gaps(launcher.facts(), &probe);
    let found = probe.properties;
    let further = if launcher.facts().gvisor.is_some() { WITH_GVISOR } else { WITHOUT_GVISOR };
    let missing = REQUIRED.iter().chain([&further]).filter_map(|Requirement { name, value, problem }| {
        let is = found.get(*name).map_or("unknown", String::as_str);
        (is != *value).then(|| format!("{name} is {is}, not {value}: {problem}"))
    });
    let missing = missing.collect();
    let mut properties = found;
    properties.remove("canary");
    describe(&mut properties, launcher.facts());
    let images_problem = images.err().map(|error| format!("{error:#}"));
    let images = images_problem.as_ref().map(|problem| Overlay::Unsupported(problem.clone()));
    let images = images.as_ref().unwrap_or(&launcher.facts().overlay).describe();
    properties.insert("images".to_owned(), images);
    Ok(Report { properties, missing, gaps, images_problem })
}

/// Removes the directory of a self-test.
fn clear(directory: &Path) {
    // The script leaves a closed directory, into which only root can look.
    drop(std::fs::set_permissions(directory.join(CLOSED), Permissions::from_mode(0o700)));
    drop(std::fs::remove_dir_all(directory));
}

/// Starts a sandbox with an image that has nothing but a skeleton: the init must run in any image.
async fn probe_image(launcher: &Launcher, tasks: &Tasks, directory: &Path) -> anyhow::Result<()> {
    let facts = launcher.facts();
    if let Overlay::Unsupported(_) = facts.overlay {
        return Ok(());
    }
    let (tree, layers) = (directory.join("image-tree"), directory.join("layers"));
    let (empty, skeleton) = (layers.join("empty"), layers.join("skeleton"));
    crate::layout::make_passage(&layers).context("make the self-test's image")?;
    for path in [&tree, &empty, &skeleton] {
        std::fs::create_dir(path).context("make the self-test's image")?;
    }
    skeleton::write(&skeleton, &Accounts::with_agent(None, None)).context("make the self-test's image")?;
    let uid = facts.user_ids.first;
    launch::give_to(facts, uid, &tree).context("give the self-test its workspace")?;
    let root = Root::Image(ImageRoot { layers: vec![empty, skeleton] });
    let mounts = vec![Mount::write(&tree, "/workspace")];
    let plan =
        SandboxSpec { tenant: NO_TENANT, uid, root, mounts, options: SandboxOptions::NONE, permit: None };
    Sandbox::start(launcher, tasks, plan).await?.stop().await;
    Ok(())
}

async fn probe(launcher: &Launcher, tasks: &Tasks, directory: &Path) -> anyhow::Result<Probe> {
    let uid = launcher.facts().user_ids.first;
    let tree = directory.join("tree");
    std::fs::create_dir(&tree).context("make the self-test's workspace")?;
    launch::give_to(launcher.facts(), uid, &tree).context("give the self-test its workspace")?;
    // Every user can read it: only the mounts hide it from the sandbox.
    let secret = directory.join("secret");
    std::fs::write(&secret, "canary").context("write the self-test's secret")?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("listen for the self-test")?;
    let port = listener.local_addr().context("listen for the self-test")?.port();

    let mounts = vec![Mount::write(&tree, "/workspace")];
    let plan = SandboxSpec {
        options: SandboxOptions::NONE,
        tenant: NO_TENANT,
        uid,
        root: Root::Host,
        mounts,
        permit: None,
    };
    let sandbox = match Sandbox::start(launcher, tasks, plan).await {
        Ok(sandbox) => sandbox,
        Err(error) => return Err(anyhow::Error::new(error).context(advice(launcher.facts()))),
    };
    let env = [
        format!("PROBE_FILE={}", secret.display()),
        format!("PROBE_PORT={port}"),
        "PATH=/usr/local/bin:/usr/bin:/bin".to_owned(),
    ];
    let mut found = run_script(&sandbox, env.into()).await?;
    let landlock = sandbox.hello.landlock.clone();
    let processes = sandbox.processes();
    let restrictions = Restrictions::of_all_inside(&processes);
    let measure = survey::measure(&tree, &processes, INODES_LEFT).context("measure the self-test")?;
    let sees_disk =
        !measure.is_partial && measure.space.inodes == INODES_LEFT && measure.space.bytes >= NAMELESS_BYTES;
    let bounds_terminals = sandbox.bounds_terminals();
    sandbox.stop().await;
    let Restrictions { no_new_privs, seccomp, filters } = restrictions;
    let filters = if filters >= FILTERS { "2 or more" } else { "fewer than 2" };
    for (name, value) in [
        ("landlock", landlock),
        ("no_new_privs", no_new_privs.to_string()),
        ("seccomp", seccomp.to_string()),
        ("seccomp_filters", filters.to_owned()),
    ] {
        found.insert(name.to_owned(), value);
    }
    Ok(Probe { properties: found, sees_disk, bounds_terminals })
}

/// Runs the script, and gives the properties that it prints. `script` says whether it came to its end.
async fn run_script(sandbox: &Sandbox, env: Vec<String>) -> anyhow::Result<BTreeMap<String, String>> {
    let exec = sandbox_wire::v1::Exec {
        command: SCRIPT.to_owned(),
        env,
        timeout_ms: TIME_LIMIT.as_millis() as u64,
        output_bytes_max: OUTPUT_BYTES_MAX,
        ..Default::default()
    };
    let mut events = sandbox.exec(exec).await.context("start the self-test's script")?.events;
    let (mut output, mut end) = (Vec::new(), None);
    while let Some(event) = events.recv().await {
        match event {
            Event::Output(data) => output.extend_from_slice(&data),
            Event::Exit(exit) => {
                end = Some(exit);
                break;
            }
        }
    }
    let output = String::from_utf8_lossy(&output);
    let lines = output.lines().filter_map(|line| line.split_once('='));
    let mut found: BTreeMap<_, _> = lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    if !found.contains_key("script") {
        let end = end.map_or_else(
            || "cut off without an exit code".to_owned(),
            |exit| format!("cut off by exit code {}, signal {}", exit.code, exit.signal),
        );
        found.insert("script".to_owned(), end);
    }
    Ok(found)
}

fn gaps(facts: &Facts, probe: &Probe) -> Vec<Gap> {
    let property = |name: &str| probe.properties.get(name).map_or("unknown", String::as_str);
    let processes = property("processes").parse::<u32>();
    let has_landlock =
        property("landlock").ends_with(" enforced") && !property("landlock").starts_with("not ");
    let all = [
        (
            Wall::Memory,
            facts.cgroup.limits_memory(),
            "no control group with the memory controller can be made here; a watchdog inside counts the memory",
        ),
        (
            Wall::Processes,
            processes.is_ok_and(|most| most <= facts.limits.processes)
                && (facts.gvisor.is_none() || facts.cgroup.limits_processes()),
            "the limit of processes does not hold inside; in gVisor it needs a control group with the pids controller",
        ),
        (
            Wall::Cpu,
            facts.cgroup.limits_cpu(),
            "no control group with the cpu controller can be made here; one sandbox can slow all others down",
        ),
        (
            Wall::Disk,
            probe.sees_disk,
            "the service cannot see all files of a sandbox: it needs the capabilities DAC_READ_SEARCH (or DAC_OVERRIDE) and SYS_PTRACE, or \
             to run as the user of its sandboxes",
        ),
        (
            Wall::Users,
            facts.user == User::PerSession,
            "the service does not run as root, so all sessions share its user",
        ),
        // In gVisor, bubblewrap itself is the second wall.
        (Wall::Landlock, has_landlock || facts.gvisor.is_some(), "the kernel does not enforce Landlock"),
        (
            Wall::Terminals,
            probe.bounds_terminals,
            "the service may not mount (CAP_SYS_ADMIN), or the kernel is older than 5.2",
        ),
    ];
    let gaps = all.into_iter().filter(|(_, holds, _)| !holds);
    gaps.map(|(wall, _, cause)| Gap { wall, cause: cause.to_owned() }).collect()
}

fn describe(properties: &mut BTreeMap<String, String>, facts: &Facts) {
    let user = match facts.user {
        User::PerSession => "one for each session",
        User::Service => "the service's own, for all sessions",
    };
    let memory = if facts.cgroup.limits_memory() { "control group" } else { "watchdog" };
    for (name, value) in [
        ("host_user", user.to_owned()),
        ("cgroup", facts.cgroup.describe()),
        ("processors", facts.scheduling.to_string()),
        ("memory_limit", format!("{} bytes ({memory})", facts.limits.memory_bytes)),
        ("process_limit", facts.limits.processes.to_string()),
        ("disk_limit", format!("{} bytes (RLIMIT_FSIZE and walks from outside)", facts.limits.disk_bytes)),
        ("egress", "none".to_owned()),
    ] {
        properties.insert(name.to_owned(), value);
    }
}

/// The usual obstacles, judged by this machine's settings.
fn advice(facts: &Facts) -> String {
    let setting = |name: &str| {
        std::fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default().trim().to_owned()
    };
    let mut advice = Vec::new();
    if setting("user/max_user_namespaces") == "0" {
        advice.push("user namespaces are off: `sysctl user.max_user_namespaces=10000`");
    }
    if setting("kernel/unprivileged_userns_clone") == "0" {
        advice.push("user namespaces are for root only: `sysctl kernel.unprivileged_userns_clone=1`");
    }
    if setting("kernel/apparmor_restrict_unprivileged_userns") == "1" {
        advice.push("AppArmor restricts user namespaces: give bwrap a profile with `userns,`, or `sysctl kernel.apparmor_restrict_unprivileged_userns=0`");
    }
    if facts.user == User::PerSession && !facts.can_stage {
        advice.push("without CAP_SYS_ADMIN every directory above the data directory must be passable for all (`chmod o+x`)");
    }
    if advice.is_empty() {
        advice.push(
            "in a container: allow clone, unshare, mount, umount2, pivot_root and sethostname in its seccomp profile, \
             and an unmasked /proc",
        );
    }
    format!("cannot start a sandbox; possible remedies: {}", advice.join("; "))
}
