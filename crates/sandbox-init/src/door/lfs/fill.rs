//! `flotilla-init lfs <repository> <directory> <own, other or none> <mirror> <report> <arrivals> <lock> <kept> [optional]`: puts the contents of files of Git LFS in place of their pointers.
//! It reads the paths of these files, each with a NUL, prints those that it has filled, keeps the contents in `directory`, each by its SHA-256, and writes to `report`
//! where they came from. It takes the objects in `kept` first: the files are copies of those of a session that has them. For all others it asks the server, and takes
//! from `mirror`, and from `arrivals` of another session, only what the server gives to this session. An `optional` run leaves pointers where another one fails, and adds to
//! what an earlier run has kept and told.

use super::{
    arrivals::{self, Arrivals},
    client::{Client, Failure},
    objects::{ObjectReader, ObjectResults},
    record::{self, RECORD, Reason, Record},
};
use crate::door::forward::DIRECTORY;
use domain::{
    egress::lfs::{
        batch::LFS_BATCH_OBJECTS_MAX,
        pointer::{LFS_POINTER_BYTES_MAX, LfsPointer},
    },
    text::is_sha256,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, SystemTime},
};

/// Bytes of the paths of all files of Git LFS. The rest is not filled.
const LFS_PATHS_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Objects that a clone brings: the server is asked twice for each of them that the mirror lacks. Files with further ones stay pointers.
const LFS_OBJECTS_MAX: usize = 5_000;
/// Bytes of one object. Git holds a file in memory when it restores it. Files with larger ones stay pointers.
const LFS_OBJECT_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Bytes of all objects, which each session has twice: less than half of what a workspace may take. Files with further ones stay pointers.
const LFS_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;
/// How old a file looks that was filled. Git reads a file again that looks as new as its index.
const AGE: Duration = Duration::from_secs(10);
/// A file while it is filled, below the work tree.
const PART: &str = ".git/flotilla-lfs.part";
/// The argument of a run whose files may stay pointers.
const OPTIONAL: &str = "optional";
/// The exit code of a refusal, whose last line says why.
const REFUSED: u8 = 17;
/// The exit code of a failure of the disk.
const DISK_FAILED: u8 = 16;

/// One run: it fills the files of the working directory.
#[derive(Debug)]
pub(crate) struct LfsFill {
    /// The host and the path of the repository.
    repository: String,
    /// Where the contents are kept.
    objects: PathBuf,
    server: LfsServer,
    /// The objects of the mirror. The directory need not exist.
    mirror: PathBuf,
    /// The file of the report.
    report: PathBuf,
    /// The objects that another session is bringing.
    arrivals: Arrivals,
    /// The objects of the session whose files these are copies of. The directory need not exist.
    kept: PathBuf,
    is_optional: bool,
}

/// What a directory has of objects already.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct StoredObjects {
    count: usize,
    bytes: u64,
}

/// The server that has the objects, as the script found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LfsServer {
    /// That of the repository, behind the door.
    Own,
    /// Another one, which the repository names.
    Other,
    /// No door leads to any.
    None,
}

#[derive(Debug)]
struct PointerFile {
    path: PathBuf,
    pointer: LfsPointer,
}

/// The objects, each with the reason for which it does not come.
type Outcomes = BTreeMap<LfsPointer, Option<Reason>>;

impl LfsFill {
    /// Reads the arguments after the first one.
    pub(crate) fn from_arguments(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let repository = arguments.next()?.into_string().ok()?;
        let objects = arguments.next()?.into();
        let server = match arguments.next()?.to_str()? {
            "own" => LfsServer::Own,
            "other" => LfsServer::Other,
            "none" => LfsServer::None,
            _ => return None,
        };
        let (mirror, report) = (arguments.next()?.into(), arguments.next()?.into());
        let arrivals = Arrivals::new(arguments.next()?.into(), arguments.next()?.into());
        let kept = arguments.next()?.into();
        let is_optional = match arguments.next() {
            Some(word) if word == OPTIONAL => true,
            Some(_) => return None,
            None => false,
        };
        Some(Self { repository, objects, server, mirror, report, arrivals, kept, is_optional })
    }

    /// Fills the files in the working directory.
    pub(crate) fn run(&self) -> ExitCode {
        match self.fill() {
            Ok(()) => ExitCode::SUCCESS,
            Err(Failure::Refusal { line, .. }) => {
                // As git shows what the door refuses.
                drop(writeln!(io::stderr(), "remote: {line}"));
                ExitCode::from(REFUSED)
            }
            Err(Failure::Io(error)) => {
                drop(writeln!(io::stderr(), "cannot fill the files of Git LFS: {error}"));
                ExitCode::from(DISK_FAILED)
            }
        }
    }

