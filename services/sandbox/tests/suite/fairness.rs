//! What the tenants of one machine share: helpers, sandboxes, and the calls of callers that have left. A helper that must hang
//! without work clones from a server that says nothing, or reads a pipe in place of a file of git.

use crate::{
    changes::{diff, export},
    harness::{HOLDER, Machine, Session, code, directory, fresh, repository},
};
use futures::FutureExt as _;
use rpc::v1::{self, FileStatus, WorkspaceHeader};
use std::{
    collections::BTreeSet,
    fs::File,
    io::Write as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};
use tonic::Status;

/// Far longer than anything here takes on a busy machine, and far shorter than a helper may take.
const SOON: Duration = Duration::from_secs(30);
/// A git server that accepts connections and says nothing.
struct SilentServer(TcpListener);

impl SilentServer {
    async fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    /// Begins to open a workspace from it.
    fn open(&self, session: Session) -> JoinHandle<Result<v1::OpenWorkspaceResponse, Status>> {
        let url = format!("https://127.0.0.1:{}/r.git", self.0.local_addr().unwrap().port());
        tokio::spawn(async move { session.open_url(&url).await })
    }

    /// The connection of the next clone.
    async fn accept(&self) -> TcpStream {
        timeout(SOON, self.0.accept()).await.expect("a clone begins").unwrap().0
    }
}

/// Waits until the clone behind a connection has ended.
async fn ended(mut clone: TcpStream) {
    let read = async { clone.read_to_end(&mut Vec::new()).await.ok() };
    timeout(SOON, read).await.expect("the clone ends");
}

/// The control groups in which the groups of this process's sandboxes and helpers are made.
fn own_groups() -> impl Iterator<Item = PathBuf> {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let paths = own.lines().filter_map(|line| line.rsplit(':').next());
    let paths: BTreeSet<String> = paths.map(ToOwned::to_owned).collect();
    let mounts: Vec<String> = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (place, kind) = (fields.next()?, fields.next()?);
            kind.starts_with("cgroup").then(|| place.to_owned())
        })
        .collect();
    mounts.into_iter().flat_map(move |mount| {
        paths.iter().map(|path| PathBuf::from(format!("{mount}{path}"))).collect::<Vec<_>>()
    })
}

/// Control groups of this process's sandboxes and helpers.
fn groups() -> usize {
    let prefix = format!("flotilla-{}-", std::process::id());
    let names = own_groups().filter_map(|path| std::fs::read_dir(path).ok()).flatten().flatten();
    names.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).count()
}

/// The slice of a tenant in the control groups that share out the processors; `None` where none can be made.
fn slice(session: &Session) -> Option<PathBuf> {
    let own = format!("flotilla-{}.{}", std::process::id(), session.tenant.replace('-', ""));
    let has_weight =
        |slice: &PathBuf| ["cpu.shares", "cpu.weight"].iter().any(|file| slice.join(file).exists());
    own_groups().map(|group| group.join(&own)).find(has_weight)
}

/// The processes in the groups of a slice, and the weight that the kernel gives the slice: of a group that nobody changed it is 100.
fn inside(slice: &Path) -> (usize, u64) {
    let groups = std::fs::read_dir(slice).unwrap().flatten();
    let processes =
        groups.filter_map(|group| std::fs::read_to_string(group.path().join("cgroup.procs")).ok());
    let number = |file: &str| std::fs::read_to_string(slice.join(file)).ok()?.trim().parse::<u64>().ok();
    let weight = number("cpu.weight").or_else(|| Some(number("cpu.shares")? * 100 / 1_024)).unwrap();
    (processes.map(|list| list.lines().count()).sum(), weight)
}

