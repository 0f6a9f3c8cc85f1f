//! What setups make on top of images: built once, shared by the sessions of a project, and kept while one uses it.

use crate::{
    harness::{Machine, Session, code, directory},
    layers::{Archive, Layer, image, programs, put, start},
};
use rpc::v1::{self, EnvironmentState, build_environment_response::Item};
use std::{
    fs,
    path::{Path, PathBuf},
    pin::Pin,
    sync::LazyLock,
    time::Duration,
};
use tempfile::TempDir;
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;

/// Programs that scripts and attacks use.
const TOOLS: [&str; 16] = [
    "/bin/bash",
    "/bin/cat",
    "/bin/chmod",
    "/bin/chown",
    "/bin/head",
    "/bin/id",
    "/bin/ln",
    "/bin/mkdir",
    "/bin/mkfifo",
    "/bin/mknod",
    "/bin/mount",
    "/bin/mv",
    "/bin/rm",
    "/bin/sleep",
    "/usr/bin/unshare",
    "/usr/sbin/groupadd",
];

/// Waits until a test makes a file in the door of the session.
pub const WAIT: &str = "until [ -e /run/egress/go ]; do sleep 0.05; done";

/// A project of any tenant.
pub fn project() -> String {
    format!("prj_{}", "0".repeat(26))
}

pub fn tools() -> Layer {
    static TOOLS_LAYER: LazyLock<Layer> = LazyLock::new(|| programs(&TOOLS));
    TOOLS_LAYER.clone()
}

/// A machine with doors and an image, and what the image consists of.
pub struct Site {
    pub directory: TempDir,
    pub machine: Machine,
    pub image: Vec<Layer>,
    arguments: Vec<String>,
}

type BuildStream = Pin<Box<dyn Stream<Item = Result<v1::BuildEnvironmentResponse, Status>> + Send>>;

pub struct Running {
    pub key: String,
    pub is_ready: bool,
    items: BuildStream,
    log: String,
}

/// A build that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    pub key: String,
    pub is_ready: bool,
    pub log: String,
    pub code: String,
    pub message: String,
}

impl Site {
    /// `None`: as [`start`].
    pub async fn start(arguments: &[&str]) -> Option<Self> {
        let directory = directory();
        let egress = directory.path().join("egress");
        let fixed = ["--egress".to_owned(), egress.to_str().unwrap().to_owned()];
        let arguments: Vec<String> =
            fixed.into_iter().chain(arguments.iter().map(ToString::to_string)).collect();
        let top =
            Archive::default().file("srv/name", b"of the image").file("srv/gone", b"gone").directory("root");
        let image = vec![tools(), top.layer()];
        let machine = Self::launch(&directory, &arguments).await?;
        for layer in &image {
            put(&machine.client, layer).await.unwrap();
        }
        Some(Self { directory, machine, image, arguments })
    }

