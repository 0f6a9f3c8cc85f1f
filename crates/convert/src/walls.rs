//! The walls of this process: its limits, and the system calls that it may make. The process raises them before it reads the
//! request. Content that takes the process over then finds no file, no network, no other process and no key.
//!
//! The process needs no signal when its parent dies: its pipes end, and the limit of processor time ends a computation.

use anyhow::Context as _;
use convert_client::bounds::{CPU_SECONDS_MAX, MEMORY_BYTES_MAX};
use nix::sys::{
    prctl,
    resource::{Resource, getrlimit, setrlimit},
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use std::{collections::BTreeMap, fs};

/// Descriptors that may be open: the three of every program, and a few for its start. Opening another one fails.
const DESCRIPTORS_MAX: u64 = 16;
/// The kernel ends this process first when the machine runs out of memory.
const OOM_SCORE: &str = "1000";

/// The nice value: a conversion gets a third of what a thread of a service gets when both want all. It is short and a call waits for it, so it
/// is less nice than a command in a sandbox.
const NICE: i32 = 5;

/// System calls of a program that computes: memory, its pipes, time, randomness for hash tables, its own end.
const SYSTEM_CALLS: [i64; 24] = [
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Raises every wall.
///
/// # Errors
/// If one does not stand; then nothing must be converted.
pub(crate) fn raise() -> anyhow::Result<()> {
    close_descriptors().context("close the descriptors of the parent")?;
    fs::write("/proc/self/oom_score_adj", OOM_SCORE).context("raise the OOM score")?;
    // This is not a wall. The system refuses it to a program whose parent is even nicer.
    let _ = rustix::process::setpriority_process(None, NICE);
    prctl::set_dumpable(false).context("forbid tracing and core dumps")?;
    prctl::set_no_new_privs().context("set no_new_privs")?;
    for (resource, most) in [
        (Resource::RLIMIT_AS, MEMORY_BYTES_MAX),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_NOFILE, DESCRIPTORS_MAX),
        (Resource::RLIMIT_NPROC, 0),
    ] {
        lower(resource, most, most)?;
    }
    // The signal at the first limit tells the parent why the process died.
    lower(Resource::RLIMIT_CPU, CPU_SECONDS_MAX, CPU_SECONDS_MAX + 1)?;
    seccompiler::apply_filter(&filter().context("compile the filter of system calls")?)
        .context("load the filter of system calls")
}

/// Lowers a limit. An operator may have set a lower one, which nobody may raise.
fn lower(resource: Resource, soft: u64, hard: u64) -> anyhow::Result<()> {
    let (_, most) = getrlimit(resource).with_context(|| format!("read {resource:?}"))?;
    setrlimit(resource, soft.min(most), hard.min(most)).with_context(|| format!("set {resource:?}"))
}

/// Closes what the parent left open for its programs, for example the lock of a script that started it.
fn close_descriptors() -> anyhow::Result<()> {
    let names = fs::read_dir("/proc/self/fd").context("list them")?;
    let open: Vec<i32> = names
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for descriptor in open {
        // The descriptor of the list itself is closed already.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}

/// Every other call fails with EPERM.
fn filter() -> anyhow::Result<BpfProgram> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        SYSTEM_CALLS.into_iter().map(|number| (number, vec![])).collect();
    // `abort` sends a signal to itself, and to nobody else.
    let own =
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(std::process::id()))?;
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![own])?]);
    let refusal = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let architecture: TargetArch = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, refusal, SeccompAction::Allow, architecture)?.try_into()?)
}