#[tokio::test]
async fn tenants_share_the_processors_and_yield_to_services() {
    let (_directory, machine, session) = fresh(&[]).await;
    let other = machine.empty_session().await;
    // Nobody inside becomes less nice, and a new session leads out of no group.
    let nice = "nice; setsid nice; nice -n -5 nice 2> /dev/null; chrt --other 0 nice";
    let many = "for i in 1 2 3; do setsid sleep 1000 > /dev/null 2>&1 & done; yes > /dev/null & echo";
    session.sh(many).await;
    other.sh("true").await;
    let isolation =
        machine.client.clone().get_isolation(v1::GetIsolationRequest {}).await.unwrap().into_inner();
    let by_weight = isolation.properties["processors"].starts_with("shared between tenants");
    assert_eq!(session.sh(nice).await, if by_weight { "0\n0\n0\n0" } else { "10\n10\n10\n10" });
    if !by_weight {
        return;
    }
    let greedy = slice(&session).expect("a slice");
    let (processes, _) = inside(&greedy);
    assert!(processes > 4, "{processes} processes in {}", greedy.display());
    // A tenant begins with the greatest weight. The one that uses the processors gets no more than a service, and the other one keeps it:
    // but for a tenth, which is not worth a change.
    let calm = slice(&other).unwrap();
    testkit::eventually("the weights follow the use", async || {
        inside(&greedy).1 <= 110 && inside(&calm).1 >= 900
    })
    .await;
    session.release().await.unwrap();
    other.release().await.unwrap();
    assert!(!greedy.exists());
}

#[tokio::test]
async fn tenants_map_files_of_their_own() {
    let (_directory, machine, session) = fresh(&[]).await;
    let other = machine.empty_session().await;
    // The files that a process maps, by their inodes, and what they contain.
    let mapped =
        "cut -d ' ' -f 5- /proc/$$/maps | grep -e /bash -e /libc | sort -u; cat /bin/bash | sha256sum";
    let of_session = session.sh(mapped).await;
    assert!(of_session.contains("/bash") && of_session.contains("/libc"), "{of_session}");
    assert_eq!(session.sh(mapped).await, of_session);
    let of_other = other.sh(mapped).await;
    let lines = |text: &str| -> BTreeSet<String> { text.lines().map(ToOwned::to_owned).collect() };
    let same: Vec<_> = lines(&of_session).intersection(&lines(&of_other)).cloned().collect();
    // The content is the same, and no file is.
    assert_eq!(same, [of_session.lines().last().unwrap()]);
    // Nothing inside may change a copy.
    assert_ne!(session.run("echo > /bin/bash").await.exit.code, 0);
}

#[tokio::test]
async fn every_session_of_processes_is_lowered_where_the_kernel_shares_between_sessions() {
    let setting = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    if setting.is_ok_and(|setting| setting.trim() == "1") && is_root {
        let (_directory, _machine, session) =
            fresh(&["--control-groups", "off", "--without", "memory,processes,cpu"]).await;
        // A new session begins with 0, and so does one whose processes take the value back.
        let lowered = "until grep -q 'nice 10' /proc/self/autogroup; do sleep 0.02; done; ";
        let back = "until echo 0 2> /dev/null > /proc/self/autogroup; do sleep 0.02; done; ";
        let script = format!("{lowered} setsid --wait bash -c \"{lowered} {back} {lowered} echo lowered\"");
        assert_eq!(session.sh(&script).await, "lowered");
    }
}

/// A pipe in place of a file that git reads: the helper that reads it hangs.
struct Trap(File);

impl Trap {
    /// Waits until a helper reads the pipe that the session has laid.
    async fn sprung(pipe: &Path) -> Self {
        let pipe = pipe.to_owned();
        let open = tokio::task::spawn_blocking(move || File::options().write(true).open(pipe).unwrap());
        Self(timeout(SOON, open).await.expect("a helper reads the pipe").unwrap())
    }

    /// Waits until no process reads the pipe.
    async fn left(mut self) {
        let read = async {
            // The reader passes over empty lines.
            while self.0.write(b"\n").is_ok() {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), read).await.expect("the helper ends");
    }
}

/// Makes every diff and every export of a session hang.
async fn lay_trap(directory: &tempfile::TempDir, session: &Session) -> std::path::PathBuf {
    session.sh("rm -f .git/objects/info/alternates; mkfifo .git/objects/info/alternates").await;
    session.place(directory, "ws").join("tree/.git/objects/info/alternates")
}