    async fn launch(directory: &TempDir, arguments: &[String]) -> Option<Machine> {
        start(directory.path(), &arguments.iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    /// Stops the service and starts another one in its place.
    pub async fn restart(self) -> Self {
        let Self { directory, machine, image, arguments } = self;
        machine.stop().await;
        let machine = Self::launch(&directory, &arguments).await.unwrap();
        Self { directory, machine, image, arguments }
    }

    pub fn session_of(&self, tenant: &str) -> Session {
        Session { tenant: tenant.to_owned(), ..self.machine.session() }
    }

    /// A request of a session, to be changed.
    pub fn request(&self, session: &Session, script: &str) -> v1::BuildEnvironmentRequest {
        v1::BuildEnvironmentRequest {
            fence: session.fence(),
            project_id: project(),
            image: Some(image(&self.image.iter().collect::<Vec<_>>())),
            script: script.to_owned(),
            hosts: vec![],
            secrets: vec![],
        }
    }

    pub async fn begin(&self, session: &Session, script: &str) -> Running {
        begin(session, self.request(session, script)).await.unwrap()
    }

    pub async fn build(&self, session: &Session, script: &str) -> Built {
        self.begin(session, script).await.finish().await
    }

    pub async fn open(&self, session: &Session, key: &str) -> Result<v1::OpenWorkspaceResponse, Status> {
        let header = v1::WorkspaceHeader {
            image: Some(image(&self.image.iter().collect::<Vec<_>>())),
            environment_key: key.to_owned(),
            ..Default::default()
        };
        session.open(header, vec![]).await
    }

    /// Lets the scripts of a session go on that wait.
    pub fn let_go(&self, session: &Session) {
        let tenant = session.tenant.replace('-', "");
        let door = self.directory.path().join("egress").join(tenant).join(&session.id).join("door");
        fs::write(door.join("go"), "").unwrap();
    }

    pub async fn list(&self, tenant: &str) -> Vec<v1::Environment> {
        let request = v1::FindEnvironmentsRequest { tenant_id: tenant.to_owned(), project_id: String::new() };
        self.machine.client.clone().find_environments(request).await.unwrap().into_inner().environments
    }

    pub async fn log(&self, tenant: &str, key: &str) -> Result<v1::ReadEnvironmentLogResponse, Status> {
        let request = v1::ReadEnvironmentLogRequest { tenant_id: tenant.to_owned(), key: key.to_owned() };
        self.machine.client.clone().read_environment_log(request).await.map(tonic::Response::into_inner)
    }

    pub async fn remove(&self, tenant: &str, key: &str) -> Result<v1::DropEnvironmentResponse, Status> {
        let request = v1::DropEnvironmentRequest { tenant_id: tenant.to_owned(), key: key.to_owned() };
        self.machine.client.clone().drop_environment(request).await.map(tonic::Response::into_inner)
    }

    /// The directory of a layer that a setup made.
    pub fn layer(&self, tenant: &str, key: &str) -> PathBuf {
        self.directory.path().join("data/images/env").join(tenant.replace('-', "")).join(key)
    }

    pub fn arrivals(&self) -> usize {
        count(&self.directory.path().join("data/images/arrivals"))
    }
}

fn count(directory: &Path) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}

pub async fn begin(session: &Session, request: v1::BuildEnvironmentRequest) -> Result<Running, Status> {
    let items = session.client.clone().build_environment(request).await?.into_inner();
    Ok(begin_from(Box::pin(items)).await)
}

pub async fn begin_from(mut items: BuildStream) -> Running {
    let Some(Item::Build(build)) = items.next().await.unwrap().unwrap().item else { panic!("no build") };
    Running { key: build.key, is_ready: build.is_ready, items, log: String::new() }
}

impl Running {
    async fn next(&mut self) -> Option<v1::EnvironmentEnd> {
        // A wall that fails must not leave a build waiting for as long as builds may run.
        let message = tokio::time::timeout(Duration::from_secs(30), self.items.next()).await;
        match message.unwrap().unwrap().unwrap().item.unwrap() {
            Item::Output(output) => {
                self.log.push_str(&String::from_utf8_lossy(&output.data));
                None
            }
            Item::End(end) => Some(end),
            Item::Build(_) => panic!("a second beginning"),
        }
    }

    /// Waits until the script has printed a text.
    pub async fn until(&mut self, text: &str) {
        while !self.log.contains(text) {
            assert_eq!(self.next().await, None, "{}", self.log);
        }
    }

