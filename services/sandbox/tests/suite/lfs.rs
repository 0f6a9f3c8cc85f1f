//! Files of Git LFS whose objects a door reads, where the door is one that the test answers.

use crate::{
    changes::{self, diff},
    copies::export,
    harness::{Machine, Session, code, directory, git, help, repository},
};
use domain::{
    egress::lfs::{
        batch::{LfsBatch, LfsBatchAnswer, LfsObjectError, LfsPlace, LfsResult},
        pointer::LfsPointer,
    },
    text::hex,
};
use rpc::v1::{self, WorkspaceHeader};
use sandbox::isolation::launch::Mount;
use sha2::{Digest as _, Sha256};
use std::{
    fs::{self, Permissions},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::{
        fd::AsRawFd as _,
        unix::{
            fs::PermissionsExt as _,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    sync::{Arc, Barrier, Mutex},
};
use tempfile::TempDir;

const URL: &str = "https://git.example.com/open/app";
const OBJECTS: &str = "/git.example.com/open/app.git/info/lfs/objects";
const CONTENT: &str = "the content of a picture, which is longer than a pointer of Git LFS is, because a pointer has at most 145 bytes, and \
                       this text has some more of them\n";

pub fn pointer(content: &str) -> LfsPointer {
    LfsPointer::new(&hex(&Sha256::digest(content)), content.len() as u64).unwrap()
}

/// A machine with doors, and a repository whose files `*.bin` are of Git LFS.
pub struct Site {
    pub directory: TempDir,
    pub machine: Machine,
    pub repository: PathBuf,
}

/// What a door that the test answers has been asked: `POST /…`.
pub type Requests = Arc<Mutex<Vec<String>>>;

#[derive(Clone)]
enum Answers {
    Contents(Vec<&'static str>),
    /// With a refusal of this code.
    Refusal(&'static str),
    /// With a refusal, after the test has reached the barrier.
    Held(Arc<Barrier>),
}

impl Site {
    /// Commits files of Git LFS with these contents.
    pub async fn start(files: &[(&str, &str)]) -> Self {
        let directory = directory();
        let repository = repository(directory.path());
        fs::write(repository.join(".gitattributes"), "*.bin filter=lfs diff=lfs merge=lfs -text\n").unwrap();
        for (name, content) in files {
            fs::write(repository.join(name), pointer(content).to_string()).unwrap();
        }
        git(&repository, &["add", "--all"]);
        git(&repository, &["commit", "-qm", "large"]);
        let root = directory.path().to_str().unwrap();
        let egress = format!("{root}/egress");
        let machine =
            Machine::start_with(directory.path(), &["--file-roots", root, "--egress", &egress]).await;
        Self { directory, machine, repository }
    }

    pub fn header(&self, lfs_url: &str) -> WorkspaceHeader {
        WorkspaceHeader {
            git_url: format!("file://{}", self.repository.display()),
            lfs_url: lfs_url.to_owned(),
            ..Default::default()
        }
    }

    /// Answers at the door of a session with these contents.
    pub fn serve(&self, session: &Session, contents: &[&'static str]) -> Requests {
        serve(self.directory.path(), session, Answers::Contents(contents.to_vec()))
    }

    /// Refuses at the door of a session.
    pub fn refuse(&self, session: &Session, code: &'static str) -> Requests {
        serve(self.directory.path(), session, Answers::Refusal(code))
    }
}

/// Takes what a door has been asked so far.
pub fn take(requests: &Requests) -> Vec<String> {
    std::mem::take(&mut *requests.lock().unwrap())
}

fn serve(directory: &Path, session: &Session, answers: Answers) -> Requests {
    let tenant = session.tenant.replace('-', "");
    let door = directory.join("egress").join(tenant).join(&session.id).join("door");
    fs::create_dir_all(&door).unwrap();
    // The address of a socket has at most 107 bytes, fewer than the path may have.
    let opened = fs::File::open(&door).unwrap();
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/git", opened.as_raw_fd())).unwrap();
    fs::set_permissions(door.join("git"), Permissions::from_mode(0o666)).unwrap();
    let requests = Requests::default();
    let noted = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            answer(stream.unwrap(), &answers, &noted);
        }
    });
    requests
}

/// Answers one request, and notes its first line without the protocol.
fn answer(mut stream: UnixStream, answers: &Answers, noted: &Requests) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head: Vec<String> = vec![];
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim_end().is_empty() {
            break;
        }
        head.push(line.trim_end().to_owned());
    }
    let length = head.iter().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    let target = head[0].strip_suffix(" HTTP/1.0").unwrap();
    noted.lock().unwrap().push(target.to_owned());
    let mut refuse = |code: &str| {
        let head = format!("HTTP/1.0 403 Forbidden\r\nx-flotilla-code: {code}");
        write!(stream, "{head}\r\n\r\nthe door refuses ({code})\n").unwrap();
    };
    let text = match answers {
        Answers::Refusal(code) => return refuse(code),
        Answers::Held(barrier) => {
            barrier.wait();
            return refuse("git_failed");
        }
        Answers::Contents(contents) if target.ends_with("/batch") => {
            let pointers = LfsBatch::parse(&body).unwrap().pointers().unwrap();
            let result = |pointer: &LfsPointer| -> LfsResult {
                let has = contents.iter().any(|content| self::pointer(content) == *pointer);
                let missing = || LfsObjectError { code: 404, message: String::new() };
                has.then(|| LfsPlace { href: "http://127.0.0.1:3129/".to_owned(), ..LfsPlace::default() })
                    .ok_or_else(missing)
            };
            LfsBatchAnswer::new(pointers.iter().map(|pointer| (pointer, result(pointer)))).to_text()
        }
        Answers::Contents(contents) => {
            let is_asked = |content: &&&str| target.contains(pointer(content).oid());
            (*contents.iter().find(is_asked).unwrap()).to_owned()
        }
    };
    write!(stream, "HTTP/1.0 200 OK\r\n\r\n{text}").unwrap();
}

