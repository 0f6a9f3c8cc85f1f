//! The walls that a process raises around itself before it reads foreign content: what it keeps of its parent, its limits, and the system
//! calls that it may make.

use anyhow::Context as _;
use nix::sys::{
    prctl,
    resource::{Resource, getrlimit, setrlimit},
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use std::{collections::BTreeMap, fs};

/// The kernel ends this process first when the machine runs out of memory.
const OOM_SCORE: &str = "1000";

/// System calls of a program that computes: memory, its descriptors, time, randomness for hash tables, its own end.
const COMPUTATION: [i64; 24] = [
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

/// Parts the process from its parent: it keeps the three descriptors of every program, nobody may trace it, and no program that it starts gets
/// more rights.
///
/// # Errors
/// If a wall does not stand; then the process must read nothing.
pub fn part() -> anyhow::Result<()> {
    close_descriptors().context("close the descriptors of the parent")?;
    fs::write("/proc/self/oom_score_adj", OOM_SCORE).context("raise the OOM score")?;
    prctl::set_dumpable(false).context("forbid tracing and core dumps")?;
    prctl::set_no_new_privs().context("set no_new_privs")
}

/// Lowers a limit. An operator may have set a lower one, which nobody may raise.
///
/// # Errors
/// If the system refuses.
pub fn lower(resource: Resource, soft: u64, hard: u64) -> anyhow::Result<()> {
    let (_, most) = getrlimit(resource).with_context(|| format!("read {resource:?}"))?;
    setrlimit(resource, soft.min(most), hard.min(most)).with_context(|| format!("set {resource:?}"))
}

/// Lowers limits, each to one value that the process cannot raise.
///
/// # Errors
/// If the system refuses.
pub fn lower_all(limits: &[(Resource, u64)]) -> anyhow::Result<()> {
    limits.iter().try_for_each(|(resource, most)| lower(*resource, *most, *most))
}

/// Allows the system calls of a program that computes, these further ones, and signals to the process itself, with which it aborts. Every other
/// call fails with EPERM.
///
/// # Errors
/// If the system has no such filter.
pub fn allow_only(further: &[i64]) -> anyhow::Result<()> {
    let system_calls = [&COMPUTATION[..], further].concat();
    seccompiler::apply_filter(&filter(&system_calls).context("compile the filter of system calls")?)
        .context("load the filter of system calls")
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

fn filter(system_calls: &[i64]) -> anyhow::Result<BpfProgram> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        system_calls.iter().map(|number| (*number, vec![])).collect();
    // `abort` sends a signal to itself, and to nobody else.
    let own =
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(std::process::id()))?;
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![own])?]);
    let refusal = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let architecture: TargetArch = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, refusal, SeccompAction::Allow, architecture)?.try_into()?)
}