    pub async fn finish(mut self) -> Built {
        loop {
            if let Some(v1::EnvironmentEnd { code, message }) = self.next().await {
                let Self { key, is_ready, log, .. } = self;
                return Built { key, is_ready, log, code, message };
            }
        }
    }
}

#[tokio::test]
async fn a_setup_runs_once_and_the_sessions_of_its_tenant_have_what_it_left() {
    let Some(site) = Site::start(&[]).await else { return };
    let (session, second) = (site.machine.session(), site.machine.session());
    let second = Session { tenant: session.tenant.clone(), ..second };
    let script = "echo installing; mkdir -p /usr/local/bin /srv/new/deep
        printf '#!/bin/bash\\necho tool $1\\n' > /usr/local/bin/tool; chmod 700 /usr/local/bin/tool
        echo changed > /srv/name; rm /srv/gone; echo deep > /srv/new/deep/file
        echo 'db:x:77:77::/srv:/bin/bash' >> /etc/passwd
        mkdir -p /etc/new /var/lib/new /opt/new /home/new /root/new; chmod 700 /etc
        read answer || echo 'no input'
        sleep 1000 & echo $UID $HOME $PWD $CI $DEBIAN_FRONTEND";
    let mut request = site.request(&session, script);
    request.image.as_mut().unwrap().env.push("CI=yes".to_owned());
    let built = begin(&session, request.clone()).await.unwrap().finish().await;
    assert_eq!((built.code.as_str(), built.message.as_str()), ("", ""), "{built:?}");
    assert_eq!(built.log, "installing\nno input\n0 /root / yes noninteractive\n");
    request.fence = second.fence();
    let again = begin(&second, request).await.unwrap().finish().await;
    assert_eq!(again, Built { is_ready: true, log: String::new(), ..built.clone() });
    for session in [&session, &second] {
        site.open(session, &built.key).await.unwrap();
        assert_eq!(session.sh("tool works; echo $UID").await, "tool works\n1000");
        assert_eq!(
            session.sh("cat /srv/name /srv/new/deep/file; echo /srv/*").await,
            "changed\ndeep\n/srv/name /srv/new"
        );
        assert_eq!(session.sh("echo ~db ~agent").await, "/srv /home/agent");
        for path in ["/srv/name", "/usr/local/bin/tool", "/new"] {
            let outcome = session.run(&format!("echo x > {path}")).await;
            assert!(outcome.output.contains("Read-only file system"), "{outcome:?}");
        }
    }
    // The image itself is as it was.
    let plain = site.session_of(&session.tenant);
    site.open(&plain, "").await.unwrap();
    assert_eq!(plain.sh("cat /srv/name; echo /srv/*").await, "of the image/srv/gone /srv/name");
    let list = site.list(&session.tenant).await;
    assert_eq!(
        (list.len(), list[0].state(), list[0].key.as_str()),
        (1, EnvironmentState::Ready, built.key.as_str())
    );
    assert!(list[0].size_bytes > 0 && list[0].used_at_ms >= list[0].started_at_ms, "{list:?}");
    let log = site.log(&session.tenant, &built.key).await.unwrap();
    assert_eq!(String::from_utf8(log.log).unwrap(), built.log);
    assert_eq!(site.arrivals(), 0);
    site.machine.stop().await;
}

#[tokio::test]
async fn callers_share_a_build_that_goes_on_when_one_of_them_leaves() {
    let Some(site) = Site::start(&[]).await else { return };
    let first = site.machine.session();
    let second = site.session_of(&first.tenant);
    let script = format!("echo begun $RANDOM$RANDOM; {WAIT}; echo over");
    let mut left = site.begin(&first, &script).await;
    left.until("begun").await;
    let mut stays = site.begin(&second, &script).await;
    stays.until("begun").await;
    assert_eq!((&stays.key, &stays.log, stays.is_ready), (&left.key, &left.log, false));
    assert_eq!(site.list(&first.tenant).await[0].state(), EnvironmentState::Building);
    assert_eq!(code(site.remove(&first.tenant, &left.key).await), "environment_in_use");
    drop(left);
    site.let_go(&first);
    let built = stays.finish().await;
    assert!(built.code.is_empty() && built.log.ends_with("over\n"), "{built:?}");
    assert_eq!(built.log.matches("begun").count(), 1);
    site.machine.stop().await;
}

#[tokio::test]
async fn a_restart_in_the_midst_leaves_nothing_half_and_the_next_caller_begins_again() {
    let Some(site) = Site::start(&[]).await else { return };
    let session = site.machine.session();
    let script = format!("echo begun; echo half > /srv/half; {WAIT}");
    let mut running = site.begin(&session, &script).await;
    running.until("begun").await;
    let site = site.restart().await;
    let session = Session { client: site.machine.client.clone(), ..session };
    assert_eq!(site.arrivals(), 0);
    let list = site.list(&session.tenant).await;
    assert_eq!((list[0].state(), list[0].code.as_str()), (EnvironmentState::Failed, "setup_interrupted"));
    let mut running = site.begin(&session, &script).await;
    running.until("begun").await;
    site.let_go(&session);
    let built = running.finish().await;
    assert_eq!((built.code.as_str(), built.log.as_str()), ("", "begun\n"));
    // What is built stays across a restart.
    let site = site.restart().await;
    let session = Session { client: site.machine.client.clone(), ..session };
    assert!(site.begin(&session, &script).await.is_ready);
    site.open(&session, &built.key).await.unwrap();
    let site = site.restart().await;
    let session = Session { client: site.machine.client.clone(), ..session };
    assert_eq!(session.sh("cat /srv/half").await, "half");
    site.machine.stop().await;
}

#[tokio::test]
async fn a_failed_setup_tells_its_last_lines_and_the_next_try_builds_again() {
    let Some(site) = Site::start(&[]).await else { return };
    let session = site.machine.session();
    let script =
        "for n in {1..50}; do echo line $n; done; echo 'fatal: no such package' >&2; false; echo never";
    let failed = site.build(&session, script).await;
    assert_eq!(failed.code, "setup_failed");
    assert!(
        failed.message.starts_with("the setup failed with exit code 1; its last lines:\nline 12\n"),
        "{failed:?}"
    );
    assert!(
        failed.message.ends_with("fatal: no such package") && !failed.log.contains("never"),
        "{failed:?}"
    );
    assert_eq!(code(site.open(&session, &failed.key).await), "environment_missing");
    let log = site.log(&session.tenant, &failed.key).await.unwrap();
    assert_eq!(log.environment.unwrap().state(), EnvironmentState::Failed);
    assert!(String::from_utf8(log.log).unwrap().starts_with("line 1\n"));
    let again = site.build(&session, script).await;
    assert_eq!((again.is_ready, again.code.as_str()), (false, "setup_failed"), "a failure is not kept");
    let silent = site.build(&session, "exit 7").await;
    assert_eq!(silent.message, "the setup failed with exit code 7; it printed nothing");
    assert_eq!(site.arrivals(), 0);
    site.machine.stop().await;
}

#[tokio::test]
async fn an_environment_stays_while_a_session_uses_it() {
    let Some(site) = Site::start(&[]).await else { return };
    let session = site.machine.session();
    let built = site.build(&session, "echo x > /srv/x").await;
    site.open(&session, &built.key).await.unwrap();
    assert_eq!(code(site.remove(&session.tenant, &built.key).await), "environment_in_use");
    session.close().await;
    site.remove(&session.tenant, &built.key).await.unwrap();
    assert!(!site.layer(&session.tenant, &built.key).exists() && site.list(&session.tenant).await.is_empty());
    assert_eq!(code(site.remove(&session.tenant, &built.key).await), "environment_unknown");
    assert_eq!(code(site.log(&session.tenant, &built.key).await), "environment_unknown");
    // A deleted session ends its build, and a deleted tenant leaves nothing.
    let script = format!("echo begun; {WAIT}");
    let other = site.session_of(&session.tenant);
    let mut running = site.begin(&other, &script).await;
    running.until("begun").await;
    other.close().await;
    assert_eq!(running.finish().await.code, "setup_interrupted");
    let built = site.build(&other, "echo x > /srv/x").await;
    assert!(site.layer(&session.tenant, &built.key).exists());
    let request = v1::CloseTenantRequest { tenant_id: session.tenant.clone() };
    site.machine.client.clone().close_tenant(request).await.unwrap();
    assert!(site.list(&session.tenant).await.is_empty());
    assert!(!site.layer(&session.tenant, &built.key).exists());
    site.machine.stop().await;
}

#[tokio::test]
async fn a_build_loses_its_door_when_its_session_begins_to_work() {
    let Some(site) = Site::start(&[]).await else { return };
    let session = site.machine.session();
    let mut running = site.begin(&session, &format!("echo begun; {WAIT}")).await;
    running.until("begun").await;
    site.open(&session, "").await.unwrap();
    assert_eq!(running.finish().await.code, "setup_interrupted");
    assert_eq!(session.sh("echo works").await, "works");
    // From now on nothing else goes through the door of the session.
    let refused = begin(&session, site.request(&session, "echo another")).await.map(|_| ());
    assert_eq!(code(refused), "argument_invalid");
    site.machine.stop().await;
}

#[tokio::test]
async fn a_build_is_bounded_in_time() {
    let Some(site) = Site::start(&["--setup-ms", "1500"]).await else { return };
    let session = site.machine.session();
    // Nothing but the end of the build can end the second one.
    for script in ["echo waits; sleep 1000", "trap '' TERM; echo waits; while :; do sleep 1000 || :; done"] {
        let built = site.build(&session, script).await;
        assert_eq!(built.code, "setup_timeout", "{script}: {built:?}");
        assert_eq!(site.arrivals(), 0, "{script}");
    }
    site.machine.stop().await;
}

#[tokio::test]
async fn a_build_is_bounded_on_the_disk() {
    let Some(site) = Site::start(&["--setup-bytes", "4194304"]).await else { return };
    let session = site.machine.session();
    let write = "head -c 33554432 /dev/zero";
    for script in [
        format!("{write} > /srv/large"),
        format!("{write} > /srv/large; sleep 1000"),
        format!("exec 9> /srv/nameless; rm /srv/nameless; {write} >&9; sleep 1000"),
    ] {
        let built = site.build(&session, &script).await;
        assert_eq!(built.code, "setup_disk_full", "{script}: {built:?}");
        assert_eq!(site.arrivals(), 0, "{script}");
    }
    assert_eq!(site.build(&session, "head -c 1048576 /dev/zero > /srv/small").await.code, "");
    site.machine.stop().await;
}
