//! The doors of sessions to the network: one socket each, in a directory that only the sandbox of the session sees. Broker and sandbox service of a
//! machine share the directory of all doors:
//!
//! ```text
//! <tenant>/<session>/rules.json    what the door allows
//! <tenant>/<session>/door/socket   the door; sandboxes see the directory `door`
//! ```
//!
//! The sandbox service makes the directory `door` before it starts a sandbox, and removes that of the session with its files. Whoever of the two comes
//! first makes it. A broker that starts on the directory of another one takes its doors over.

use super::{
    door::{Door, DoorContext, make_passage},
    key::DoorKey,
    names::Names,
    proxy::{Proxy, QUOTA_BYTES},
    rules::DoorRules,
};
use crate::error::Error;
use chassis::tasks::Tasks;
use domain::ids::TenantId;
use shares::Shares;
use std::{
    collections::HashMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use store::broker::BrokerStore;
use tokio_util::sync::CancellationToken;

/// Doors of one broker, each with a socket. Beyond it: `egress_doors_too_many`.
const DOORS_MAX: usize = 10_000;
/// Connections of all sessions at the same time. One tenant gets three quarters.
const CONNECTIONS_MAX: u32 = 4_096;
/// Time after which a door closes whose session has not worked: its next turn opens it again.
const UNUSED: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Time between two looks for doors to be closed.
const SWEEP: Duration = Duration::from_secs(600);
/// The file with the rules of a door.
const RULES: &str = "rules.json";

/// All doors of a machine.
#[derive(Debug)]
pub struct Doors {
    directory: PathBuf,
    names: Arc<Names>,
    context: DoorContext,
    open: Mutex<HashMap<DoorKey, Door>>,
}

impl Doors {
    /// Opens the doors that an earlier broker opened in `directory`, and starts the task that closes unused ones. Must be called inside a runtime.
    ///
    /// # Errors
    /// If the directory cannot be made or read.
    pub fn start(
        directory: &Path,
        names: Names,
        tasks: &Tasks,
        shutdown: &CancellationToken,
    ) -> io::Result<Arc<Self>> {
        make_passage(directory)?;
        let context = DoorContext {
            journal: Arc::default(),
            places: Arc::new(Shares::three_quarters(CONNECTIONS_MAX)),
            tasks: tasks.clone(),
            shutdown: shutdown.clone(),
        };
        let (directory, names, open) = (directory.canonicalize()?, Arc::new(names), Mutex::default());
        let doors = Arc::new(Self { directory, names, context, open });
        doors.restore()?;
        let own = Arc::clone(&doors);
        tasks.spawn_loop("egress doors", move || Arc::clone(&own).sweep());
        Ok(doors)
    }

    /// Stores what sessions reach, until the service stops. One call at a time.
    pub async fn store_accesses(&self, store: &BrokerStore) {
        self.context.journal.store(store, &self.context.shutdown).await;
    }

    /// Opens the door of a session, or changes what it allows from the next connection on.
    ///
    /// # Errors
    /// `egress_list_invalid`, `egress_doors_too_many`, `internal`.
    pub fn open(&self, key: &DoorKey, rules: &DoorRules) -> Result<(), Error> {
        let lists = rules.parse()?;
        let home = self.home(key);
        make_passage(&home).map_err(Error::Door)?;
        rules.write(&home.join(RULES)).map_err(Error::Door)?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(door) = open.get(key).filter(|door| door.is_reachable(&home)) {
            door.proxy().allow(lists);
            return Ok(());
        }
        if open.len() >= DOORS_MAX && !open.contains_key(key) {
            return Err(Error::TooManyDoors);
        }
        // A door whose directory was replaced keeps its quota.
        let proxy = if let Some(door) = open.get(key) {
            door.proxy().allow(lists);
            Arc::clone(door.proxy())
        } else {
            Arc::new(Proxy::new(lists, Arc::clone(&self.names), QUOTA_BYTES))
        };
        let door = Door::open(&home, key, proxy, &self.context).map_err(Error::Door)?;
        open.insert(key.clone(), door);
        Ok(())
    }

    fn home(&self, key: &DoorKey) -> PathBuf {
        self.directory.join(key.tenant.to_string()).join(key.session.as_str())
    }

    fn restore(&self) -> io::Result<()> {
        let mut opened = 0_u64;
        for key in self.keys()? {
            let Ok(rules) = DoorRules::read(&self.home(&key).join(RULES)) else { continue };
            match self.open(&key, &rules) {
                Ok(()) => opened += 1,
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
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.retain(|key, _| {
                let rules = fs::metadata(self.home(key).join(RULES)).and_then(|file| file.modified());
                rules.is_ok_and(|at| at.elapsed().is_ok_and(|unused| unused < UNUSED))
            });
            metrics::gauge!("flotilla_broker_egress_doors")
                .set(u32::try_from(open.len()).unwrap_or(u32::MAX));
        }
    }
}
