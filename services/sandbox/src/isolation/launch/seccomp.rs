//! The two seccomp filters of a sandbox, as programs that bubblewrap loads. A seccompiler filter has one action for
//! calls that match and one for the rest, so two are needed; the kernel takes the strictest action.
//!
//! A: the allowlist, everything else is EPERM, also the ioctls that type into a terminal; another architecture's calls are killed.
//! B: `clone3` is ENOSYS: its flags are behind a pointer that a filter cannot read; C libraries fall back to `clone`. So are the newer calls that
//!    mount, for which programs fall back to `mount`.
//!
//! A build has two more: its programs believe that they are root, so calls that only root may make give 0 and do nothing. Package managers give files to
//! users and become other users, and fail if they cannot. And the kernel seems to have no log of audits, without which `groupadd` would not work.

mod syscalls;

use domain::session::environment::SandboxOptions;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// Every CLONE_NEW* flag that `clone` takes.
const NAMESPACE_FLAGS: u64 = 0x7e02_0000;
/// Personalities of ordinary programs: Linux, 32 bits, an old version of Linux, both, addresses that are not random (for sanitizers and
/// debuggers), and "what is it now?".
const PERSONALITIES: [u64; 6] = [0, 0x0008, 0x2_0000, 0x2_0008, 0x4_0000, 0xffff_ffff];

/// The filters could not be compiled: a bug of this program, or an architecture that it does not support.
#[derive(Debug, thiserror::Error)]
#[error("compile the seccomp filters")]
pub(super) struct FilterError(#[from] BackendError);

/// The programs of the sandboxes with each set of options.
#[derive(Debug)]
pub(super) struct Filters {
    plain: [Vec<u8>; 2],
    ptrace: [Vec<u8>; 2],
    namespaces: [Vec<u8>; 2],
    both: [Vec<u8>; 2],
}

impl Filters {
    /// Compiles them.
    ///
    /// # Errors
    /// `FilterError` on an architecture other than x86-64, AArch64 and RISC-V 64.
    pub(super) fn compile() -> Result<Self, FilterError> {
        let of = |allow_ptrace, allow_user_namespaces| {
            programs(SandboxOptions { allow_ptrace, allow_user_namespaces })
        };
        Ok(Self {
            plain: of(false, false)?,
            ptrace: of(true, false)?,
            namespaces: of(false, true)?,
            both: of(true, true)?,
        })
    }

    /// The two programs of a sandbox.
    pub(super) fn of(&self, options: SandboxOptions) -> &[Vec<u8>; 2] {
        match (options.allow_ptrace, options.allow_user_namespaces) {
            (false, false) => &self.plain,
            (true, false) => &self.ptrace,
            (false, true) => &self.namespaces,
            (true, true) => &self.both,
        }
    }
}

/// Gives the two programs as the bytes that the kernel takes (`struct sock_filter[]`).
fn programs(options: SandboxOptions) -> Result<[Vec<u8>; 2], FilterError> {
    let deny = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let allowlist = compile(allowed(options)?, deny, SeccompAction::Allow)?;
    let absent = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let calls = std::iter::once(&libc::SYS_clone3).chain(syscalls::NEWER_MOUNTING);
    let newer = calls.map(|number| (*number, Vec::new())).collect();
    let newer = compile(newer, SeccompAction::Allow, absent)?;
    Ok([bytes(&allowlist), bytes(&newer)])
}

/// Gives the further programs of a build, which must come last: of filters that refuse the same call, the error of the last one counts. Calls that
/// change users, owners and capabilities, or make devices, give 0 and do nothing; the socket of audits is EPROTONOSUPPORT.
///
/// # Errors
/// Those of [`Filters::compile`].
pub(super) fn fake_root() -> Result<[Vec<u8>; 2], FilterError> {
    let always = syscalls::OF_ROOT.iter().chain(syscalls::OLDER_OF_ROOT);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = always.map(|number| (*number, Vec::new())).collect();
    for (number, mode) in syscalls::MAKING_NODES {
        // FIFOs, sockets and files can be made without rights.
        let device =
            |kind: libc::mode_t| argument(*mode, SeccompCmpOp::MaskedEq(libc::S_IFMT.into()), kind.into());
        rules.insert(*number, vec![device(libc::S_IFCHR)?, device(libc::S_IFBLK)?]);
    }
    let silent = compile(rules, SeccompAction::Allow, SeccompAction::Errno(0))?;
    let audits = SeccompRule::new(vec![
        condition(0, SeccompCmpOp::Eq, u64::from(libc::AF_NETLINK.unsigned_abs()))?,
        condition(2, SeccompCmpOp::Eq, u64::from(libc::NETLINK_AUDIT.unsigned_abs()))?,
    ])?;
    let absent = SeccompAction::Errno(libc::EPROTONOSUPPORT.unsigned_abs());
    let audits = BTreeMap::from([(libc::SYS_socket, vec![audits])]);
    Ok([bytes(&silent), bytes(&compile(audits, SeccompAction::Allow, absent)?)])
}

fn allowed(options: SandboxOptions) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let tracing = if options.allow_ptrace { syscalls::TRACING } else { &[] };
    let namespaces = if options.allow_user_namespaces { syscalls::NAMESPACES } else { &[] };
    let always =
        [syscalls::COMMON, syscalls::OLDER, syscalls::UNNAMED, tracing, namespaces].into_iter().flatten();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = always.map(|number| (*number, Vec::new())).collect();
    let plain = vec![argument(0, SeccompCmpOp::MaskedEq(NAMESPACE_FLAGS), 0)?];
    rules.insert(libc::SYS_clone, if options.allow_user_namespaces { Vec::new() } else { plain });
    let not_typing = SeccompRule::new(vec![
        condition(1, SeccompCmpOp::Ne, libc::TIOCSTI)?,
        condition(1, SeccompCmpOp::Ne, libc::TIOCLINUX)?,
    ])?;
    rules.insert(libc::SYS_ioctl, vec![not_typing]);
    let family = |family: i32| argument(0, SeccompCmpOp::Eq, u64::from(family.unsigned_abs()));
    let route = SeccompRule::new(vec![
        condition(0, SeccompCmpOp::Eq, u64::from(libc::AF_NETLINK.unsigned_abs()))?,
        condition(2, SeccompCmpOp::Eq, u64::from(libc::NETLINK_ROUTE.unsigned_abs()))?,
    ])?;
    let families = vec![family(libc::AF_UNIX)?, family(libc::AF_INET)?, family(libc::AF_INET6)?, route];
    rules.insert(libc::SYS_socket, families);
    rules.insert(libc::SYS_socketpair, vec![family(libc::AF_UNIX)?]);
    let personalities: Result<_, _> =
        PERSONALITIES.iter().map(|p| argument(0, SeccompCmpOp::Eq, *p)).collect();
    rules.insert(libc::SYS_personality, personalities?);
    Ok(rules)
}