#[tokio::test]
async fn objects_of_a_repository_without_a_credential_come_through_the_door() {
    let site = Site::start(&[("large.bin", CONTENT), ("again.bin", CONTENT)]).await;
    let session = site.machine.session();
    let requests = site.serve(&session, &[CONTENT]);
    session.open(site.header(URL), vec![]).await.unwrap();
    let look = "sha256sum <large.bin | cut -c -64; cmp large.bin again.bin && git status --porcelain";
    assert_eq!(session.sh(look).await, pointer(CONTENT).oid());
    let (oid, size) = (pointer(CONTENT).oid().to_owned(), CONTENT.len());
    assert_eq!(
        take(&requests),
        [format!("POST {OBJECTS}/batch"), format!("GET {OBJECTS}/{oid}?size={size}")]
    );

    // Another caller names no repository, so the door is not asked.
    let other = site.machine.session();
    let requests = site.serve(&other, &[CONTENT]);
    other.open(site.header(""), vec![]).await.unwrap();
    assert_eq!(other.sh("cat large.bin").await, pointer(CONTENT).to_string().trim_end());
    assert_eq!(take(&requests), Vec::<String>::new());
    for url in
        ["http://git.example.com/open/app", "https://user:x@git.example.com/app", "https://127.0.0.1/app"]
    {
        let opened = site.machine.session().open(site.header(url), vec![]).await;
        assert_eq!(code(opened), "argument_invalid", "{url}");
    }
}

#[tokio::test]
async fn files_stay_pointers_if_the_server_of_a_public_repository_gives_nothing() {
    let site = Site::start(&[("large.bin", CONTENT)]).await;
    let look = "cat large.bin; tr '\\0' ' ' <.git/flotilla-lfs";
    for (refusal, reason) in [
        ("git_lfs_login_required", "login"),
        ("git_prefix_missing", "login"),
        ("git_lfs_unsupported", "unsupported"),
        ("git_address_private", "private"),
        ("git_failed", "refused"),
    ] {
        let session = site.machine.session();
        let requests = site.refuse(&session, refusal);
        session.open(site.header(URL), vec![]).await.unwrap();
        let want = format!("{}1 {reason} 1 /large.bin ", pointer(CONTENT));
        assert_eq!(session.sh(look).await, want, "{refusal}");
        assert_eq!(take(&requests), [format!("POST {OBJECTS}/batch")], "{refusal}");
    }
}

