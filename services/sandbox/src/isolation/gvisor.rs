//! gVisor: a kernel in a program, `runsc`, which stands between the programs of a sandbox and the kernel of the machine. It runs inside
//! bubblewrap, without a privilege, so all walls of bubblewrap stand behind it: programs that break out of it are still in a sandbox, as the user of
//! their session, in its control group, with its files.
//!
//! Helpers, which run git and no program of a tenant, do without it. So do the setups of images, which become root and give files to users: gVisor would
//! have to do that to files of the machine.

use super::policy::OPEN_FILES_MAX;
use anyhow::{Context as _, bail};
use serde_json::json;
use std::{
    ffi::OsString,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
    process::Command,
};

/// The oldest release that passes the tests of sandboxes, by its date. `ls -l` fails in those of 2022.
const RELEASE_MIN: &str = "20240729";
/// The directory of `runsc`, its configuration and its state. Bubblewrap has nothing else there. The programs inside see the one of gVisor's
/// kernel in its place, because the sockets of the state control the sandbox.
pub(super) const DIRECTORY: &str = "/sys";
pub(super) const PROGRAM: &str = "/sys/runsc";
const CONFIG: &str = "/sys/config.json";
/// `runsc` runs one container here, so its name does not matter.
const CONTAINER: &str = "sandbox";
/// The descriptor of the init's socket: gVisor passes only the standard ones.
pub(super) const SOCKET: i32 = 0;
/// The part of a sandbox's memory that the init lets programs use: seven of eight. The rest is for gVisor itself, which the control group counts too. If
/// the kernel ended gVisor, the whole sandbox would end.
const MEMORY_PARTS: [u64; 2] = [7, 8];

/// The `runsc` program of this machine.
#[derive(Debug, Clone)]
pub struct Gvisor {
    program: PathBuf,
    /// As `runsc` prints it, for example "release-20260831.0".
    pub version: String,
}

impl Gvisor {
    /// Asks `program` for its version.
    ///
    /// # Errors
    /// When it does not run, or is too old.
    pub(super) fn at(program: PathBuf) -> anyhow::Result<Self> {
        let output = Command::new(&program).arg("--version").output().context("run runsc")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = version(&text).context("runsc prints no version")?.to_owned();
        match release(&version) {
            Some(date) if date < RELEASE_MIN => {
                bail!(
                    "runsc {version} is too old: gVisor is needed in its release {RELEASE_MIN} or a newer one"
                )
            }
            _ => Ok(Self { program, version }),
        }
    }

    /// The program on this machine. A sandbox sees it as [`PROGRAM`].
    pub(super) fn program(&self) -> &Path {
        &self.program
    }
}

/// The memory that programs may use in a sandbox with this limit; bytes.
pub(super) fn memory_bytes(limit: u64) -> u64 {
    let [most, parts] = MEMORY_PARTS;
    limit / parts * most
}

/// Bubblewrap's arguments for the directory of [`PROGRAM`]. They come before its mount.
pub(super) fn directory_arguments() -> impl Iterator<Item = OsString> {
    ["--perms", "700", "--tmpfs", DIRECTORY].into_iter().map(Into::into)
}

/// Bubblewrap's last arguments: they run what the configuration in the file `config` says.
pub(super) fn arguments(config: &OwnedFd) -> Vec<OsString> {
    let descriptor = config.as_raw_fd().to_string();
    let state = format!("--root={DIRECTORY}/state");
    let all = [
        "--ro-bind-data",
        &descriptor,
        CONFIG,
        "--",
        PROGRAM,
        "--rootless",
        &state,
        // Bubblewrap and the control group of the sandbox are there already.
        "--ignore-cgroups",
        "--network=none",
        // The doors of the session are sockets.
        "--host-uds=open",
        // The service, helpers and other sandboxes change the same files.
        "--file-access=shared",
        "--overlay2=none",
        // Otherwise `ls -l` reports errors of symbolic links.
        "--directfs=false",
        "--log=/dev/null",
        "run",
        "--bundle",
        DIRECTORY,
        CONTAINER,
    ];
    all.map(OsString::from).into()
}

/// The configuration of a container that runs `init` (OCI runtime specification). A file may have `file_bytes_max`.
pub(super) fn config(init: &[String], file_bytes_max: u64) -> Vec<u8> {
    let limit = |kind: &str, most: u64| json!({"type": kind, "soft": most, "hard": most});
    // The mounts are those of bubblewrap. What the kernel itself provides comes from gVisor's kernel.
    let mount = |path: &str, kind: &str| json!({"destination": path, "type": kind, "source": kind});
    let namespaces = ["pid", "network", "ipc", "uts", "mount"].map(|kind| json!({"type": kind}));
    let config = json!({
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": init,
            "cwd": "/workspace",
            "noNewPrivileges": true,
            "capabilities": {},
            "rlimits": [limit("RLIMIT_NOFILE", OPEN_FILES_MAX), limit("RLIMIT_FSIZE", file_bytes_max)],
        },
        "root": {"path": "/"},
        "hostname": "sandbox",
        "mounts": [
            mount("/proc", "proc"),
            mount("/dev", "tmpfs"),
            mount("/dev/pts", "devpts"),
            mount("/dev/shm", "tmpfs"),
            mount(DIRECTORY, "sysfs"),
        ],
        "linux": {"namespaces": namespaces},
    });
    config.to_string().into_bytes()
}

/// The version in the first line of `runsc --version`.
fn version(text: &str) -> Option<&str> {
    text.lines().next()?.strip_prefix("runsc version ").map(str::trim)
}

/// The digits of the date of a release; later dates compare as greater.
fn release(version: &str) -> Option<&str> {
    version.split(|letter: char| !letter.is_ascii_digit()).find(|digits| digits.len() == RELEASE_MIN.len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_release_is_read_from_each_form_of_version() {
        for (text, want) in [
            ("runsc version release-20260831.0\nspec: 1.2.0\n", Some("20260831")),
            ("runsc version 0.0~20221219.0\nspec: 1.0.2-dev\n", Some("20221219")),
            ("runsc version VERSION_MISSING\n", None),
        ] {
            assert_eq!(release(version(text).unwrap()), want, "{text}");
        }
        assert_eq!(version("crun 1.8\n"), None);
    }
}