fn condition(index: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)
}

fn argument(index: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![condition(index, operator, value)?])
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, otherwise, matched, arch)?.try_into()
}

/// The layout of `struct sock_filter` in this machine's byte order.
fn bytes(program: &BpfProgram) -> Vec<u8> {
    let one = |i: &seccompiler::sock_filter| {
        let [code_0, code_1] = i.code.to_ne_bytes();
        let [k_0, k_1, k_2, k_3] = i.k.to_ne_bytes();
        [code_0, code_1, i.jt, i.jf, k_0, k_1, k_2, k_3]
    };
    program.iter().flat_map(one).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn programs_fit_the_kernel() {
        let all = SandboxOptions { allow_ptrace: true, allow_user_namespaces: true };
        for program in programs(all).unwrap().into_iter().chain(fake_root().unwrap()) {
            assert_eq!(program.len() % 8, 0);
            assert!((1..=4096).contains(&(program.len() / 8)), "BPF_MAXINSNS");
        }
    }

    #[test]
    fn calls_that_break_out_are_not_allowed() {
        let allows = |options: SandboxOptions, number: i64| allowed(options).unwrap().contains_key(&number);
        let none = SandboxOptions::NONE;
        let ptrace = SandboxOptions { allow_ptrace: true, ..none };
        let namespaces = SandboxOptions { allow_user_namespaces: true, ..none };
        for number in [libc::SYS_ptrace, libc::SYS_process_vm_readv] {
            assert_eq!(
                [none, namespaces, ptrace].map(|options| allows(options, number)),
                [false, false, true]
            );
        }
        for number in [libc::SYS_unshare, libc::SYS_setns, libc::SYS_mount] {
            assert_eq!(
                [none, ptrace, namespaces].map(|options| allows(options, number)),
                [false, false, true]
            );
        }
        let all = SandboxOptions { allow_ptrace: true, allow_user_namespaces: true };
        for number in [
            libc::SYS_io_uring_setup,
            libc::SYS_keyctl,
            libc::SYS_bpf,
            libc::SYS_userfaultfd,
            libc::SYS_open_by_handle_at,
        ] {
            assert!(!allows(all, number), "{number}");
        }
    }
}
