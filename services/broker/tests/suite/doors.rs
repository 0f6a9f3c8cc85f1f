//! The doors of sessions: sockets in a directory, which a broker opens, changes, finds again and removes.

use broker::{
    egress::{
        doors::Doors,
        error::EgressError,
        git::{credential::GitCredentials, rules::GitRules, servers::GitServers},
        key::DoorKey,
        rules::{DoorRules, DoorStage, Grant, RuleList},
    },
    forge::github::{Github, GithubSettings},
    outside::names::Names,
    secrets::{deployment_key::DeploymentKey, key_file::KeyFile, keyring::Keyring, vault::Vault},
};
use chassis::tasks::Tasks;
use domain::{egress::host::HostName, ids::Timestamp};
use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};
use store::broker::BrokerStore;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, UnixStream},
};
use tokio_util::sync::CancellationToken;

const HOST: &str = "pypi.org";

/// A host that answers everything with one word.
async fn host() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let count = stream.read(&mut [0; 4096]).await.unwrap();
                assert!(count > 0);
                stream.write_all(b"reached").await.unwrap();
            });
        }
    });
    address
}

struct Broker {
    doors: Arc<Doors>,
    shutdown: CancellationToken,
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// What doors need, with a vault whose database is away.
fn means(names: Names) -> (Arc<Names>, Arc<GitServers>) {
    let key = tempfile::tempdir().unwrap();
    let key = KeyFile::open_or_create(&key.path().join("key")).unwrap();
    let store = BrokerStore::connect("postgres://nobody@127.0.0.1:9/none", 1).unwrap();
    let vault = Arc::new(Vault::new(store.clone(), Keyring::new(DeploymentKey::File(key), vec![])));
    let names = Arc::new(names);
    let settings = GithubSettings { authorities: &[], write_gap: Duration::ZERO };
    let github = Github::new(store, Arc::clone(&vault), Arc::clone(&names), settings).unwrap();
    let credentials = GitCredentials::new(vault, Arc::new(github));
    let servers = GitServers::new(credentials, Arc::clone(&names), &[]).unwrap();
    (names, Arc::new(servers))
}

fn start(directory: &Path, host: SocketAddr) -> Broker {
    let names = Names::new(vec![], BTreeMap::from([(HostName::parse(HOST).unwrap(), host)]));
    let shutdown = CancellationToken::new();
    let (names, servers) = means(names);
    let doors = Doors::start(directory, names, servers, &Tasks::default(), &shutdown).unwrap();
    Broker { doors, shutdown }
}

fn key(session: &str) -> DoorKey {
    let tenant = "00000000-0000-0000-0000-000000000001".parse().unwrap();
    DoorKey { tenant, session: session.parse().unwrap() }
}

fn rules(hosts: &[&str]) -> DoorRules {
    let entries = hosts.iter().map(|host| (*host).to_owned()).collect();
    let lists = vec![RuleList { setting: "a setting".to_owned(), entries, ask: vec![] }];
    DoorRules { lists, ..DoorRules::default() }
}

fn home(directory: &Path, session: &str) -> PathBuf {
    let key = key(session);
    directory.join(key.tenant.to_string()).join(session)
}

/// What a program gets at the door of a session; `None`: no broker answers there.
async fn ask(directory: &Path, session: &str) -> Option<String> {
    // The address of a socket has at most 107 bytes, fewer than the path may have.
    let opened = fs::File::open(home(directory, session).join("door")).ok()?;
    let mut door = UnixStream::connect(format!("/proc/self/fd/{}/socket", opened.as_raw_fd())).await.ok()?;
    let request = format!("GET http://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    door.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    door.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

#[tokio::test]
async fn a_door_follows_its_rules_and_is_found_again() {
    let (directory, host) = (tempfile::tempdir().unwrap(), host().await);
    let path = directory.path();
    let broker = start(path, host);
    broker.doors.open(&key("ses_a"), &rules(&[HOST]), DoorStage::Unknown).unwrap();
    broker.doors.open(&key("ses_b"), &rules(&["example.com"]), DoorStage::Unknown).unwrap();
    assert_eq!(ask(path, "ses_a").await.unwrap(), "reached");
    assert!(ask(path, "ses_b").await.unwrap().contains("a setting does not list it"));
    broker.doors.open(&key("ses_a"), &rules(&[]), DoorStage::Unknown).unwrap();
    assert!(
        ask(path, "ses_a").await.unwrap().contains("a setting does not list it"),
        "the same door, other rules"
    );
    broker.doors.open(&key("ses_a"), &rules(&[HOST]), DoorStage::Unknown).unwrap();

    // The files of the session are removed and made anew, with the directory of its door.
    fs::remove_dir_all(home(path, "ses_a")).unwrap();
    fs::create_dir_all(home(path, "ses_a").join("door")).unwrap();
    assert_eq!(ask(path, "ses_a").await, None);
    broker.doors.open(&key("ses_a"), &rules(&[HOST]), DoorStage::Unknown).unwrap();
    assert_eq!(ask(path, "ses_a").await.unwrap(), "reached");

    // A killed broker leaves sockets behind that no process serves.
    let credentials = [("https://h.org/acme/".to_owned(), "TOKEN".to_owned())].into();
    let git = GitRules { credentials, ..GitRules::default() };
    broker.doors.open(&key("ses_a"), &DoorRules { git, ..rules(&[HOST]) }, DoorStage::Unknown).unwrap();
    drop(broker);
    let configuration = home(path, "ses_a").join("door/gitconfig");
    fs::remove_file(&configuration).unwrap();
    // Rules of an earlier version name no repositories.
    let earlier = fs::read_to_string(home(path, "ses_b").join("rules.json")).unwrap();
    let earlier = earlier.split(",\"git\"").next().unwrap().to_owned() + "}";
    fs::write(home(path, "ses_b").join("rules.json"), earlier).unwrap();
    let successor = start(path, host);
    assert!(fs::read_to_string(&configuration).unwrap().contains("insteadOf = https://h.org/acme/\n"));
    assert_eq!(ask(path, "ses_a").await.unwrap(), "reached");
    assert!(ask(path, "ses_b").await.unwrap().contains("a setting does not list it"));
    drop(successor);
}

#[tokio::test]
async fn wrong_and_old_doors_stay_closed_and_keep_no_other_door_closed() {
    let (directory, host) = (tempfile::tempdir().unwrap(), host().await);
    let path = directory.path();
    let broker = start(path, host);
    for session in ["ses_broken", "ses_old", "ses_good"] {
        broker.doors.open(&key(session), &rules(&[HOST]), DoorStage::Unknown).unwrap();
    }
    let wrong = broker.doors.open(&key("ses_wrong"), &rules(&["http://x"]), DoorStage::Unknown).unwrap_err();
    assert_eq!(wrong.code().as_str(), "egress_list_invalid");
    assert!(!home(path, "ses_wrong").exists(), "a refused door leaves nothing behind");
    drop(broker);
    fs::write(home(path, "ses_broken").join("rules.json"), "{").unwrap();
    let old = fs::File::options().write(true).open(home(path, "ses_old").join("rules.json")).unwrap();
    old.set_modified(SystemTime::now() - Duration::from_secs(8 * 24 * 3_600)).unwrap();
    // The sandbox service made this one, and no worker has asked for it.
    fs::create_dir_all(home(path, "ses_new").join("door")).unwrap();
    fs::write(path.join("a file"), "").unwrap();
    let successor = start(path, host);
    assert_eq!(ask(path, "ses_good").await.unwrap(), "reached");
    assert_eq!((ask(path, "ses_broken").await, ask(path, "ses_new").await), (None, None));
    assert!(!home(path, "ses_old").exists() && home(path, "ses_new").join("door").is_dir());
    drop(successor);
}

#[tokio::test]
async fn a_directory_of_somebody_else_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let (names, servers) = means(Names::new(vec![], BTreeMap::new()));
    let shutdown = CancellationToken::new();
    let started = Doors::start(&file.join("below"), names, servers, &Tasks::default(), &shutdown);
    assert!(started.is_err());
    // What a caller would get later says nothing about directories.
    assert_eq!(EgressError::Door(std::io::Error::other("x")).code().as_str(), "internal");
}

#[tokio::test]
async fn a_door_is_sealed_when_the_files_of_its_session_are_open() {
    let (directory, host) = (tempfile::tempdir().unwrap(), host().await);
    let path = directory.path();
    let broker = start(path, host);
    let open = |broker: &Broker, stage| broker.doors.open(&key("ses_a"), &rules(&[HOST]), stage);
    open(&broker, DoorStage::Before(0)).unwrap();
    open(&broker, DoorStage::Open(0)).unwrap();
    broker.doors.open(&key("ses_a"), &rules(&[]), DoorStage::Open(0)).unwrap();
    let sealed = open(&broker, DoorStage::Before(0)).unwrap_err();
    assert_eq!(sealed.code().as_str(), "egress_sealed");
    assert!(ask(path, "ses_a").await.unwrap().contains("does not list it"), "its rules are as they were");
    // A broker that starts again knows it, and a worker of an earlier version changes nothing of it.
    drop(broker);
    let broker = start(path, host);
    open(&broker, DoorStage::Unknown).unwrap();
    assert_eq!(open(&broker, DoorStage::Before(0)).unwrap_err().code().as_str(), "egress_sealed");
    // The files start again from their source.
    open(&broker, DoorStage::Before(1)).unwrap();
    open(&broker, DoorStage::Open(1)).unwrap();
    assert_eq!(open(&broker, DoorStage::Before(1)).unwrap_err().code().as_str(), "egress_sealed");
}

#[tokio::test]
async fn what_people_allow_counts_for_each_session_until_it_says_otherwise() {
    let (directory, host) = (tempfile::tempdir().unwrap(), host().await);
    let path = directory.path();
    let broker = start(path, host);
    let asking = || {
        let mut rules = rules(&[]);
        rules.lists[0].ask = vec![HOST.to_owned()];
        rules
    };
    let grant_until = |broker: &Broker, session: &str, grant: Grant| {
        broker.doors.grant(&key("ses_a"), session.parse().unwrap(), grant)
    };
    let grant = |broker: &Broker, session: &str, epoch: u64, hosts: &[&str]| {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        grant_until(broker, session, Grant { epoch, hosts, expires_at: Timestamp(i64::MAX) })
    };
    let needed = "egress_permission_needed";
    assert_eq!(
        grant(&broker, "ses_a", 1, &[HOST]).unwrap_err().code().as_str(),
        "egress_unavailable",
        "no door"
    );
    broker.doors.open(&key("ses_a"), &asking(), DoorStage::Open(0)).unwrap();
    grant(&broker, "ses_a", 1, &["other.example.com"]).unwrap();
    assert!(ask(path, "ses_a").await.unwrap().contains(needed));
    grant(&broker, "ses_child", 2, &[HOST]).unwrap();
    grant(&broker, "ses_a", 1, &[]).unwrap();
    assert_eq!(ask(path, "ses_a").await.unwrap(), "reached", "another session takes nothing away");
    assert_eq!(grant(&broker, "ses_child", 1, &[]).unwrap_err().code().as_str(), "epoch_stale");
    broker.doors.open(&key("ses_a"), &asking(), DoorStage::Open(0)).unwrap();
    drop(broker);
    let broker = start(path, host);
    assert_eq!(ask(path, "ses_a").await.unwrap(), "reached", "a broker that starts again knows it");

    grant(&broker, "ses_child", 3, &[]).unwrap();
    assert!(ask(path, "ses_a").await.unwrap().contains(needed));
    assert_eq!(grant(&broker, "ses_child", 2, &[HOST]).unwrap_err().code().as_str(), "epoch_stale");
    assert!(ask(path, "ses_a").await.unwrap().contains(needed), "a late worker opens nothing");
    let expired = Grant { epoch: 3, hosts: [HOST.to_owned()].into(), expires_at: Timestamp(1) };
    grant_until(&broker, "ses_child", expired).unwrap();
    assert!(ask(path, "ses_a").await.unwrap().contains(needed), "its time is over");
    grant(&broker, "ses_child", 3, &[HOST]).unwrap();
    assert_eq!(ask(path, "ses_a").await.unwrap(), "reached");
    // Nothing counts that the settings do not let people decide.
    broker.doors.open(&key("ses_a"), &rules(&[]), DoorStage::Open(0)).unwrap();
    assert!(ask(path, "ses_a").await.unwrap().contains("does not list it"));
    // A setup of files that start again has nothing of it, and late workers stay outside.
    broker.doors.open(&key("ses_a"), &asking(), DoorStage::Before(1)).unwrap();
    assert!(ask(path, "ses_a").await.unwrap().contains(needed));
    assert_eq!(grant(&broker, "ses_child", 2, &[HOST]).unwrap_err().code().as_str(), "epoch_stale");
    // All sessions of a tree fit, and their number is bounded.
    for number in 0..510 {
        grant(&broker, &format!("ses_{number}"), 1, &[HOST]).unwrap();
    }
    assert_eq!(grant(&broker, "ses_more", 1, &[HOST]).unwrap_err().code().as_str(), "argument_invalid");
}
