//! What the machine and the settings offer: programs, control groups, privileges and limits.

use super::{
    cgroup,
    gvisor::Gvisor,
    policy::{Limits, Scheduling, User},
    root::image::Overlay,
};
use crate::{
    config::{Config, ControlGroups, Runtime},
    user_ids::UserIds,
};
use anyhow::Context as _;
use std::{
    fs,
    path::{Path, PathBuf},
};

const INIT: &str = "flotilla-init";
const UNPACK: &str = "flotilla-unpack";
const CAP_SYS_ADMIN: u32 = 21;

/// What this machine and the settings give.
#[derive(Debug, Clone)]
pub struct Facts {
    pub bwrap: PathBuf,
    /// As bubblewrap prints it, for example "0.8.0".
    pub bwrap_version: String,
    /// The kernel between the programs of sandboxes and that of the machine, if there is one.
    pub gvisor: Option<Gvisor>,
    /// The `flotilla-init` program.
    pub init: PathBuf,
    /// The `flotilla-unpack` program.
    pub unpack: PathBuf,
    /// Who joins the layers of images.
    pub overlay: Overlay,
    /// See [`User`].
    pub user: User,
    /// The users of sandboxes, if each session has one of its own.
    pub user_ids: UserIds,
    /// Whether the service may mount, so that it can reach paths that only root may enter.
    pub can_stage: bool,
    /// Where control groups are made.
    pub cgroup: cgroup::Base,
    /// What the kernel shares the processors between.
    pub scheduling: Scheduling,
    /// The limits of a sandbox.
    pub limits: Limits,
}

impl Facts {
    /// Looks at the machine. The workspaces of the service take their users from `user_ids`.
    ///
    /// # Errors
    /// When bubblewrap, `flotilla-init`, `flotilla-unpack` or the chosen runtime is missing; the text says how to mend it.
    pub fn find(config: &Config, user_ids: UserIds) -> anyhow::Result<Self> {
        let bwrap = find_program(&config.bwrap).with_context(|| {
            format!(
                "find the bubblewrap program {}: install it (`apt-get install bubblewrap`) or name it in \
                 FLOTILLA_SANDBOX_BWRAP",
                config.bwrap.display()
            )
        })?;
        let output =
            std::process::Command::new(&bwrap).arg("--version").output().context("run bubblewrap")?;
        let version =
            String::from_utf8_lossy(&output.stdout).trim().trim_start_matches("bubblewrap ").to_owned();
        let gvisor = match config.runtime {
            Runtime::Bwrap => None,
            Runtime::Runsc => Some(find_gvisor(&config.runsc)?),
        };
        let user = User::find();
        let cgroup = match config.control_groups {
            ControlGroups::Auto => cgroup::Base::find(),
            ControlGroups::Off => cgroup::Base::None,
        };
        cgroup.sweep();
        let can_stage = user == User::PerSession && has_capability(CAP_SYS_ADMIN);
        Ok(Self {
            bwrap,
            overlay: Overlay::find(can_stage, &version),
            bwrap_version: version,
            gvisor,
            unpack: chassis::programs::find(UNPACK).context("find the program that unpacks layers")?,
            init: find_init(config.init.as_deref())?,
            user,
            user_ids,
            can_stage,
            scheduling: Scheduling::find(cgroup.limits_cpu()),
            cgroup,
            limits: Limits {
                memory_bytes: config.memory_bytes,
                processes: config.processes,
                cpu_percent: config.cpu_percent,
                disk_bytes: config.disk_bytes,
                // Files in memory must leave room for programs: they stay when the program that wrote them is ended.
                tmp_bytes: config.tmp_bytes.min(config.memory_bytes / 4),
            },
        })
    }
}

fn find_gvisor(name: &Path) -> anyhow::Result<Gvisor> {
    let program = find_program(name).with_context(|| {
        format!(
            "find {}, because FLOTILLA_SANDBOX_RUNTIME is runsc: install gVisor's runsc, or name it in FLOTILLA_SANDBOX_RUNSC",
            name.display()
        )
    })?;
    Gvisor::at(program)
}

fn find_program(name: &Path) -> anyhow::Result<PathBuf> {
    if name.components().count() > 1 {
        return name.canonicalize().context("resolve its path");
    }
    let path = search_path();
    let found = path.iter().map(|directory| directory.join(name)).find(|file| file.is_file());
    found.context("look in PATH")
}

/// The directories of PATH. The system decides where programs are, so this is not a setting of ours.
fn search_path() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

fn find_init(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = named {
        return path.canonicalize().with_context(|| format!("find FLOTILLA_SANDBOX_INIT {}", path.display()));
    }
    chassis::programs::find(INIT).context("find the init; FLOTILLA_SANDBOX_INIT can name it")
}

fn has_capability(number: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective =
        status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    effective.is_some_and(|set| set >> number & 1 == 1)
}
