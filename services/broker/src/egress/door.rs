//! The door of one session: three sockets, and the tasks that serve their connections.

use super::{git::door::GitDoor, journal::Journal, key::DoorKey, proxy::Proxy, secrets::SecretDoor};
use chassis::tasks::Tasks;
use domain::{egress::secrets::SECRETS_SOCKET, ids::TenantId};
use shares::{Permit, Shares};
use std::{
    fs::{self, Permissions},
    io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{net::UnixListener, sync::Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Connections of one session at the same time. Installers open more than a hundred; further ones wait in the socket, because programs do not repeat a
/// refusal.
const SESSION_CONNECTIONS_MAX: usize = 256;
/// Connections of one session to servers of git at the same time. Git opens one for each repository; further ones wait in the socket.
const SESSION_GIT_CONNECTIONS_MAX: usize = 16;
/// Connections of one session for the secrets of a script at the same time: each script makes one. Further ones wait in the socket.
const SESSION_SECRET_CONNECTIONS_MAX: usize = 2;
/// Wait for a place among the connections of all sessions, before the door asks for one again.
const PLACE_WAIT: Duration = Duration::from_secs(60);
/// Pause after a connection that could not be accepted: this process has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
pub(super) struct DoorContext {
    pub(super) journal: Arc<Journal>,
    pub(super) places: Arc<Shares<TenantId>>,
    pub(super) tasks: Tasks,
    pub(super) shutdown: CancellationToken,
}

/// What stands behind a door.
#[derive(Debug, Clone)]
pub(super) struct DoorServices {
    /// Behind `socket`.
    pub(super) proxy: Arc<Proxy>,
    /// Behind `git`.
    pub(super) git: Arc<GitDoor>,
    /// Behind `secrets`.
    pub(super) secrets: Arc<SecretDoor>,
}

/// An open door. Dropped: it is closed, and its connections are cut.
#[derive(Debug)]
pub(super) struct Door {
    services: DoorServices,
    /// The socket, by device and inode: the directory may have been replaced.
    identity: (u64, u64),
    closing: CancellationToken,
    _closes: DropGuard,
}

impl Door {
    /// Makes the sockets below `home`, in place of those that are there.
    pub(super) fn open(
        home: &Path,
        key: &DoorKey,
        services: DoorServices,
        context: &DoorContext,
    ) -> io::Result<Self> {
        let directory = directory(home);
        if !directory.is_dir() {
            fs::create_dir_all(&directory)?;
            fs::set_permissions(&directory, Permissions::from_mode(0o755))?;
        }
        let (proxy, git) = (bind(&directory, "socket")?, bind(&directory, "git")?);
        let secrets = bind(&directory, SECRETS_SOCKET)?;
        let identity = identity(&directory.join("socket"))?;
        let closing = context.shutdown.child_token();
        for (listener, service, connections_max) in [
            (proxy, Service::Proxy(Arc::clone(&services.proxy)), SESSION_CONNECTIONS_MAX),
            (git, Service::Git(Arc::clone(&services.git)), SESSION_GIT_CONNECTIONS_MAX),
            (secrets, Service::Secrets(Arc::clone(&services.secrets)), SESSION_SECRET_CONNECTIONS_MAX),
        ] {
            let connections =
                ConnectionLoop { key: key.clone(), service, connections_max, context: context.clone() };
            context.tasks.spawn_apart("egress door", connections.serve(listener, closing.clone()));
        }
        Ok(Self { services, identity, closing: closing.clone(), _closes: closing.drop_guard() })
    }

    pub(super) fn services(&self) -> &DoorServices {
        &self.services
    }

    /// Cancelled when it closes.
    pub(super) fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }

    /// Whether its socket is still the one below `home`.
    pub(super) fn is_reachable(&self, home: &Path) -> bool {
        identity(&directory(home).join("socket")).is_ok_and(|identity| identity == self.identity)
    }
}

/// Makes a socket in a directory, in place of one that is there.
fn bind(directory: &Path, name: &str) -> io::Result<UnixListener> {
    let opened = fs::File::open(directory)?;
    let socket = directory.join(name);
    match fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // The address of a socket has at most 107 bytes, fewer than the path may have.
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/{name}", opened.as_raw_fd()))?;
    // The session has another user. The directories above cannot be listed, so only a process that knows the ids of the tenant and the session finds the socket.
    fs::set_permissions(&socket, Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Makes a directory and its parents; other users may pass through it but not list it.
pub(super) fn make_passage(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        fs::create_dir_all(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o711))?;
    }
    Ok(())
}

/// The directory that the sandboxes of the session see.
pub(super) fn directory(home: &Path) -> PathBuf {
    home.join("door")
}

fn identity(socket: &Path) -> io::Result<(u64, u64)> {
    let socket = fs::symlink_metadata(socket)?;
    Ok((socket.dev(), socket.ino()))
}

/// What stands behind one socket.
#[derive(Clone)]
enum Service {
    Proxy(Arc<Proxy>),
    Git(Arc<GitDoor>),
    Secrets(Arc<SecretDoor>),
}

/// What serves the connections of a socket.
#[derive(Clone)]
struct ConnectionLoop {
    key: DoorKey,
    service: Service,
    connections_max: usize,
    context: DoorContext,
}

impl ConnectionLoop {
    async fn serve(self, listener: UnixListener, closing: CancellationToken) {
        let places = Arc::new(Semaphore::new(self.connections_max));
        while let Some(own) = closing.run_until_cancelled(Arc::clone(&places).acquire_owned()).await {
            let Some(accepted) = closing.run_until_cancelled(listener.accept()).await else { return };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            // One connection of a door waits here; the others wait in the queue of its socket, where they cost no descriptor.
            let Some(place) = closing.run_until_cancelled(self.place()).await else { return };
            let (connections, closing) = (self.clone(), closing.clone());
            self.context.tasks.spawn_apart("egress connection", async move {
                let journal = &connections.context.journal;
                match &connections.service {
                    Service::Proxy(proxy) => {
                        let access = proxy.serve(stream, &closing).await;
                        journal.note(&connections.key, &access);
                    }
                    Service::Git(git) => git.serve(stream, journal, &closing).await,
                    Service::Secrets(secrets) => secrets.serve(stream, &closing).await,
                }
                drop((own, place));
            });
        }
    }

    /// A place among the connections of all sessions.
    async fn place(&self) -> Permit {
        loop {
            if let Ok(place) = self.context.places.acquire(self.key.tenant, PLACE_WAIT).await {
                return place;
            }
        }
    }
}
