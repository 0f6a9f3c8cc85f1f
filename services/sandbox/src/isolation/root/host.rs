//! What a sandbox sees of the machine: /usr read-only, and its own /etc, never the host's.

use super::{accounts::Accounts, image::APT_FILE, mount::Mount};
use crate::isolation::policy::Network;
use std::{
    ffi::OsString,
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Parts of the host's /etc that programs in /usr need and that hold no secret. Shown where they exist. Of Maven's
/// configuration the settings are left out: they may hold passwords of repositories.
const HOST_ETC: [&str; 8] = [
    "alternatives",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ld.so.cache",
    "pki/tls/certs",
    "pki/ca-trust/extracted",
    "maven/m2.conf",
    "maven/logging",
];
/// The configuration of each installed Java: its links in /usr lead to `/etc/java-17-openjdk` and the like.
const HOST_JAVA: (&str, &str) = ("java-", "-openjdk");
/// Top directories that belong to /usr on a merged-/usr host and are directories of their own on others.
const TOP: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];
/// Files of /proc that reveal or control the machine. Those that exist are hidden.
const PROC_HIDDEN: [&str; 11] = [
    "kcore",
    "keys",
    "sysrq-trigger",
    "kallsyms",
    "timer_list",
    "latency_stats",
    "sched_debug",
    "kmsg",
    "loadavg",
    "diskstats",
    "cmdline",
];

pub(super) const HOSTS: &str = "127.0.0.1 localhost sandbox\n::1 localhost\n";
pub(super) const NSSWITCH: &str =
    "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n";
/// For the helper that clones from a directory of another owner. Only that helper names this file.
const GIT_READER: &str = "[safe]\n\tdirectory = *\n";
/// For builds of layers: apt would become another user, which a build can only pretend.
const APT: &str = "APT::Sandbox::User \"root\";\n";

/// Writes the files of the sandbox's /etc into `directory`, and empty files where parts of the host's are bound over.
pub(in crate::isolation) fn write_etc(directory: &Path) -> io::Result<()> {
    let accounts = Accounts::with_agent(None, None);
    let files = [
        ("passwd", accounts.passwd.as_str()),
        ("group", accounts.group.as_str()),
        ("hosts", HOSTS),
        ("nsswitch.conf", NSSWITCH),
        ("resolv.conf", ""),
        ("git-reader.conf", GIT_READER),
        (APT_FILE, APT),
    ];
    for (name, content) in files {
        fs::write(directory.join(name), content)?;
        fs::set_permissions(directory.join(name), Permissions::from_mode(0o644))?;
    }
    for (name, host) in host_etc() {
        let place = directory.join(&name);
        let above = if host.is_dir() { Some(place.as_path()) } else { place.parent() };
        if let Some(above) = above {
            fs::create_dir_all(above)?;
        }
        if !place.exists() {
            fs::write(&place, "")?;
        }
    }
    fs::set_permissions(directory, Permissions::from_mode(0o755))
}

/// What a sandbox without an image sees of the machine. The service mounts it on the stage if it may mount, and bubblewrap does so otherwise.
#[derive(Debug, Default)]
pub(in crate::isolation) struct HostView {
    pub(in crate::isolation) links: Vec<Link>,
    /// Read-only mounts. A later one may lie inside an earlier one, and hides what is there.
    pub(in crate::isolation) mounts: Vec<Mount>,
}

#[derive(Debug)]
pub(in crate::isolation) struct Link {
    pub(in crate::isolation) target: PathBuf,
    pub(in crate::isolation) inside: PathBuf,
}

impl HostView {
    /// Lists /usr, the top directories, and the sandboxes' /etc, which is `etc`, with the parts of the machine's that sandboxes see.
    pub(in crate::isolation) fn new(etc: &Path, network: Network) -> Self {
        let mut view = Self {
            links: Vec::new(),
            mounts: vec![Mount::read(etc, "/etc"), Mount::read_all("/usr", "/usr")],
        };
        for path in TOP.map(|name| Path::new("/").join(name)) {
            match fs::read_link(&path) {
                Ok(target) => view.links.push(Link { target, inside: path }),
                Err(_) if path.is_dir() => view.mounts.push(Mount::read_all(&path, &path)),
                Err(_) => {}
            }
        }
        // A part that the machine got after the start of the service has no place, and is shown after the next one.
        let parts = host_etc().filter(|(name, _)| etc.join(name).exists());
        view.mounts.extend(parts.map(|(name, host)| Mount::read_all(host, Path::new("/etc").join(name))));
        if network == Network::Host {
            let files = ["/etc/resolv.conf", "/etc/hosts"];
            view.mounts.extend(files.map(|path| Mount::read_if_present(path, path)));
        }
        view.links.push(Link { target: "/tmp".into(), inside: "/var/tmp".into() });
        view
    }
}

/// Gives bubblewrap's arguments for /proc.
pub(in crate::isolation) fn proc_arguments() -> Vec<OsString> {
    let mut args: Vec<OsString> = ["--proc", "/proc"].map(Into::into).into();
    for path in PROC_HIDDEN.map(|name| format!("/proc/{name}")) {
        // Bubblewrap aborts when the target of a bind does not exist.
        if Path::new(&path).exists() {
            args.extend(["--ro-bind".into(), "/dev/null".into(), path.into()]);
        }
    }
    args
}

fn host_etc() -> impl Iterator<Item = (String, PathBuf)> {
    let names = fs::read_dir("/etc").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let java = names.filter(|name| name.starts_with(HOST_JAVA.0) && name.ends_with(HOST_JAVA.1));
    let all = HOST_ETC.into_iter().map(str::to_owned).chain(java);
    all.map(|name| (name.clone(), Path::new("/etc").join(name))).filter(|(_, path)| path.exists())
}
