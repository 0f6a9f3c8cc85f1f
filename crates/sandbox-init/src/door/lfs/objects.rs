//! Brings objects of Git LFS into a directory, each by its SHA-256, some at the same time. The mirror of the repository may have an object, and another session may be
//! bringing it; all others come through the door. Nothing is used before its length and its SHA-256 are those of the pointer.

use super::{
    arrivals::{self, Arrivals},
    client::{Client, Failure, broken},
    record::Reason,
};
use domain::{
    egress::lfs::{arrivals::PART, pointer::LfsPointer, report::LfsReport},
    text::hex,
};
use sha2::{Digest as _, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Read, Write as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};
use wire::v1::ErrorCode;

/// Objects that are read at the same time: most of the time goes into opening connections. The door has room for more.
const READERS: usize = 4;
/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 * 1024;

/// Where the objects come from, and where they go.
#[derive(Debug)]
pub(super) struct ObjectReader<'a> {
    pub(super) client: Client<'a>,
    /// The objects of the session whose files these are copies of. The directory need not exist.
    pub(super) kept: &'a Path,
    /// The objects of the mirror, each by its SHA-256. The directory need not exist, and no process can write it.
    pub(super) mirror: &'a Path,
    /// The objects that another session is bringing.
    pub(super) arrivals: &'a Arrivals,
    /// Where the contents are kept.
    pub(super) objects: &'a Path,
}

/// What became of the objects.
#[derive(Debug, Default)]
pub(super) struct ObjectResults {
    pub(super) report: LfsReport,
    /// Those that do not come after all.
    pub(super) absent: BTreeMap<LfsPointer, Reason>,
}

/// Where an object came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Mirror,
    Server,
}

/// The bytes of a copy.
#[derive(Debug)]
struct Content {
    length: u64,
    sha256: String,
}

impl ObjectReader<'_> {
    /// Takes those of these objects that the session has whose files these are copies of. Its helpers wrote them, so each of them is checked.
    pub(super) fn take_kept(&self, wanted: &[LfsPointer]) -> Result<BTreeSet<LfsPointer>, Failure> {
        let mut taken = BTreeSet::new();
        for pointer in wanted {
            if let Ok(file) = arrivals::open(&self.kept.join(pointer.oid()))
                && self.copy_whole(pointer, file)?
            {
                taken.insert(pointer.clone());
            }
        }
        Ok(taken)
    }

    /// Brings these objects. The server must have agreed to give each of them to this session, because the mirror gives everything that it has.
    pub(super) fn read(&self, given: &[LfsPointer]) -> Result<ObjectResults, Failure> {
        let next = AtomicUsize::new(0);
        let results: Vec<Result<ObjectResults, Failure>> = thread::scope(|scope| {
            let readers: Vec<_> =
                (0..READERS.min(given.len())).map(|_| scope.spawn(|| self.read_next(given, &next))).collect();
            let panicked = |_| Err(Failure::Io(io::Error::other("a thread ended early")));
            readers.into_iter().map(|reader| reader.join().unwrap_or_else(panicked)).collect()
        });
        let mut all = ObjectResults::default();
        for result in results {
            let ObjectResults { report, absent } = result?;
            all.report.mirrored.extend(report.mirrored);
            all.report.transferred.extend(report.transferred);
            all.absent.extend(absent);
        }
        Ok(all)
    }

    /// Brings objects until none is left.
    fn read_next(&self, given: &[LfsPointer], next: &AtomicUsize) -> Result<ObjectResults, Failure> {
        let mut results = ObjectResults::default();
        while let Some(pointer) = given.get(next.fetch_add(1, Ordering::Relaxed)) {
            match self.read_object(pointer) {
                Ok(Origin::Mirror) => results.report.mirrored.push(pointer.clone()),
                Ok(Origin::Server) => results.report.transferred.push(pointer.clone()),
                Err(failure) => match failure.reason() {
                    Some(reason) => {
                        results.absent.insert(pointer.clone(), reason);
                    }
                    None => {
                        // The other readers end too.
                        next.store(given.len(), Ordering::Relaxed);
                        return Err(failure);
                    }
                },
            }
        }
        Ok(results)
    }

    fn read_object(&self, pointer: &LfsPointer) -> Result<Origin, Failure> {
        if let Ok(file) = File::open(self.mirror.join(pointer.oid()))
            && self.copy_whole(pointer, file)?
        {
            return Ok(Origin::Mirror);
        }
        // The other session has it from the server.
        if let Some(file) = self.arrivals.wait(pointer)
            && self.copy_whole(pointer, file)?
        {
            return Ok(Origin::Server);
        }
        let body = self.client.object(pointer)?;
        let content = self.write_part(pointer, body)?;
        if content.length < pointer.size() {
            return Err(broken(io::ErrorKind::UnexpectedEof.into()));
        }
        if !content.is_of(pointer) {
            let text = format!(
                "{} sends an object of Git LFS with other bytes than its pointer names: {}",
                self.client.repository,
                pointer.oid()
            );
            return Err(Failure::refusal(ErrorCode::GitLfsObjectInvalid, text));
        }
        self.finish_part(pointer)?;
        Ok(Origin::Server)
    }

    /// Copies an object of this disk. Returns whether it did: the bytes of the file may be damaged.
    fn copy_whole(&self, pointer: &LfsPointer, file: File) -> Result<bool, Failure> {
        match self.write_part(pointer, file) {
            Ok(content) if content.is_of(pointer) => {
                self.finish_part(pointer)?;
                Ok(true)
            }
            // The disk may have lost parts of it.
            Ok(_) | Err(Failure::Refusal { .. }) => Ok(false),
            Err(Failure::Io(error)) => Err(Failure::Io(error)),
        }
    }

    /// Copies the candidate content of an object to a file next to its place.
    fn write_part(&self, pointer: &LfsPointer, from: impl Read) -> Result<Content, Failure> {
        // One more byte shows that the content is too long.
        copy(from.take(pointer.size().saturating_add(1)), File::create(self.part(pointer))?)
    }

    /// Moves the content of an object into its place.
    fn finish_part(&self, pointer: &LfsPointer) -> io::Result<()> {
        fs::rename(self.part(pointer), self.objects.join(pointer.oid()))
    }

    fn part(&self, pointer: &LfsPointer) -> PathBuf {
        self.objects.join(pointer.oid()).with_extension(PART)
    }
}

