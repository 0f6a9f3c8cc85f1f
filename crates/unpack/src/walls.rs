//! The walls of the process that unpacks: its memory, the one directory that it may change, and the system calls that it may make. A layer
//! that takes the process over finds no network, no other process and no other file.

use crate::bounds::MEMORY_BYTES_MAX;
use anyhow::Context as _;
use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _,
};
use nix::sys::resource::Resource;
use std::path::Path;

/// Descriptors that may be open: the three of every program, and two directories and a file.
const DESCRIPTORS_MAX: u64 = 16;

/// System calls of a program that fills a directory.
const SYSTEM_CALLS: [i64; 19] = [
    libc::SYS_fchmod,
    libc::SYS_fcntl,
    libc::SYS_fsetxattr,
    libc::SYS_fstat,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_syncfs,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
];

/// Raises every wall. The process can then write only below `directory`.
///
/// # Errors
/// If one does not stand; then nothing must be unpacked.
pub fn raise(directory: &Path, file_bytes_max: u64) -> anyhow::Result<()> {
    process_walls::part()?;
    process_walls::lower_all(&[
        (Resource::RLIMIT_AS, MEMORY_BYTES_MAX),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_FSIZE, file_bytes_max),
        (Resource::RLIMIT_NOFILE, DESCRIPTORS_MAX),
        (Resource::RLIMIT_NPROC, 0),
    ])?;
    confine(directory).context("confine the process to its directory")?;
    process_walls::allow_only(&SYSTEM_CALLS)
}

/// Landlock, as far as the kernel has it: the paths are resolved below the directory anyway.
fn confine(directory: &Path) -> anyhow::Result<()> {
    let all = AccessFs::from_all(ABI::V5);
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .create()?
        .add_rule(PathBeneath::new(PathFd::new(directory)?, all))?
        .restrict_self()?;
    Ok(())
}
