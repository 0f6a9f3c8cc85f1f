//! The skeleton: the layer that lies on top of every image. It has each mount point of a sandbox as a real directory or file.
//!
//! It is a wall. Bubblewrap follows links when it makes a mount point, and while it does so the whole machine is still reachable: an image
//! with `/run -> /oldroot/…` made it create files of the machine. What the skeleton has hides what an image has under the same name, and
//! bubblewrap has nothing left to create.

use super::{
    accounts::Accounts,
    host::{HOSTS, NSSWITCH},
};
use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

/// Every directory on the way to a mount point, parents first.
const DIRECTORIES: [&str; 16] = [
    "dev",
    "etc",
    "home",
    "home/agent",
    "opt",
    "opt/flotilla",
    "opt/flotilla/lib",
    "proc",
    "run",
    "run/egress",
    "run/sbx",
    "run/sbx/out",
    "sys",
    "tmp",
    "var",
    "workspace",
];
/// The mount points that are files.
const FILES: [&str; 3] = ["opt/flotilla/init", "run/sbx/apt.conf", "run/sbx/ca.pem"];
/// What a build cannot add to an image: mount points, and files that the skeleton hides.
pub const HIDDEN: [&str; 12] = [
    "dev",
    "etc/hosts",
    "etc/nsswitch.conf",
    "etc/resolv.conf",
    "home/agent",
    "opt/flotilla",
    "proc",
    "run",
    "sys",
    "tmp",
    "var/tmp",
    "workspace",
];

/// Fills `directory`, which exists and is empty.
pub fn write(directory: &Path, accounts: &Accounts) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o755))?;
    for name in DIRECTORIES {
        let path = directory.join(name);
        fs::create_dir(&path)?;
        fs::set_permissions(path, Permissions::from_mode(0o755))?;
    }
    let files = [
        ("etc/passwd", accounts.passwd.as_str()),
        ("etc/group", accounts.group.as_str()),
        ("etc/hosts", HOSTS),
        ("etc/nsswitch.conf", NSSWITCH),
        ("etc/resolv.conf", ""),
    ];
    for (name, content) in FILES.map(|name| (name, "")).into_iter().chain(files) {
        let path = directory.join(name);
        fs::write(&path, content)?;
        fs::set_permissions(path, Permissions::from_mode(0o644))?;
    }
    // Not a mount point: the root is read-only, and programs write here.
    symlink("/tmp", directory.join("var/tmp"))
}