    fn fill(&self) -> Result<(), Failure> {
        let mut paths = vec![];
        io::stdin().take(LFS_PATHS_BYTES_MAX).read_to_end(&mut paths)?;
        let files = pointer_files(&paths);
        let mut outcomes = select(&files, StoredObjects::read(&self.objects)?);
        let Self { mirror, arrivals, objects, kept, .. } = self;
        let reader = ObjectReader { client: self.client(), kept, mirror, arrivals, objects };
        let kept: BTreeSet<LfsPointer> = reader.take_kept(&wanted(&outcomes))?;
        let asked: Vec<_> = wanted(&outcomes).into_iter().filter(|pointer| !kept.contains(pointer)).collect();
        if let Err(failure) = self.ask(&asked, &mut outcomes) {
            self.forgive(failure, &asked, &mut outcomes)?;
        }
        let given: Vec<_> = wanted(&outcomes).into_iter().filter(|pointer| !kept.contains(pointer)).collect();
        arrivals::announce(&self.objects, &given)?;
        let ObjectResults { report, absent } = match reader.read(&given) {
            Ok(results) => results,
            Err(failure) => {
                self.forgive(failure, &given, &mut outcomes)?;
                ObjectResults::default()
            }
        };
        outcomes.extend(absent.into_iter().map(|(pointer, reason)| (pointer, Some(reason))));
        let (mut record, mut output) = (self.earlier_record()?, io::stdout());
        for file in &files {
            match outcomes.get(&file.pointer).copied().flatten() {
                Some(reason) => {
                    record.entry(reason).or_default().add(&file.path.to_string_lossy());
                }
                None => {
                    self.write(file)?;
                    output.write_all(file.path.as_os_str().as_bytes())?;
                    output.write_all(b"\0")?;
                    // At once: an optional run may be ended, and git must know of the files that it has filled.
                    output.flush()?;
                }
            }
        }
        // A clone in which every file was filled has one without files.
        fs::write(RECORD, record::encode(&record))?;
        fs::write(&self.report, report.to_text())?;
        Ok(())
    }

    /// Leaves pointers after a refusal, if the files may stay pointers.
    fn forgive(
        &self,
        failure: Failure,
        pointers: &[LfsPointer],
        outcomes: &mut Outcomes,
    ) -> Result<(), Failure> {
        match failure {
            Failure::Refusal { .. } if self.is_optional => {
                mark(outcomes, pointers, Reason::Refused);
                Ok(())
            }
            failure => Err(failure),
        }
    }

    /// What an earlier run has recorded, for an optional one.
    fn earlier_record(&self) -> io::Result<Record> {
        if !self.is_optional {
            return Ok(Record::new());
        }
        match fs::read_to_string(RECORD) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Record::new()),
            read => Ok(record::decode(&read?)),
        }
    }

    fn client(&self) -> Client<'_> {
        Client { door: Path::new(DIRECTORY), repository: &self.repository }
    }

    /// Asks which of these objects the server gives.
    fn ask(&self, wanted: &[LfsPointer], outcomes: &mut Outcomes) -> Result<(), Failure> {
        let unasked = match self.server {
            LfsServer::Own => None,
            LfsServer::Other => Some(Reason::Elsewhere),
            LfsServer::None => Some(Reason::Origin),
        };
        if let Some(reason) = unasked {
            mark(outcomes, wanted, reason);
            return Ok(());
        }
        for batch in wanted.chunks(LFS_BATCH_OBJECTS_MAX) {
            let results = match self.client().batch(batch) {
                Ok(results) => results,
                Err(failure) => match failure.reason() {
                    // It says something about the server, and not about a single object.
                    Some(reason) => {
                        mark(outcomes, wanted, reason);
                        return Ok(());
                    }
                    None => return Err(failure),
                },
            };
            for (pointer, result) in batch.iter().zip(results) {
                if let Err(error) = result {
                    let reason = if error.is_missing() { Reason::Missing } else { Reason::Refused };
                    outcomes.insert(pointer.clone(), Some(reason));
                }
            }
        }
        Ok(())
    }

    /// Puts the content in place of a pointer.
    fn write(&self, file: &PointerFile) -> io::Result<()> {
        let permissions = fs::symlink_metadata(&file.path)?.permissions();
        let mut part = File::create(PART)?;
        io::copy(&mut File::open(self.objects.join(file.pointer.oid()))?, &mut part)?;
        part.set_permissions(permissions)?;
        part.set_modified(SystemTime::now() - AGE)?;
        fs::rename(PART, &file.path)
    }
}

/// The files among these paths that are pointers.
fn pointer_files(paths: &[u8]) -> Vec<PointerFile> {
    let paths = paths.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    let paths = paths.map(|path| PathBuf::from(OsStr::from_bytes(path)));
    paths.filter_map(|path| Some(PointerFile { pointer: read_pointer(&path)?, path })).collect()
}

