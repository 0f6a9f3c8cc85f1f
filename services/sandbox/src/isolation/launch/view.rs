//! What a sandbox sees, as bubblewrap's arguments. On a machine with a stage, the service mounts what it can, and bubblewrap the rest.

use crate::isolation::{
    gvisor,
    root::{
        host::{self, HostView, Link},
        image::{self, Overlay, Root},
        mount::{Mount, MountAccess},
    },
    stage::{MountPoint, Stage},
};
use std::{ffi::OsString, io, mem, path::Path};

/// The directories of a sandbox that bubblewrap fills by itself.
const FILLED: [&str; 4] = ["/proc", "/dev", "/tmp", "/home/agent"];

pub(super) struct SandboxView<'spec> {
    pub(super) root: &'spec Root,
    /// Who joins the layers of an image.
    pub(super) overlay: &'spec Overlay,
    /// What it sees of the machine; nothing, if it has an image.
    pub(super) host: HostView,
    /// What it sees in addition. On a root of the machine, those that it only reads come first.
    pub(super) mounts: Vec<Mount>,
    pub(super) is_in_gvisor: bool,
    /// The size of each of its file systems in memory; bytes.
    pub(super) tmp_bytes: u64,
}

impl SandboxView<'_> {
    /// Gives bubblewrap's arguments. Puts what they name on the stage, if there is one.
    pub(super) fn arguments(mut self, mut stage: Option<&mut Stage>) -> io::Result<Vec<OsString>> {
        if let Root::Host = self.root {
            let mounts = mem::take(&mut self.mounts);
            let (shown, further): (Vec<_>, _) = mounts.into_iter().partition(|mount| self.is_of_root(mount));
            self.host.mounts.extend(shown);
            self.mounts = further;
        }
        let mut args = self.root_arguments(stage.as_deref_mut())?;
        if self.is_in_gvisor {
            args.extend(gvisor::directory_arguments());
        }
        args.extend(host::proc_arguments());
        args.extend(self.memory_arguments());
        for mount in &self.mounts {
            let source = stage
                .as_deref_mut()
                .map_or_else(|| Ok(mount.source.clone()), |stage| stage.add(&mount.source));
            match source {
                Err(error) if mount.may_lack(&error) => {}
                source => args.extend(bind(mount.access, &source?, &mount.inside)),
            }
        }
        args.extend(["--chdir", "/workspace"].map(Into::into));
        // A root from the stage is read-only from the start.
        if stage.is_none() && !self.root.is_writable() {
            args.extend(["--remount-ro", "/"].map(Into::into));
        }
        Ok(args)
    }

    /// The arguments for `/` and everything that is a part of it.
    fn root_arguments(&self, stage: Option<&mut Stage>) -> io::Result<Vec<OsString>> {
        match (self.root, self.overlay, stage) {
            (Root::Host, _, Some(stage)) => Ok(image::staged(stage.assemble(&self.host, &self.points())?)),
            (Root::Host, _, None) => Ok(self.host_arguments()),
            (Root::Image(root), Overlay::Launcher, Some(stage)) => {
                Ok(image::staged(stage.join(&root.layers)?))
            }
            (Root::Image(root), Overlay::Bubblewrap, _) => Ok(image::joined(&root.layers)),
            (Root::Build(root), Overlay::Launcher, Some(stage)) => {
                Ok(image::staged_for_build(stage.join_for_build(root)?))
            }
            (Root::Build(root), Overlay::Bubblewrap, _) => {
                Ok(image::joined_for_build(&root.layers, &root.directory))
            }
            (Root::Image(_) | Root::Build(_), Overlay::Unsupported(reason), _) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, reason.clone()))
            }
            (Root::Image(_) | Root::Build(_), Overlay::Launcher, None) => {
                Err(io::ErrorKind::Unsupported.into())
            }
        }
    }

    /// The arguments for what the stage would assemble.
    fn host_arguments(&self) -> Vec<OsString> {
        let HostView { links, mounts } = &self.host;
        let links = links
            .iter()
            .flat_map(|Link { target, inside }| ["--symlink".into(), target.into(), OsString::from(inside)]);
        let mounts = mounts.iter().flat_map(|mount| bind(mount.access, &mount.source, &mount.inside));
        links.chain(mounts).collect()
    }

    /// The arguments for the devices and the file systems in memory.
    fn memory_arguments(&self) -> impl Iterator<Item = OsString> {
        let size = self.tmp_bytes.to_string();
        let memory =
            |mode: &str, path: &str| ["--perms", mode, "--size", &size, "--tmpfs", path].map(OsString::from);
        // What stands in /dev/shm counts as memory, as in /tmp. PostgreSQL and browsers share hundreds of MiB there.
        let shared = memory("1777", "/dev/shm");
        // The tmpfs of /dev has no size. The devices, /dev/pts and /dev/shm are mounts of their own and stay writable.
        let closed = ["--remount-ro", "/dev"].map(OsString::from);
        let others = memory("1777", "/tmp").into_iter().chain(memory("700", "/home/agent"));
        let devices = ["--dev", "/dev"].map(OsString::from);
        devices.into_iter().chain(shared).chain(closed).chain(others)
    }

    /// The places of a root that is read-only from the start, for all that bubblewrap mounts on it.
    fn points(&self) -> Vec<MountPoint<'_>> {
        let filled = self.filled().map(|path| MountPoint { inside: Path::new(path), is_directory: true });
        let mounts = self.mounts.iter().map(|mount| {
            let is_directory = mount.source.is_dir();
            MountPoint { inside: &mount.inside, is_directory }
        });
        filled.chain(mounts).collect()
    }

    /// Whether a mount can be a part of the root. Bubblewrap must make those that programs write, and those in what it fills by itself.
    fn is_of_root(&self, mount: &Mount) -> bool {
        mount.access != MountAccess::Write && !self.filled().any(|path| mount.inside.starts_with(path))
    }

    fn filled(&self) -> impl Iterator<Item = &'static str> + use<> {
        FILLED.into_iter().chain(self.is_in_gvisor.then_some(gvisor::DIRECTORY))
    }
}

/// Bubblewrap's arguments for a mount of `source`.
fn bind(access: MountAccess, source: &Path, inside: &Path) -> [OsString; 3] {
    let how = match access {
        MountAccess::Read | MountAccess::ReadAll => "--ro-bind",
        MountAccess::ReadIfPresent => "--ro-bind-try",
        MountAccess::Write => "--bind",
    };
    [how.into(), source.into(), inside.into()]
}
