//! The doors of sessions to the network: three sockets each, in a directory that only the sandbox of the session sees. Broker and sandbox service of a
//! machine share the directory of all doors:
//!
//! ```text
//! <tenant>/<session>/rules.json       what the door allows
//! <tenant>/<session>/door/socket      the proxy; sandboxes see the directory `door`
//! <tenant>/<session>/door/git         the door to the servers of git
//! <tenant>/<session>/door/secrets     the secrets of a setup or an install, while one may run
//! <tenant>/<session>/door/gitconfig   what leads git there
//! ```
//!
//! Whichever of the two needs the directory `door` first creates it. The sandbox service removes the directory of a session with its files. A broker that
//! starts on the directory of an earlier one takes its doors over. Two brokers at a time would take the sockets from each other, and would each know a part of what
//! a session reached, so the second one does not start.

use super::{
    clock::now,
    door::{self, Door, DoorContext, DoorServices, make_passage},
    error::EgressError,
    git::{door::GitDoor, rules::GitAccess, servers::GitServers},
    key::DoorKey,
    pages::reader::{Page, PageDoor, PageRequest, Pages},
    proxy::{Proxy, QUOTA_BYTES},
    rules::{self, DoorRules, DoorStage, Grant, Grants},
    secrets::{SecretAccess, SecretDoor},
};
use crate::{directory, outside::names::Names};
use chassis::tasks::Tasks;
use domain::{
    egress::{allow::AllowLists, git::client_configuration},
    ids::{SessionId, TenantId},
};
use shares::Shares;
use std::{
    collections::HashMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use store::broker::BrokerStore;
use tokio_util::sync::CancellationToken;

/// Doors of one broker, each with three sockets; one tenant gets three quarters. Beyond it: `egress_doors_too_many`.
const DOORS_MAX: u32 = 10_000;
/// Connections of all sessions at the same time, each with two descriptors; one tenant gets three quarters. Further ones wait.
const CONNECTIONS_MAX: u32 = 4_096;
const SOCKETS: u32 = 3;
/// Longest wait for connections to end when the service stops.
const CLOSING: Duration = Duration::from_secs(2);
/// Time after which a door closes whose session has not worked: its next turn opens it again.
const UNUSED: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Time between two looks for doors to be closed.
const SWEEP: Duration = Duration::from_secs(600);
/// The file with the rules of a door.
const RULES: &str = "rules.json";
/// The file that leads git to the door, next to the sockets.
const GIT_CONFIGURATION: &str = "gitconfig";

/// All doors of a machine.
#[derive(Debug)]
pub struct Doors {
    directory: PathBuf,
    names: Arc<Names>,
    servers: Arc<GitServers>,
    context: DoorContext,
    pages: Pages,
    doors_max: u32,
    open: Mutex<HashMap<DoorKey, Door>>,
}

impl Doors {
    /// Opens the doors that an earlier broker opened in `directory`, and starts the task that closes unused ones. Must be called inside a runtime.
    ///
    /// # Errors
    /// If the directory cannot be made or read.
    pub fn start(
        directory: &Path,
        names: Arc<Names>,
        servers: Arc<GitServers>,
        tasks: &Tasks,
        shutdown: &CancellationToken,
    ) -> io::Result<Arc<Self>> {
        make_passage(directory)?;
        check_writable(directory)?;
        // Each socket of a door has at times a connection that waits for a place, and a connection has two ends.
        let wanted = 2 * (SOCKETS * DOORS_MAX + CONNECTIONS_MAX) as usize;
        let afforded = chassis::port::afford(wanted);
        let part = |count: u32| u32::try_from(count as usize * afforded / wanted).unwrap_or(count);
        let context = DoorContext {
            journal: Arc::default(),
            places: Arc::new(Shares::three_quarters(part(CONNECTIONS_MAX))),
            tasks: tasks.clone(),
            shutdown: shutdown.clone(),
        };
        let pages = Pages::new(Arc::clone(&names), Arc::clone(&context.journal)).map_err(io::Error::other)?;
        let (directory, doors_max) = (directory.canonicalize()?, part(DOORS_MAX));
        let open = Mutex::default();
        let doors = Arc::new(Self { directory, names, servers, context, pages, doors_max, open });
        doors.restore()?;
        let own = Arc::clone(&doors);
        tasks.spawn_loop("egress doors", move || Arc::clone(&own).sweep());
        Ok(doors)
    }

    /// Waits until the connections have ended, and stores the rest of what sessions reached. Call it when the service stops.
    pub async fn close(&self, store: &BrokerStore) {
        let ended = async { tokio::join!(self.context.places.all_free(), self.pages.all_ended()) };
        drop(tokio::time::timeout(CLOSING, ended).await);
        self.context.journal.flush(store).await;
    }

    /// Stores what sessions reach, until the service stops. One call at a time.
    pub async fn store_accesses(&self, store: &BrokerStore) {
        self.context.journal.store(store, &self.context.shutdown).await;
    }

    /// Stores what a session reached until now.
    ///
    /// # Errors
    /// `store_unavailable`, `internal`.
    ///
    /// Dropped midway: what has begun to be stored is stored.
    pub async fn store_session_accesses(
        &self,
        store: &BrokerStore,
        key: &DoorKey,
    ) -> Result<(), EgressError> {
        let (journal, store, key) = (Arc::clone(&self.context.journal), store.clone(), key.clone());
        // Callers that leave while they wait start no task.
        let turn = journal.storing_turn().await;
        let storing = async move { journal.store_session(&store, &key, turn).await };
        // After a panic, which is logged, the rows are lost, as after an error of Postgres.
        let stored = self.context.tasks.run("egress rows", storing).await;
        stored.unwrap_or(Ok(())).map_err(EgressError::Journal)
    }

    /// Opens the door of a session, or changes what it allows from the next connection on. `stage` says for what.
    ///
    /// # Errors
    /// `egress_list_invalid`, `git_prefix_invalid`, `secret_name_invalid`, `egress_sealed`, `egress_doors_too_many`, `internal`.
    pub fn open(&self, key: &DoorKey, rules: &DoorRules, stage: DoorStage) -> Result<(), EgressError> {
        let home = self.home(key);
        let file = home.join(RULES);
        // Held while the file is written: file and door never differ.
        let mut open = self.lock();
        // A door that never had rules has no file.
        let rules = rules.clone().after(DoorRules::read(&file).ok(), stage)?;
        let access = DoorAccess::parse(&rules)?;
        self.check_room(&open, key)?;
        make_passage(&home).map_err(EgressError::Door)?;
        rules.write(&file).map_err(EgressError::Door)?;
        self.apply(&mut open, key, access)
    }

    /// Opens the hosts that people have allowed in a session, until they expire.
    ///
    /// # Errors
    /// `egress_unavailable`: the door is closed; `epoch_stale`, `argument_invalid`, `internal`.
    pub fn grant(&self, key: &DoorKey, session: SessionId, grant: Grant) -> Result<(), EgressError> {
        let file = self.home(key).join(RULES);
        // Held while the file is written, as in `open`.
        let open = self.lock();
        let door = open.get(key).ok_or(EgressError::DoorClosed)?;
        let mut rules = DoorRules::read(&file).map_err(EgressError::Door)?;
        rules.grants.set(session, grant, now())?;
        rules.write(&file).map_err(EgressError::Door)?;
        door.services().proxy.grant(rules.grants);
        Ok(())
    }

    /// Reads a page under the rules of a door.
    ///
    /// # Errors
    /// `egress_unavailable`: the door is closed; those of a page.
    ///
    /// Dropped midway: the connection is closed.
    pub async fn read_page(&self, key: &DoorKey, request: &PageRequest) -> Result<Page, EgressError> {
        let door = self.lock().get(key).map(|door| PageDoor {
            key: key.clone(),
            proxy: Arc::clone(&door.services().proxy),
            closing: door.closing(),
        });
        Ok(self.pages.read(door.ok_or(EgressError::DoorClosed)?, request).await?)
    }

    /// Refuses another door than those that are open, if there are too many.
    fn check_room(&self, open: &HashMap<DoorKey, Door>, key: &DoorKey) -> Result<(), EgressError> {
        if open.contains_key(key) {
            return Ok(());
        }
        let own = open.keys().filter(|other| other.tenant == key.tenant).count();
        let each_max = shares::three_quarters(self.doors_max);
        if open.len() >= self.doors_max as usize || own >= each_max as usize {
            return Err(EgressError::TooManyDoors);
        }
        Ok(())
    }

    /// Makes a door allow what its rules say, and opens it if it is closed.
    fn apply(
        &self,
        open: &mut HashMap<DoorKey, Door>,
        key: &DoorKey,
        access: DoorAccess,
    ) -> Result<(), EgressError> {
        let DoorAccess { lists, grants, git, secrets } = access;
        let (home, known) = (self.home(key), open.get(key));
        // A door whose directory was replaced keeps its quota.
        let services = known.map_or_else(|| self.services(key), |door| door.services().clone());
        let configuration = client_configuration(git.prefixes());
        services.proxy.allow(lists);
        services.proxy.grant(grants);
        services.git.allow(git);
        services.secrets.allow(secrets);
        if !known.is_some_and(|door| door.is_reachable(&home)) {
            let door = Door::open(&home, key, services, &self.context).map_err(EgressError::Door)?;
            open.insert(key.clone(), door);
        }
        let file = door::directory(&home).join(GIT_CONFIGURATION);
        // The session has another user.
        rules::replace(&file, configuration.as_bytes(), 0o644).map_err(EgressError::Door)
    }

    /// What stands behind a new door: it allows nothing yet.
    fn services(&self, key: &DoorKey) -> DoorServices {
        let nothing = AllowLists::default();
        let proxy = Arc::new(Proxy::new(key.tenant, nothing, Arc::clone(&self.names), QUOTA_BYTES));
        let git = Arc::new(GitDoor::new(key.clone(), Arc::clone(&self.servers), proxy.quota()));
        let secrets = Arc::new(SecretDoor::new(key.clone(), Arc::clone(&self.servers.credentials.vault)));
        DoorServices { proxy, git, secrets }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<DoorKey, Door>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn home(&self, key: &DoorKey) -> PathBuf {
        self.directory.join(key.tenant.to_string()).join(key.session.as_str())
    }

    fn restore(&self) -> io::Result<()> {
        let mut opened = 0_u64;
        for key in self.keys()? {
            let home = self.home(&key);
            if is_unused(&home) {
                drop(fs::remove_dir_all(&home));
                continue;
            }
            match self.reopen(&key, &home) {
                Ok(()) => opened += 1,
                // The sandbox service made the directory, and nobody has opened the door yet.
                Err(EgressError::Door(error)) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, session.id = %key.session, "a door to the network stays closed");
                }
            }
        }
        if opened > 0 {
            tracing::info!(opened, "opened the doors to the network that were open before");
        }
        Ok(())
    }

    /// Opens a door with the rules of its file.
    fn reopen(&self, key: &DoorKey, home: &Path) -> Result<(), EgressError> {
        let rules = DoorRules::read(&home.join(RULES)).map_err(EgressError::Door)?;
        let (access, mut open) = (DoorAccess::parse(&rules)?, self.lock());
        self.check_room(&open, key)?;
        self.apply(&mut open, key, access)
    }

    /// The sessions that have a directory.
    fn keys(&self) -> io::Result<Vec<DoorKey>> {
        let names = |path: &Path| -> io::Result<Vec<OsString>> {
            fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect()
        };
        let mut keys = vec![];
        for tenant in names(&self.directory)? {
            let Some(id) = tenant.to_str().and_then(|name| name.parse::<TenantId>().ok()) else { continue };
            for session in names(&self.directory.join(&tenant)).unwrap_or_default() {
                let session = session.to_str().and_then(|name| name.parse().ok());
                keys.extend(session.map(|session| DoorKey { tenant: id, session }));
            }
        }
        Ok(keys)
    }

    /// Closes the doors of sessions that are gone or have not worked for long.
    async fn sweep(self: Arc<Self>) {
        while self.context.shutdown.run_until_cancelled(tokio::time::sleep(SWEEP)).await.is_some() {
            let keys: Vec<DoorKey> = self.lock().keys().cloned().collect();
            let unused: Vec<DoorKey> = keys.into_iter().filter(|key| is_unused(&self.home(key))).collect();
            let mut open = self.lock();
            for key in unused {
                open.remove(&key);
                drop(fs::remove_dir_all(self.home(&key)));
            }
            metrics::gauge!("flotilla_broker_egress_doors")
                .set(u32::try_from(open.len()).unwrap_or(u32::MAX));
        }
    }
}

