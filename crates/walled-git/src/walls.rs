//! The walls of a git that reads foreign objects. Objects that take it over find no secret, no network and no other process.
//!
//! Landlock must stand: git runs as the user of its caller, whose files hold keys. The system calls that change modes, owners and times are missing
//! because Landlock does not cover them.

use anyhow::{Context as _, ensure};
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus,
};
use nix::sys::{prctl, resource::Resource, signal::Signal};
use std::path::Path;

/// Memory of the process: the objects and the parts of packs that git looks at. Beyond it: `push_content_invalid`.
const MEMORY_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;
/// Processor time. Git needs about a second for 200 MiB of files that do not compress. Beyond it: `push_content_invalid`.
const CPU_SECONDS_MAX: u64 = 120;
/// Descriptors that may be open: packs and their indexes.
const DESCRIPTORS_MAX: u64 = 64;

/// What git may read outside its directory: its program and its libraries. It reads no configuration of the machine.
const READABLE: [&str; 7] = ["/usr", "/bin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/dev/urandom"];

/// System calls of a program that starts and fills a directory. None starts a process or a thread, and none opens a socket.
const SYSTEM_CALLS: [i64; 40] = [
    libc::SYS_chdir,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_execve,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fstat,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_sysinfo,
    libc::SYS_umask,
    libc::SYS_uname,
    libc::SYS_unlinkat,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
];

/// Older spellings of the same calls, which only this architecture has.
#[cfg(target_arch = "x86_64")]
const OLDER: [i64; 14] = [
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_dup2,
    libc::SYS_getdents,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: [i64; 0] = [];

/// Raises every wall. This process and the git that it becomes can then write only below `directory`, and end with their parent.
///
/// # Errors
/// If one does not stand; then git must not start.
pub(crate) fn raise(directory: &Path, git: &Path, file_bytes_max: u64) -> anyhow::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("end with the parent")?;
    process_walls::part()?;
    process_walls::lower_all(&[
        (Resource::RLIMIT_AS, MEMORY_BYTES_MAX),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_CPU, CPU_SECONDS_MAX),
        (Resource::RLIMIT_FSIZE, file_bytes_max),
        (Resource::RLIMIT_NOFILE, DESCRIPTORS_MAX),
    ])?;
    confine(directory, git).context("confine the process to its directory with Landlock")?;
    process_walls::allow_only(&[&SYSTEM_CALLS[..], &OLDER[..]].concat())
}

fn confine(directory: &Path, git: &Path) -> anyhow::Result<()> {
    let (all, read) = (AccessFs::from_all(ABI::V5), AccessFs::from_read(ABI::V5));
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .create()?;
    let mut rules = allow(rules, directory, all)?;
    rules = allow(rules, Path::new("/dev/null"), AccessFs::ReadFile | AccessFs::WriteFile)?;
    for path in READABLE.map(Path::new).into_iter().chain([git]).filter(|path| path.exists()) {
        let access = if path.is_dir() { read } else { AccessFs::ReadFile | AccessFs::Execute };
        rules = allow(rules, path, access)?;
    }
    let status = rules.restrict_self()?;
    ensure!(status.ruleset != RulesetStatus::NotEnforced, "the kernel has no Landlock (Linux 5.13)");
    Ok(())
}

fn allow(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> anyhow::Result<RulesetCreated> {
    let opened = PathFd::new(path).with_context(|| format!("open {}", path.display()))?;
    Ok(rules.add_rule(PathBeneath::new(opened, access))?)
}
