//! The self-test: starts one sandbox in which a script tries to get out. The service serves only if every required
//! wall holds.

use super::{
    facts::Facts,
    launch::{self, Launcher, Mount},
    policy::User,
};
use crate::sandbox::{Event, Sandbox, SandboxSpec};
use anyhow::Context as _;
use chassis::tasks::Tasks;
use std::{collections::BTreeMap, path::Path, time::Duration};

/// The script prints `name=value` lines, and `canary`, so a sandbox that never ran cannot pass.
const SCRIPT: &str = include_str!("selftest.sh");
const TIME_LIMIT: Duration = Duration::from_secs(30);
const OUTPUT_BYTES_MAX: u64 = 64 * 1024;

/// The required properties: name, value, and the problem if the value differs.
const REQUIRED: [(&str, &str, &str); 16] = [
    ("canary", "yes", "the probe did not run inside"),
    ("uid", "1000", "bubblewrap did not map the user"),
    ("capabilities", "0000000000000000", "the sandbox kept capabilities"),
    ("no_new_privs", "1", "bubblewrap did not set no_new_privs"),
    ("seccomp", "2", "seccomp filters are not in force: is CONFIG_SECCOMP_FILTER in the kernel?"),
    ("seccomp_filters", "3 or more", "not all three seccomp filters are in force"),
    ("host_file", "refused", "a file of the host can be read"),
    ("shadow", "refused", "/etc/shadow can be read"),
    ("init_environment", "refused", "the environment of PID 1 can be read"),
    ("init_memory", "refused", "the memory of PID 1 can be written"),
    ("system_write", "refused", "/usr can be written"),
    ("network", "refused", "the host's loopback network can be reached"),
    ("user_namespace", "refused", "a nested user namespace can be made"),
    ("mount", "refused", "file systems can be mounted"),
    (
        "workspace_write",
        "works",
        "the workspace cannot be written: may the sandbox's user reach the data directory?",
    ),
    ("tmp_write", "works", "/tmp cannot be written"),
];

/// The result of the self-test.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The properties of the sandbox, by name.
    pub properties: BTreeMap<String, String>,
    /// The required properties that do not hold, each with its likely cause.
    pub missing: Vec<String>,
}

/// Runs the self-test in a directory of its own below `data`, as the user of the first workspace: no session runs yet.
///
/// # Errors
/// When no sandbox can be started at all; the text says why and how to mend it.
pub async fn run(launcher: &Launcher, tasks: &Tasks, data: &Path) -> anyhow::Result<Report> {
    let directory = data.join("selftest");
    drop(std::fs::remove_dir_all(&directory));
    crate::layout::make_passage(&directory).context("make the self-test's directory")?;
    let found = probe(launcher, tasks, &directory).await;
    drop(std::fs::remove_dir_all(&directory));
    let found = found?;
    let missing = REQUIRED.iter().filter_map(|(name, wanted, advice)| {
        let value = found.get(*name).map_or("unknown", String::as_str);
        (value != *wanted).then(|| format!("{name} is {value}, not {wanted}: {advice}"))
    });
    let missing = missing.collect();
    let mut properties = found;
    properties.remove("canary");
    describe(&mut properties, launcher.facts());
    Ok(Report { properties, missing })
}

async fn probe(
    launcher: &Launcher,
    tasks: &Tasks,
    directory: &Path,
) -> anyhow::Result<BTreeMap<String, String>> {
    let uid = launcher.facts().user_ids.first;
    let tree = directory.join("tree");
    std::fs::create_dir(&tree).context("make the self-test's workspace")?;
    launch::give_to(launcher.facts(), uid, &tree).context("give the self-test its workspace")?;
    // Every user can read it: only the mounts hide it from the sandbox.
    let secret = directory.join("secret");
    std::fs::write(&secret, "canary").context("write the self-test's secret")?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("listen for the self-test")?;
    let port = listener.local_addr().context("listen for the self-test")?.port();

    let plan = SandboxSpec { uid, mounts: vec![Mount::write(&tree, "/workspace")], permit: None };
    let sandbox = match Sandbox::start(launcher, tasks, plan).await {
        Ok(sandbox) => sandbox,
        Err(error) => return Err(anyhow::Error::new(error).context(advice(launcher.facts()))),
    };
    let env = [
        format!("PROBE_FILE={}", secret.display()),
        format!("PROBE_PORT={port}"),
        "PATH=/usr/local/bin:/usr/bin:/bin".to_owned(),
    ];
    let exec = sandbox_wire::v1::Exec {
        command: SCRIPT.to_owned(),
        env: env.into(),
        timeout_ms: TIME_LIMIT.as_millis() as u64,
        output_bytes_max: OUTPUT_BYTES_MAX,
        ..Default::default()
    };
    let mut events = sandbox.exec(exec).await.context("start the self-test's script")?.events;
    let mut output = Vec::new();
    while let Some(event) = events.recv().await {
        match event {
            Event::Output(data) => output.extend_from_slice(&data),
            Event::Exit(_) => break,
        }
    }
    let landlock = sandbox.hello.landlock.clone();
    sandbox.stop().await;
    let output = String::from_utf8_lossy(&output);
    let lines = output.lines().filter_map(|line| line.split_once('='));
    let mut found: BTreeMap<_, _> = lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    found.insert("landlock".to_owned(), landlock);
    Ok(found)
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
        ("memory_limit", format!("{} bytes ({memory})", facts.limits.memory_bytes)),
        ("process_limit", facts.limits.processes.to_string()),
        ("disk_limit", format!("{} bytes (RLIMIT_FSIZE and a watchdog)", facts.limits.disk_bytes)),
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
