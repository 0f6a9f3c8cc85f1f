//! The root of a sandbox that an image provides: its layers, joined by overlayfs, with the skeleton on top.

use std::{ffi::OsString, path::PathBuf};

/// The first version of bubblewrap that joins layers by itself.
const BWRAP_OVERLAY_SINCE: (u32, u32) = (0, 11);

/// What a sandbox sees at `/`.
#[derive(Debug, Clone, Default)]
pub enum Root {
    /// The machine's /usr, and an /etc of ours.
    #[default]
    Host,
    /// An image.
    Image(ImageRoot),
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
    /// Finds out who can.
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

/// Gives bubblewrap's arguments for layers that it joins itself.
pub(in crate::isolation) fn joined(layers: &[PathBuf]) -> Vec<OsString> {
    let sources = layers.iter().flat_map(|layer| ["--overlay-src".into(), layer.into()]);
    sources.chain(["--ro-overlay".into(), "/".into()]).collect()
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