impl Content {
    /// Whether it is what the pointer names.
    fn is_of(&self, pointer: &LfsPointer) -> bool {
        self.length == pointer.size() && self.sha256 == pointer.oid()
    }
}

fn copy(mut from: impl Read, mut to: File) -> Result<Content, Failure> {
    let (mut buffer, mut length, mut hash) = (vec![0; PIECE_BYTES], 0, Sha256::new());
    loop {
        let count = match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other.map_err(broken)?,
        };
        if count == 0 {
            return Ok(Content { length, sha256: hex(&hash.finalize()) });
        }
        length += count as u64;
        hash.update(&buffer[..count]);
        to.write_all(&buffer[..count])?;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use std::{
        io::{BufRead as _, BufReader},
        os::unix::net::UnixListener,
    };

    fn pointer(content: &str) -> LfsPointer {
        LfsPointer::new(&hex(&Sha256::digest(content)), content.len() as u64).unwrap()
    }

    /// Answers so many requests at the door with the contents that they name.
    fn serve(listener: UnixListener, contents: &[&'static str], requests: usize) -> thread::JoinHandle<()> {
        let contents = contents.to_vec();
        thread::spawn(move || {
            for _ in 0..requests {
                let (mut client, _) = listener.accept().unwrap();
                let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
                let first = lines.next().unwrap().unwrap();
                let is_asked = |content: &&&str| first.contains(pointer(content).oid());
                let content = contents.iter().find(is_asked).unwrap();
                lines.find(|line| line.as_ref().unwrap().is_empty()).unwrap().unwrap();
                write!(client, "HTTP/1.0 200 OK\r\n\r\n{content}").unwrap();
            }
        })
    }

    #[test]
    fn whole_objects_of_a_mirror_or_another_session_are_copied_and_all_others_come_through_the_door() {
        let directory = tempfile::tempdir().unwrap();
        let (mirror, objects) = (directory.path().join("mirror"), directory.path().join("objects"));
        fs::create_dir(&mirror).unwrap();
        fs::create_dir(&objects).unwrap();
        let contents = ["whole", "other bytes", "cut off", "longer", "absent", "", "brought", "wrong"];
        let wanted = contents.map(pointer);
        for (content, kept) in [
            ("whole", "whole"),
            ("other bytes", "other bytez"),
            ("cut off", "cut"),
            ("longer", "longer than before"),
            ("", ""),
        ] {
            fs::write(mirror.join(pointer(content).oid()), kept).unwrap();
        }
        let brought = directory.path().join("brought");
        fs::create_dir(&brought).unwrap();
        fs::write(brought.join(pointer("brought").oid()), "brought").unwrap();
        fs::write(brought.join(pointer("wrong").oid()), "wronG").unwrap();
        let arrivals = Arrivals::new(brought, directory.path().join("lock"));
        let listener = UnixListener::bind(directory.path().join("git")).unwrap();
        let server = serve(listener, &contents, 5);
        let client = Client { door: directory.path(), repository: "h.org/a.git" };
        let kept = directory.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join(pointer("copied").oid()), "copied").unwrap();
        fs::write(kept.join(pointer("changed").oid()), "changeD").unwrap();
        let reader =
            ObjectReader { client, kept: &kept, mirror: &mirror, arrivals: &arrivals, objects: &objects };
        let taken = reader.take_kept(&["copied", "changed", "whole"].map(pointer)).unwrap();
        assert_eq!(taken, BTreeSet::from([pointer("copied")]));
        let copied = objects.join(pointer("copied").oid());
        assert_eq!(fs::read_to_string(&copied).unwrap(), "copied");
        fs::remove_file(copied).unwrap();
        // What was copied from a damaged file.
        drop(fs::remove_file(objects.join(pointer("changed").oid()).with_extension(PART)));
        let ObjectResults { report: LfsReport { mirrored, transferred }, absent } =
            reader.read(&wanted).unwrap();
        server.join().unwrap();
        let sorted = |mut pointers: Vec<LfsPointer>| {
            pointers.sort();
            pointers
        };
        assert_eq!(sorted(mirrored), sorted(["whole", ""].map(pointer).to_vec()));
        assert_eq!(
            sorted(transferred),
            sorted(["other bytes", "cut off", "longer", "absent", "brought", "wrong"].map(pointer).to_vec())
        );
        assert!(absent.is_empty());
        for content in contents {
            assert_eq!(fs::read_to_string(objects.join(pointer(content).oid())).unwrap(), content);
        }
        assert_eq!(fs::read_dir(&objects).unwrap().count(), contents.len());
    }
}