fn read_pointer(path: &Path) -> Option<LfsPointer> {
    let metadata = fs::symlink_metadata(path).ok()?;
    let is_short = metadata.len() <= LFS_POINTER_BYTES_MAX as u64;
    let content = (metadata.is_file() && is_short).then(|| fs::read(path).ok())?;
    LfsPointer::parse(&content?)
}

impl StoredObjects {
    fn read(directory: &Path) -> io::Result<Self> {
        let mut stored = Self::default();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(is_sha256) {
                stored.count += 1;
                stored.bytes = stored.bytes.saturating_add(entry.metadata()?.len());
            }
        }
        Ok(stored)
    }
}

/// The objects of these files. Refuses those for which what is stored leaves no room.
fn select(files: &[PointerFile], stored: StoredObjects) -> Outcomes {
    let (mut outcomes, mut bytes, mut objects) = (Outcomes::new(), stored.bytes, stored.count);
    for PointerFile { pointer, .. } in files {
        if outcomes.contains_key(pointer) {
            continue;
        }
        let sum = bytes.saturating_add(pointer.size());
        let is_bounded =
            pointer.size() <= LFS_OBJECT_BYTES_MAX && sum <= LFS_BYTES_MAX && objects < LFS_OBJECTS_MAX;
        if is_bounded {
            (bytes, objects) = (sum, objects + 1);
        }
        outcomes.insert(pointer.clone(), (!is_bounded).then_some(Reason::TooLarge));
    }
    outcomes
}

/// The objects that may still come.
fn wanted(outcomes: &Outcomes) -> Vec<LfsPointer> {
    outcomes.iter().filter(|(_, reason)| reason.is_none()).map(|(pointer, _)| pointer.clone()).collect()
}

fn mark(outcomes: &mut Outcomes, pointers: &[LfsPointer], reason: Reason) {
    outcomes.extend(pointers.iter().map(|pointer| (pointer.clone(), Some(reason))));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_small_plain_files_are_pointers() {
        let directory = tempfile::tempdir().unwrap();
        let pointer = LfsPointer::new(&"a".repeat(64), 3).unwrap();
        let file = |name: &str, content: &str| {
            let path = directory.path().join(name);
            fs::write(&path, content).unwrap();
            path
        };
        let whole = file("a b\nc", &pointer.to_string());
        symlink(&whole, directory.path().join("link")).unwrap();
        let others = [
            file("crlf", &pointer.to_string().replace('\n', "\r\n")),
            file("long", &format!("{pointer}{}", "x".repeat(1_000))),
            file("empty", ""),
            directory.path().join("link"),
            directory.path().join("absent"),
            directory.path().to_owned(),
        ];
        let paths: Vec<u8> = [&whole]
            .into_iter()
            .chain(&others)
            .flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat())
            .collect();
        let found = pointer_files(&paths);
        assert_eq!(
            found.iter().map(|file| (&file.path, &file.pointer)).collect::<Vec<_>>(),
            [(&whole, &pointer)]
        );
    }

    #[test]
    fn what_is_too_large_stays_a_pointer() {
        let file = |letter: char, size| PointerFile {
            path: PathBuf::new(),
            pointer: LfsPointer::new(&letter.to_string().repeat(64), size).unwrap(),
        };
        let most = LFS_OBJECT_BYTES_MAX;
        let files = [
            file('a', most),
            file('a', most),
            file('b', most + 1),
            file('c', u64::MAX),
            file('d', most),
            file('e', most),
            file('f', most),
            file('0', 1),
        ];
        let reasons: Vec<_> = select(&files, StoredObjects::default())
            .into_iter()
            .map(|(pointer, reason)| (pointer.oid()[..1].to_owned(), reason))
            .collect();
        let large = Some(Reason::TooLarge);
        let want =
            [("0", large), ("a", None), ("b", large), ("c", large), ("d", None), ("e", None), ("f", None)];
        assert_eq!(reasons, want.map(|(letter, reason)| (letter.to_owned(), reason)));

        // What is stored takes its part.
        let directory = tempfile::tempdir().unwrap();
        File::create(directory.path().join("a".repeat(64))).unwrap().set_len(3 * most + 1).unwrap();
        fs::write(directory.path().join("wanted"), "x").unwrap();
        let stored = StoredObjects::read(directory.path()).unwrap();
        assert_eq!(stored, StoredObjects { count: 1, bytes: 3 * most + 1 });
        let both = [file('d', most), file('e', most - 1)];
        let reasons: Vec<_> = select(&both, stored).into_values().collect();
        assert_eq!(reasons, [large, None]);
        let full = StoredObjects { count: LFS_OBJECTS_MAX, bytes: 0 };
        assert_eq!(select(&both, full).into_values().collect::<Vec<_>>(), [large, large]);
    }
}