#[tokio::test]
async fn what_an_opening_brings_is_told_while_it_waits_for_the_server() {
    let site = Site::start(&[("large.bin", CONTENT)]).await;
    let (session, barrier) = (site.machine.session(), Arc::new(Barrier::new(2)));
    serve(site.directory.path(), &session, Answers::Held(Arc::clone(&barrier)));
    let step = async |session: &Session| {
        let request = v1::GetOpeningRequest { fence: session.fence() };
        session.client.clone().get_opening(request).await.unwrap().into_inner().step()
    };
    let stranger = Session { id: session.id.clone(), ..site.machine.session() };
    let looks = async {
        testkit::eventually("the objects are on their way", async || {
            step(&session).await == v1::OpeningStep::Lfs
        })
        .await;
        assert_eq!(step(&stranger).await, v1::OpeningStep::Unspecified, "it is another tenant");
        let pass = move || {
            barrier.wait();
        };
        tokio::task::spawn_blocking(pass).await.unwrap();
    };
    let (opened, ()) = tokio::join!(session.open(site.header(URL), vec![]), looks);
    assert!(opened.unwrap().created);
    assert_eq!(step(&session).await, v1::OpeningStep::Unspecified, "it is over");
}

const OTHER: &str = "the content of another picture, which is longer than a pointer of Git LFS is as well, because it has some more words at its \
                     end, and these are the last of them\n";

#[tokio::test]
async fn a_copy_of_files_has_the_contents_of_its_origin_without_a_transfer() {
    let files = [("large.bin", CONTENT), ("changed.bin", OTHER), ("gone.bin", "gone\n"), ("old.bin", OTHER)];
    let site = Site::start(&files).await;
    let origin = site.machine.session();
    site.serve(&origin, &[CONTENT, OTHER]);
    origin.open(site.header(URL), vec![]).await.unwrap();
    let look = "sha256sum *.bin; git status --porcelain";
    let work = "cp large.bin copy.bin; cp large.bin changed.bin; echo mine > own.bin; rm old.bin; echo x > README.md";
    let seen = origin.sh(&format!("{work}; {look}")).await;
    let changes = diff(&origin, 0).await.unwrap().files;

    let (header, data) = export(&origin).await;
    let header = WorkspaceHeader { lfs_session_id: origin.id.clone(), ..header };
    let copied = Session { tenant: origin.tenant.clone(), ..site.machine.session() };
    copied.open(header.clone(), data.clone()).await.unwrap();
    assert_eq!(copied.sh(look).await, seen);
    assert_eq!(diff(&copied, 0).await.unwrap().files, changes, "an unchanged file is no change");
    let told = copied.sh("tr '\\0' ' ' <.git/flotilla-lfs").await;
    assert_eq!(told, "1 origin 1 /gone.bin ", "the origin has no content of it");

    // A copy of the copy has them from the copy, after the origin is gone.
    origin.close().await;
    let (second, pieces) = export(&copied).await;
    let second = WorkspaceHeader { lfs_session_id: copied.id.clone(), ..second };
    let again = Session { tenant: origin.tenant.clone(), ..site.machine.session() };
    again.open(second, pieces).await.unwrap();
    assert_eq!(again.sh(look).await, seen);

    // Another tenant that knows the id has nothing of the objects.
    let other = site.machine.session();
    let foreign = WorkspaceHeader { lfs_session_id: copied.id.clone(), ..header.clone() };
    other.open(foreign, data.clone()).await.unwrap();
    assert_eq!(other.sh("cat large.bin").await, pointer(CONTENT).to_string().trim_end());
    let wrong = WorkspaceHeader { lfs_session_id: "../ses_a".to_owned(), ..header };
    assert_eq!(code(site.machine.session().open(wrong, data).await), "argument_invalid");
}