/// Makes the directory of all doors, and locks it until the returned file is dropped. Waits for a broker that ends.
///
/// # Errors
/// Another broker uses it; it cannot be made or written.
pub async fn lock(directory: &Path) -> io::Result<fs::File> {
    make_passage(directory)?;
    check_writable(directory)?;
    directory::lock(directory).await
}

/// What the services of a door allow.
struct DoorAccess {
    lists: AllowLists,
    grants: Grants,
    git: GitAccess,
    secrets: SecretAccess,
}

impl DoorAccess {
    /// Reads rules.
    ///
    /// # Errors
    /// By the first wrong one.
    fn parse(rules: &DoorRules) -> Result<Self, EgressError> {
        let (lists, git) = (rules.parse()?, rules.git.parse()?);
        let secrets = SecretAccess::parse(git.project().cloned(), &rules.secrets)?;
        Ok(Self { lists, grants: rules.grants.clone(), git, secrets })
    }
}

/// Whether the session of this directory is gone, or has not worked for long. A clock that was set back proves nothing.
fn is_unused(home: &Path) -> bool {
    match fs::metadata(home.join(RULES)).and_then(|file| file.modified()) {
        Ok(at) => at.elapsed().unwrap_or_default() >= UNUSED,
        Err(_) => !home.join("door").is_dir(),
    }
}

/// Checks that this process may make doors, before the first session needs one.
fn check_writable(directory: &Path) -> io::Result<()> {
    let probe = directory.join(".probe");
    fs::write(&probe, "").and_then(|()| fs::remove_file(&probe)).map_err(|error| {
        let text = format!("{} must belong to the user of the broker: {error}", directory.display());
        io::Error::new(error.kind(), text)
    })
}
