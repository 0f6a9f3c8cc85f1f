//! A mirror on the disk: a bare repository that belongs to the service and that every user may read. It never changes. When the server has more, the
//! service puts another generation into its place, and the earlier one stays as long as a clone reads it.

use super::{content::MirrorContent, key::MirrorKey, objects::MirrorObjects};
use crate::{
    isolation::launch::Mount,
    layout::{self, remove_directory},
};
use chassis::tasks::Tasks;
use domain::{
    egress::lfs::pointer::LfsPointer,
    ids::{ProjectId, TenantId},
    text,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::SystemTime,
};

/// Where a helper that clones sees it.
const INSIDE: &str = "/run/sbx/mirror";
/// Where a helper that fills files of Git LFS sees its objects.
pub(crate) const OBJECTS_INSIDE: &str = "/run/sbx/lfs-mirror";
/// The directory of its packs.
pub(super) const PACKS: &str = "objects/pack";
/// The directory of its objects of Git LFS, each by its SHA-256.
pub(super) const OBJECTS: &str = "lfs";
const REFERENCES: &str = "packed-refs";
/// The checksums of its packs.
const SUMS: &str = "sums";
/// The list of its objects of Git LFS.
const OBJECTS_LIST: &str = "lfs-objects";
/// What the service wrote in addition to packs and objects. A change of any byte is found before the mirror is used.
const FRAME: [&str; 5] = ["HEAD", "config", REFERENCES, SUMS, OBJECTS_LIST];
const RECORD: &str = "record.json";
/// Nothing of it comes from a server.
const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n";

/// A generation of a mirror. Dropping one that was retired removes it.
#[derive(Debug)]
pub struct Generation {
    pub(super) directory: PathBuf,
    pub(super) key: MirrorKey,
    /// What it takes on the disk.
    pub(super) bytes: u64,
    frame_sha256: String,
    is_retired: AtomicBool,
    tasks: Tasks,
}

/// `record.json`, whose time is that of the last use:
/// `{"project":"prj_…","source":"9f86…","bytes":311000000,"frame_sha256":"60f2…"}`.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    project: String,
    source: String,
    bytes: u64,
    frame_sha256: String,
}

impl Generation {
    /// Writes everything but the packs and the objects of Git LFS into `directory`. Blocks.
    pub(super) fn write_frame(
        directory: &Path,
        key: &MirrorKey,
        content: &MirrorContent,
        objects: &MirrorObjects,
    ) -> io::Result<()> {
        for name in ["", "refs", "objects", PACKS, OBJECTS] {
            let path = directory.join(name);
            fs::DirBuilder::new().recursive(true).mode(0o755).create(&path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        }
        let (references, sums, list) = (content.references(), content.sums(), objects.to_text());
        let texts = ["ref: refs/heads/main\n", CONFIG, references.as_str(), sums.as_str(), list.as_str()];
        for (name, text) in FRAME.iter().zip(texts) {
            fs::write(directory.join(name), text)?;
            fs::set_permissions(directory.join(name), fs::Permissions::from_mode(0o444))?;
        }
        let bytes = texts.iter().map(|text| text.len() as u64).sum::<u64>();
        let record = Record {
            project: key.project.to_string(),
            source: key.source.to_string(),
            bytes: bytes.saturating_add(content.bytes()).saturating_add(objects.bytes()),
            frame_sha256: frame_sha256(directory)?,
        };
        layout::replace_quickly(&directory.join(RECORD), &serde_json::to_vec(&record)?)
    }

    /// Reads the record of one, with the time of its last use. Blocks.
    pub(super) fn read(tenant: TenantId, directory: PathBuf, tasks: Tasks) -> io::Result<(Self, SystemTime)> {
        let path = directory.join(RECORD);
        let Record { project, source, bytes, frame_sha256 } = serde_json::from_slice(&fs::read(&path)?)?;
        let project: ProjectId = project.parse().map_err(io::Error::other)?;
        let key = MirrorKey { tenant, project, source: source.into() };
        let is_retired = AtomicBool::new(false);
        let generation = Self { directory, key, bytes, frame_sha256, is_retired, tasks };
        Ok((generation, fs::metadata(path)?.modified()?))
    }

    /// Whether everything but the content of the packs and of the objects is as it was written. A helper checks packs and objects while it copies
    /// them. Blocks.
    pub(super) fn has_frame(&self) -> bool {
        frame_sha256(&self.directory).is_ok_and(|sha256| sha256 == self.frame_sha256)
    }

    /// Its packs, and what its references name. Blocks.
    pub(super) fn content(&self) -> io::Result<MirrorContent> {
        let [sums, references] = [SUMS, REFERENCES].map(|name| fs::read_to_string(self.directory.join(name)));
        MirrorContent::read(&sums?, &references?).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The list of its objects of Git LFS. Blocks.
    pub(super) fn objects(&self) -> io::Result<MirrorObjects> {
        match fs::read_to_string(self.directory.join(OBJECTS_LIST)) {
            Ok(list) => MirrorObjects::parse(&list).ok_or_else(|| io::ErrorKind::InvalidData.into()),
            // A service that kept no objects made the mirror.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(MirrorObjects::default()),
            Err(error) => Err(error),
        }
    }

    /// The file of an object of Git LFS, if it is there with its whole length. Blocks.
    pub(super) fn find_object(&self, pointer: &LfsPointer) -> Option<PathBuf> {
        let path = self.directory.join(OBJECTS).join(pointer.oid());
        fs::symlink_metadata(&path).is_ok_and(|known| known.len() == pointer.size()).then_some(path)
    }

    /// Notes a use. Blocks.
    pub(super) fn touch(&self, now: SystemTime) -> io::Result<()> {
        fs::File::options().write(true).open(self.directory.join(RECORD))?.set_modified(now)
    }

    /// The mirror as a helper that clones sees it.
    pub fn mount(&self) -> Mount {
        Mount::read(&self.directory, INSIDE)
    }

    /// Its objects as a helper that fills files of Git LFS sees them; `None`: it never had any.
    pub fn mount_objects(&self) -> Option<Mount> {
        let directory = self.directory.join(OBJECTS);
        directory.is_dir().then(|| Mount::read(directory, OBJECTS_INSIDE))
    }

    /// Marks it as old. Its files are removed when the last clone that reads it has ended.
    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if *self.is_retired.get_mut() {
            let directory = std::mem::take(&mut self.directory);
            self.tasks.spawn("mirror", async move {
                let removed = tokio::task::spawn_blocking(move || remove_directory(&directory)).await;
                if let Err(error) = removed.unwrap_or_else(|error| Err(io::Error::other(error))) {
                    tracing::warn!(%error, "a mirror that was removed takes space until the next start");
                }
            });
        }
    }
}

fn frame_sha256(directory: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    for name in FRAME {
        let content = match fs::read(directory.join(name)) {
            // A service that kept no objects made the mirror.
            Err(error) if name == OBJECTS_LIST && error.kind() == io::ErrorKind::NotFound => continue,
            read => read?,
        };
        hash.update((content.len() as u64).to_be_bytes());
        hash.update(content);
    }
    Ok(text::hex(&hash.finalize()))
}