#[tokio::test]
async fn what_an_origin_lacks_comes_through_the_door() {
    let site = Site::start(&[("large.bin", CONTENT), ("other.bin", OTHER)]).await;
    let origin = site.machine.session();
    site.serve(&origin, &[CONTENT, OTHER]);
    origin.open(site.header(URL), vec![]).await.unwrap();
    let look = "sha256sum *.bin; git status --porcelain";
    let seen = origin.sh(look).await;
    let (header, data) = export(&origin).await;
    // One object is damaged, and another one is a link.
    let objects = origin.place(&site.directory, "ws").join("snapshots/lfs");
    let [damaged, moved] = [CONTENT, OTHER].map(|content| objects.join(pointer(content).oid()));
    fs::remove_file(&damaged).unwrap();
    fs::write(&damaged, CONTENT.to_uppercase()).unwrap();
    let outside = site.directory.path().join("outside");
    fs::rename(&moved, &outside).unwrap();
    std::os::unix::fs::symlink(&outside, &moved).unwrap();

    let copied = Session { tenant: origin.tenant.clone(), ..site.machine.session() };
    let requests = site.serve(&copied, &[CONTENT, OTHER]);
    let header = WorkspaceHeader { lfs_session_id: origin.id.clone(), lfs_url: URL.to_owned(), ..header };
    copied.open(header, data).await.unwrap();
    assert_eq!(copied.sh(look).await, seen);
    let asked = take(&requests);
    assert_eq!(asked.len(), 3, "a batch and two objects: {asked:?}");
}

/// The command that writes the pointer of a content to `path`, and `kept` where git-lfs keeps the content.
fn keep(path: &str, content: &str, kept: &str) -> String {
    let pointer = pointer(content);
    let oid = pointer.oid();
    let object = format!(".git/lfs/objects/{}/{}/{oid}", &oid[..2], &oid[2..4]);
    format!(
        "mkdir -p \"$(dirname '{path}')\" $(dirname {object}); printf %s '{kept}' >{object}; printf %s '{pointer}' >'{path}'\n"
    )
}

#[tokio::test]
async fn an_export_has_the_contents_that_a_git_lfs_of_the_session_keeps() {
    let site = Site::start(&[("old.bin", "old")]).await;
    let session = site.machine.session();
    session.open(site.header(""), vec![]).await.unwrap();
    let work: String = [
        keep("new.bin", "new", "new"),
        keep("d/a b.bin", "in a directory", "in a directory"),
        keep("old.bin", "old", "old"),
        // What is no content of its pointer, no file of Git LFS, or one by attributes that a push does not read.
        keep("wrong.bin", "right", "wrong"),
        keep("plain.txt", "plain", "plain"),
        keep("e/inner.bin", "inner", "inner"),
    ]
    .concat();
    session
        .sh(&format!("{work} echo '*.bin filter=lfs' >e/.gitattributes; git add --all; git commit -qm own"))
        .await;
    let (_, _, bundle) = changes::export(&session).await.unwrap();
    let file = site.directory.path().join("out.bundle");
    fs::write(&file, bundle).unwrap();
    git(
        &site.repository,
        &["fetch", "-q", file.to_str().unwrap(), "refs/heads/flotilla:refs/heads/flotilla"],
    );
    let show = |path: &str| git(&site.repository, &["show", &format!("flotilla:{path}")]);
    assert_eq!((show("new.bin"), show("d/a b.bin")), ("new".to_owned(), "in a directory".to_owned()));
    for (path, content) in
        [("old.bin", "old"), ("wrong.bin", "right"), ("plain.txt", "plain"), ("e/inner.bin", "inner")]
    {
        assert_eq!(show(path), pointer(content).to_string().trim_end(), "{path}");
    }
    let compared = diff(&session, 10_000).await.unwrap();
    assert!(compared.patch.contains(pointer("new").oid()), "a comparison has pointers: {}", compared.patch);
}

#[tokio::test]
async fn a_helper_starts_although_the_session_whose_objects_it_would_wait_for_has_ended() {
    let directory = directory();
    let [there, gone] = ["there", "gone"].map(|name| directory.path().join(name));
    fs::create_dir(&there).unwrap();
    fs::write(there.join("object"), "").unwrap();
    let mounts =
        vec![Mount::read_if_present(there, "/run/sbx/there"), Mount::read_if_present(gone, "/run/sbx/gone")];
    let look = "ls /run/sbx/there; test -e /run/sbx/gone || echo gone";
    assert_eq!(help(look, &[], mounts).await, (Some(0), "object\ngone\n".to_owned()));
}
