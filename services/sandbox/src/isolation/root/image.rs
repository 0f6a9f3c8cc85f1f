//! The root of a sandbox that an image provides: its layers, joined by overlayfs, with the skeleton on top.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// The first version of bubblewrap that joins layers by itself.
const BWRAP_OVERLAY_SINCE: (u32, u32) = (0, 11);

/// What a sandbox sees at `/`.
#[derive(Debug, Clone, Default)]
pub enum Root {
    /// The machine's /usr, and an /etc of ours.
    #[default]
    Host,
    Image(ImageRoot),
    /// An image whose root can be written, for a build that makes a further layer.
    Build(BuildRoot),
}

/// The layers of an image below a directory that takes all changes.
#[derive(Debug, Clone)]
pub struct BuildRoot {
    /// At least two directories, as in [`ImageRoot`].
    pub layers: Vec<PathBuf>,
    /// It holds both [`UPPER`] and [`WORK`], because overlayfs wants them on one mount.
    pub directory: PathBuf,
}

/// The directory that takes what a build changes.
pub const UPPER: &str = "tree";
/// The file that configures apt for builds. The directory of the sandboxes' /etc has it too.
pub const APT_FILE: &str = "apt.conf";
/// Where a build sees it.
pub const APT_INSIDE: &str = "/run/sbx/apt.conf";
/// The directory in which overlayfs prepares changes.
pub const WORK: &str = "work";

impl Root {
    /// Whether its programs are those of an image.
    pub(in crate::isolation) fn is_image(&self) -> bool {
        matches!(self, Self::Image(_) | Self::Build(_))
    }

    /// Whether programs can write to it. They are then root inside, without any capability.
    pub(in crate::isolation) fn is_writable(&self) -> bool {
        matches!(self, Self::Build(_))
    }
}

/// The layers of an image.
#[derive(Debug, Clone)]
pub struct ImageRoot {
    /// At least two directories of this machine, lowest layer first. The last one is the skeleton.
    pub layers: Vec<PathBuf>,
}

/// Who joins the layers of images on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Overlay {
    /// The service, which may mount. Inside, nothing shows where the layers are.
    Launcher,
    /// Bubblewrap. The sandbox can read the paths of the layers in /proc/mounts.
    Bubblewrap,
    /// Nobody, for this reason.
    Unsupported(String),
}

impl Overlay {
    pub(in crate::isolation) fn find(can_stage: bool, bwrap_version: &str) -> Self {
        if can_stage {
            return Self::Launcher;
        }
        let mut numbers = bwrap_version.split('.').map_while(|part| part.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if version >= BWRAP_OVERLAY_SINCE {
            return Self::Bubblewrap;
        }
        let (major, minor) = BWRAP_OVERLAY_SINCE;
        Self::Unsupported(format!(
            "the service may not mount (CAP_SYS_ADMIN), and bubblewrap {bwrap_version} cannot join layers; install bubblewrap {major}.{minor} \
             or newer, or run the service as root"
        ))
    }

    /// What the self-test says.
    pub fn describe(&self) -> String {
        match self {
            Self::Launcher => "layers joined by the service".to_owned(),
            Self::Bubblewrap => "layers joined by bubblewrap".to_owned(),
            Self::Unsupported(reason) => format!("unsupported: {reason}"),
        }
    }
}

/// Gives bubblewrap's arguments for a root that the stage has made at `root`.
pub(in crate::isolation) fn staged(root: PathBuf) -> Vec<OsString> {
    vec!["--ro-bind".into(), root.into(), "/".into()]
}

/// Gives bubblewrap's arguments for a root that the stage has made at `root` and that a build may write.
pub(in crate::isolation) fn staged_for_build(root: PathBuf) -> Vec<OsString> {
    vec!["--bind".into(), root.into(), "/".into()]
}

/// Gives bubblewrap's arguments for layers that it joins itself.
pub(in crate::isolation) fn joined(layers: &[PathBuf]) -> Vec<OsString> {
    sources(layers).chain(["--ro-overlay".into(), "/".into()]).collect()
}

/// Gives bubblewrap's arguments for layers that it joins itself, below what the build in `directory` changes.
pub(in crate::isolation) fn joined_for_build(layers: &[PathBuf], directory: &Path) -> Vec<OsString> {
    let (upper, work) = (directory.join(UPPER), directory.join(WORK));
    sources(layers).chain(["--overlay".into(), upper.into(), work.into(), "/".into()]).collect()
}

fn sources(layers: &[PathBuf]) -> impl Iterator<Item = OsString> {
    layers.iter().flat_map(|layer| ["--overlay-src".into(), layer.into()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_says_why_it_cannot_join_layers() {
        assert_eq!(Overlay::find(true, "0.8.0"), Overlay::Launcher);
        assert_eq!(Overlay::find(false, "0.11.1"), Overlay::Bubblewrap);
        assert_eq!(Overlay::find(false, "1.0"), Overlay::Bubblewrap);
        let old = Overlay::find(false, "0.8.0").describe();
        assert!(old.starts_with("unsupported: ") && old.contains("0.8.0") && old.contains("0.11"), "{old}");
    }
}