#[tokio::test]
async fn one_tenant_leaves_helpers_to_others() {
    let (directory, server) = (directory(), SilentServer::start().await);
    let machine =
        Machine::start_with(directory.path(), &["--git-private-networks", "--helper-wait-ms", "500"]).await;
    let greedy = machine.session().tenant;
    let another = || Session { tenant: greedy.clone(), ..machine.session() };
    // While it is alone, it has three quarters of all.
    let mut clones: Vec<_> = (0..9).map(|_| server.open(another())).collect();
    let mut running = vec![];
    for _ in 0..6 {
        running.push(server.accept().await);
    }
    // Helpers of both kinds run for others at once.
    let other = async {
        let session = machine.empty_session().await;
        session.sh("echo x > x").await;
        session.snapshot().await;
        diff(&session, 0).await.unwrap()
    };
    assert_eq!(timeout(SOON, other).await.expect("no helper of another tenant waits").files.len(), 1);
    assert!(server.0.accept().now_or_never().is_none(), "the others of the greedy tenant wait");
    for _ in 0..3 {
        let (refused, _, rest) = futures::future::select_all(clones).await;
        let status = refused.unwrap().unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
        assert_eq!(code::<()>(Err(status)), "helpers_busy");
        clones = rest;
    }
    // Callers that leave end their clones, and give their share back.
    clones.iter().for_each(JoinHandle::abort);
    for clone in running.drain(..) {
        ended(clone).await;
    }
    // Another attempt finds nothing of the clone that was killed.
    let session = another();
    let clone = server.open(session.clone());
    let running_clone = server.accept().await;
    clone.abort();
    assert!(session.open(WorkspaceHeader::default(), vec![]).await.unwrap().created);
    ended(running_clone).await;
    // From now on it leaves room for the first of a third tenant.
    let mut next: Vec<_> = (0..4).map(|_| server.open(another())).collect();
    for _ in 0..3 {
        running.push(server.accept().await);
    }
    let (refused, _, rest) = futures::future::select_all(next).await;
    assert_eq!(code(refused.unwrap()), "helpers_busy");
    next = rest;
    next.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn one_tenant_leaves_sandboxes_to_others() {
    let directory = directory();
    let machine = Machine::start_with(directory.path(), &["--live-max", "4"]).await;
    let other = machine.empty_session().await;
    other.sh(HOLDER).await;
    let first = machine.empty_session().await;
    let second = machine.empty_session_of(&first.tenant).await;
    let (third, fourth) =
        (machine.empty_session_of(&first.tenant).await, machine.empty_session_of(&first.tenant).await);
    assert!(first.start(first.command("busy", "sleep 600")).await.unwrap());
    assert!(second.start(second.command("busy", "sleep 600")).await.unwrap());
    third.sh("true").await;
    // The sandbox of the other tenant has been idle for longer, but the greedy tenant must end its own.
    assert_eq!(fourth.sh("echo instead").await, "instead");
    assert_eq!(other.sh("flock --nonblock held true || echo held").await, "held");
    assert!(fourth.start(fourth.command("busy", "sleep 600")).await.unwrap());
    let mut waiting = Box::pin(third.start(third.command("late", "true")));
    assert!(waiting.as_mut().now_or_never().is_none());
    assert_eq!(other.sh("echo here").await, "here");
    assert!(waiting.as_mut().now_or_never().is_none());
    assert!(second.kill_all().await.unwrap());
    assert!(timeout(SOON, waiting).await.expect("it gets the place").unwrap());
}

#[tokio::test]
async fn a_sandbox_that_may_be_needed_soon_ends_no_other() {
    let directory = directory();
    let machine = Machine::start_with(directory.path(), &["--live-max", "1"]).await;
    let (idle, soon) = (machine.empty_session().await, machine.empty_session().await);
    idle.sh(HOLDER).await;
    assert_eq!(code(soon.start_sandbox().await), "sandbox_unavailable");
    assert_eq!(idle.sh("flock --nonblock held true || echo held").await, "held");
    assert_eq!(soon.sh("echo now").await, "now");
}

#[tokio::test]
async fn a_read_ends_with_its_caller_and_an_effect_goes_on() {
    let (directory, machine, session) = fresh(&[]).await;
    let before = groups();
    let pipe = lay_trap(&directory, &session).await;
    let held = groups();
    let call = tokio::spawn({
        let session = session.clone();
        async move { diff(&session, 0).await }
    });
    let trap = Trap::sprung(&pipe).await;
    assert!(groups() > held || held == 0);
    call.abort();
    trap.left().await;

    let call = tokio::spawn({
        let session = session.clone();
        async move { export(&session).await }
    });
    let trap = Trap::sprung(&pipe).await;
    call.abort();
    trap.left().await;
    let scratch = || std::fs::read_dir(directory.path().join("data/scratch")).unwrap().count();
    let nothing_is_left = async {
        while groups() > held || scratch() > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, nothing_is_left)
        .await
        .expect("the control groups and the files of the helpers are removed");

    // A caller that leaves while its command starts.
    let other = machine.empty_session().await;
    let execs = other.place(&directory, "execs");
    let start = tokio::spawn({
        let (other, command) = (other.clone(), other.command("e", "echo done"));
        async move { other.start(command).await }
    });
    let entered = async {
        while std::fs::read_dir(&execs).map_or(true, |mut entries| entries.next().is_none()) {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, entered).await.expect("the command is entered");
    start.abort();
    let follow = async {
        loop {
            match other.attach("e", 0).await {
                Ok(outcome) => return outcome.output,
                Err(status) if code::<()>(Err(status.clone())) == "exec_unknown" => {
                    tokio::task::yield_now().await;
                }
                Err(status) => panic!("{status:?}"),
            }
        }
    };
    assert_eq!(timeout(SOON, follow).await.expect("the command runs"), "done\n");
    session.release().await.unwrap();
    other.release().await.unwrap();
    assert_eq!(groups(), before);
}

/// A file of 8 GiB without blocks: to read it takes a minute.
#[tokio::test]
async fn files_that_grew_too_large_are_left_out_and_named() {
    let directory = directory();
    let path = repository(directory.path());
    let root = directory.path().to_str().unwrap().to_owned();
    let machine =
        Machine::start_with(directory.path(), &["--file-roots", &root, "--disk-bytes", "17179869184"]).await;
    let session = machine.session();
    session
        .open(WorkspaceHeader { git_url: format!("file://{}", path.display()), ..Default::default() }, vec![])
        .await
        .unwrap();
    let first = session.snapshot().await;
    session.sh("truncate -s 8G README.md; truncate -s 8G new; echo more >> .gitignore").await;
    let tracked = timeout(SOON, session.track()).await.expect("the snapshot ends in time").unwrap();
    assert_eq!(
        (tracked.left_out, &tracked.left_out_paths[..]),
        (2, &["README.md".to_owned(), "new".to_owned()][..])
    );
    let changes = session.compare(&first, &tracked.snapshot, 0).await.unwrap();
    let patches: Vec<_> =
        changes.files.iter().map(|file| (&*file.path, file.status(), &*file.patch)).collect();
    assert_eq!((patches.len(), patches[0].0), (2, ".gitignore"));
    assert_eq!(patches[1], ("README.md", FileStatus::Modified, "left out: README.md, 8.0 GiB\n"));
    let changes = timeout(SOON, diff(&session, 0)).await.expect("the diff ends in time").unwrap();
    assert_eq!(changes.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), [".gitignore"]);
    assert_eq!(changes.left_out, ["README.md, 8.0 GiB", "new, 8.0 GiB"]);
    let refused = timeout(SOON, export(&session)).await.expect("the export ends in time").unwrap_err();
    assert!(refused.message().contains("README.md, 8.0 GiB; new, 8.0 GiB"), "{refused:?}");
    assert_eq!(code::<()>(Err(refused)), "bundle_too_large");
    // The restore of a later snapshot leaves the files that it does not contain; that of an earlier one brings back what it has.
    session.sh("echo even more >> .gitignore").await;
    session.restore(&tracked.snapshot).await.unwrap();
    assert_eq!(
        session.sh("stat -c '%s %n' README.md new; tail -n 1 .gitignore").await,
        "8589934592 README.md\n8589934592 new\nmore"
    );
    session.restore(&first).await.unwrap();
    assert_eq!(session.sh("cat README.md; stat -c %s new").await, "one\ntwo\n8589934592");
    // A file that is small again is kept again.
    session.sh("echo three >> README.md").await;
    let changed = session.changed(&first).await;
    assert_eq!(changed.iter().map(|(path, ..)| path.as_str()).collect::<Vec<_>>(), ["README.md"]);
}
