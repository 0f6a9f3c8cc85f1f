//! Landlock, a second wall behind the mounts: commands may write only below the workspace and the tmpfs mounts, even if
//! a mount were wrong. Best effort: older kernels and gVisor do not have it.

use crate::paths::WORKSPACE;
use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

/// Restricts the calling thread and everything that it starts. Returns what is in force, in words.
///
/// One domain for all commands of a sandbox: in domains of their own, a later command could not see the open files
/// of a server that an earlier one had started (`lsof`, `fuser`). Signals are not scoped for the same reason.
///
/// `may_mount`: the files get no such wall, because the kernel lets no program mount that is behind it.
pub(super) fn raise(may_mount: bool) -> String {
    match restrict(may_mount) {
        Ok(RulesetStatus::FullyEnforced) => "fully enforced".to_owned(),
        Ok(RulesetStatus::PartiallyEnforced) => "partially enforced".to_owned(),
        Ok(RulesetStatus::NotEnforced) => "not enforced".to_owned(),
        Err(error) => format!("not enforced ({error})"),
    }
}

fn restrict(may_mount: bool) -> Result<RulesetStatus, RulesetError> {
    let abi = ABI::V6;
    if may_mount {
        let status = Ruleset::default().scope(Scope::AbstractUnixSocket)?.create()?.restrict_self()?;
        return Ok(status.ruleset);
    }
    // Only a build is root: it makes a layer of an image, and the mounts alone say where it may write.
    let is_build = nix::unistd::getuid().is_root();
    let writable = if is_build { &["/"][..] } else { &[WORKSPACE, "/tmp", "/home/agent", "/dev", "/proc"] };
    let status = Ruleset::default()
        // Without this right the kernel refuses every move between directories. No Landlock is better than that.
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::Refer)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .scope(Scope::AbstractUnixSocket)?
        .create()?
        .add_rules(path_beneath_rules(["/"], AccessFs::from_read(abi)))?
        .add_rules(path_beneath_rules(writable, AccessFs::from_all(abi)))?
        .restrict_self()?;
    Ok(status.ruleset)
}
