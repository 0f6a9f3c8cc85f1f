//! The arrival of a layer: its bytes go straight into `flotilla-unpack`, which fills a directory next to the layers and compares both digests.
//! The blob itself is not kept. Whatever goes wrong, the directory is removed: by this process, or by its successor at the start.

use super::{
    blob::Blob,
    digest::Digest,
    layer::LayerName,
    store::{Record, Store},
};
use crate::{
    code::of_layer,
    error::{Error, blocking},
    isolation::unpack::{self, UnpackSpec},
    layout,
};
use chassis::tasks::Tasks;
use domain::ids::TenantId;
use futures::{Stream, StreamExt as _};
use rpc::v1::ErrorCode;
use serde::Deserialize;
use shares::Shares;
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStdin},
};

/// Layers that are unpacked at once; each takes a processor if its sender is quick, and none while it waits for a slow one. Further ones wait.
const UNPACKS_MAX: u32 = 8;
/// Those of one tenant. Further ones wait.
const UNPACKS_TENANT_MAX: usize = 2;
/// Longest wait for the next bytes of a layer. Beyond it: `caller_left`.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Longest time that one layer may take, with the wait for its turn; ten GiB take three minutes on an idle machine. Beyond it: `layer_too_slow`.
const ARRIVAL_MAX: Duration = Duration::from_secs(20 * 60);
/// Pause between two looks at the free space while a layer is unpacked.
const DISK_PAUSE: Duration = Duration::from_millis(250);
/// Attempts to remove the directory of a program that is being killed and may still write.
const REMOVE_TRIES: u32 = 100;
const REMOVE_PAUSE: Duration = Duration::from_millis(20);
/// Bytes of the program's result. The rest is not read.
const RESULT_BYTES_MAX: u64 = 64 * 1024;

/// The layers that are on their way.
#[derive(Debug)]
pub struct Arrivals {
    store: Arc<Store>,
    /// Each layer of a tenant is unpacked by one call at a time.
    flights: Mutex<HashMap<FlightKey, Weak<tokio::sync::Mutex<()>>>>,
    unpacks: Shares<Option<TenantId>>,
}

/// Tenants do not wait for each other, also if they send the same layer: one of them may send it slowly.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FlightKey {
    /// `None`: its sender does not say for which one.
    tenant: Option<TenantId>,
    layer: Digest,
}

/// The last line of the program.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Unpacked(Record),
    Refused { code: String, message: String },
}

impl Arrivals {
    /// Arrivals into `store`.
    pub fn new(store: Arc<Store>) -> Self {
        Self { store, flights: Mutex::default(), unpacks: Shares::new(UNPACKS_MAX, UNPACKS_TENANT_MAX) }
    }

    /// Takes a layer in, unless the machine has it. Returns whether it was taken in. A proof is unpacked in any case, and thrown away if the layer is
    /// there.
    ///
    /// # Errors
    /// `images_unsupported`, `images_full`, `disk_full`, `caller_left`, `layer_too_slow`; the reasons of `flotilla-unpack`, which begin with
    /// `layer_`.
    ///
    /// Dropped midway: the layer is there whole or not at all.
    pub async fn take(
        &self,
        tenant: Option<TenantId>,
        blob: &Blob,
        bytes: impl Stream<Item = Result<Vec<u8>, Error>> + Unpin,
    ) -> Result<bool, Error> {
        self.store.require_support()?;
        let taken = tokio::time::timeout(ARRIVAL_MAX, self.take_in_turn(tenant, blob, bytes)).await;
        taken.unwrap_or_else(|_| Err(too_slow()))
    }

    async fn take_in_turn(
        &self,
        tenant: Option<TenantId>,
        blob: &Blob,
        bytes: impl Stream<Item = Result<Vec<u8>, Error>> + Unpin,
    ) -> Result<bool, Error> {
        let flight = self.flight(FlightKey { tenant, layer: blob.diff_id.clone() });
        let _flight = flight.lock().await;
        let is_there = self.store.has(&LayerName::Image(blob.diff_id.clone()));
        if is_there && !blob.is_proof {
            return Ok(false);
        }
        let _permit = self.unpacks.acquire(tenant, ARRIVAL_MAX).await.map_err(|_| too_slow())?;
        self.unpack(tenant, blob, bytes).await?;
        Ok(!is_there)
    }

    async fn unpack(
        &self,
        tenant: Option<TenantId>,
        blob: &Blob,
        bytes: impl Stream<Item = Result<Vec<u8>, Error>> + Unpin,
    ) -> Result<(), Error> {
        self.store.spec.quota.host.check()?;
        let store = Arc::clone(&self.store);
        let arrival = blocking("make the directory of a layer", move || Arrival::make(&store)).await?;
        let record = match self.fill(&arrival, blob, bytes).await {
            Ok(record) => Record { tenant, ..record },
            Err(error) => {
                arrival.remove().await;
                return Err(error);
            }
        };
        let layer = LayerName::Image(blob.diff_id.clone());
        if self.store.has(&layer) {
            arrival.remove().await;
            return Ok(());
        }
        let store = Arc::clone(&self.store);
        arrival.keep("settle a layer", move |place| store.settle(place, &layer, record)).await
    }

    /// Unpacks the bytes into the directory of `arrival`.
    async fn fill(
        &self,
        arrival: &Arrival,
        blob: &Blob,
        bytes: impl Stream<Item = Result<Vec<u8>, Error>> + Unpin,
    ) -> Result<Record, Error> {
        let (store, tree) = (Arc::clone(&self.store), Store::tree(arrival.path()));
        let arguments = vec![
            format!("--digest={}", blob.digest.hex()),
            format!("--diff-id={}", blob.diff_id.hex()),
            format!("--compression={}", blob.compression),
        ];
        let start = move || {
            let spec = &store.spec;
            unpack::start(UnpackSpec {
                program: &spec.unpack,
                directory: &tree,
                owner: spec.owner,
                arguments,
            })
        };
        let mut child = blocking("start the program that unpacks layers", start).await?;
        let record = tokio::select! {
            record = run(&mut child, bytes) => record,
            error = self.watch_disk() => Err(error),
        };
        if record.is_err() {
            // It must not write any more when the directory is removed.
            drop(child.kill().await);
        }
        record
    }

    /// Returns when the machine has too little space to go on.
    async fn watch_disk(&self) -> Error {
        loop {
            tokio::time::sleep(DISK_PAUSE).await;
            if let Err(error) = self.store.spec.quota.host.check() {
                return error;
            }
        }
    }

    fn flight(&self, key: FlightKey) -> Arc<tokio::sync::Mutex<()>> {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = flights.get(&key).and_then(Weak::upgrade) {
            return flight;
        }
        flights.retain(|_, flight| flight.strong_count() > 0);
        let flight = Arc::default();
        flights.insert(key, Arc::downgrade(&flight));
        flight
    }
}

fn too_slow() -> Error {
    Error::refused(ErrorCode::LayerTooSlow, "the layer took too long to arrive; send it again")
}

/// Feeds the program and reads its result.
async fn run(
    child: &mut Child,
    bytes: impl Stream<Item = Result<Vec<u8>, Error>> + Unpin,
) -> Result<Record, Error> {
    let pipes = child.stdin.take().zip(child.stdout.take());
    let (input, output) =
        pipes.ok_or_else(|| io::Error::other("no pipes")).map_err(Error::io("unpack a layer"))?;
    let mut line = Vec::new();
    let mut output = output.take(RESULT_BYTES_MAX);
    let result = output.read_to_end(&mut line);
    let feeding = feed(input, bytes);
    tokio::pin!(result, feeding);
    // A program that refuses a layer does not wait for the rest of it.
    tokio::select! {
        fed = &mut feeding => {
            fed?;
            result.await.map_err(Error::io("unpack a layer"))?;
        }
        read = &mut result => drop(read.map_err(Error::io("unpack a layer"))?),
    }
    drop(child.wait().await);
    let outcome = serde_json::from_slice(&line).map_err(io::Error::other);
    match outcome.map_err(Error::io("unpack a layer"))? {
        Outcome::Unpacked(record) => Ok(record),
        Outcome::Refused { code, message } => Err(Error::refused(of_layer(&code), message)),
    }
}

/// Writes the bytes of a layer to the program, and closes its input.
async fn feed(
    mut input: ChildStdin,
    mut bytes: impl Stream<Item = Result<Vec<u8>, Error>> + Unpin,
) -> Result<(), Error> {
    let silent = |_| Error::refused(ErrorCode::CallerLeft, "the bytes of the layer stopped to arrive");
    while let Some(piece) = tokio::time::timeout(SILENCE_MAX, bytes.next()).await.map_err(silent)? {
        match input.write_all(&piece?).await {
            // The program has ended; its result says why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(Error::io("unpack a layer"))?,
        }
    }
    Ok(())
}

/// The directory of a layer on its way, or of a build. Removed by [`Arrival::remove`], and by a task when it is dropped.
#[derive(Debug)]
pub struct Arrival {
    path: PathBuf,
    /// `None` once it is removed.
    tasks: Option<Tasks>,
}

impl Arrival {
    /// Makes the directory, whose tree belongs to the owner of layers.
    pub fn make(store: &Store) -> io::Result<Self> {
        let spec = &store.spec;
        let path = spec.layout.arrivals().join(uuid::Uuid::now_v7().simple().to_string());
        let arrival = Self { path, tasks: Some(spec.tasks.clone()) };
        layout::make_passage(&arrival.path)?;
        let tree = Store::tree(&arrival.path);
        std::fs::create_dir(&tree)?;
        std::fs::set_permissions(&tree, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        if let Some(owner) = spec.owner {
            std::os::unix::fs::chown(&tree, Some(owner), Some(owner))?;
        }
        Ok(arrival)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has `keep` move what is in it into the store, and removes what is left of it.
    ///
    /// # Errors
    /// Those of `keep`. Nothing is left then either.
    ///
    /// Dropped midway: `keep` goes on, so the ledger and the disk agree.
    pub async fn keep(
        self,
        doing: &'static str,
        keep: impl FnOnce(&Path) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let work = move || {
            let kept = keep(self.path());
            Ok((self, kept))
        };
        let (arrival, kept) = blocking(doing, work).await?;
        // Where it succeeded, there is nothing left to remove.
        arrival.remove().await;
        kept
    }

    /// Removes what is there of it.
    pub async fn remove(mut self) {
        remove(std::mem::take(&mut self.path)).await;
        self.tasks = None;
    }
}

async fn remove(path: PathBuf) {
    for _ in 0..REMOVE_TRIES {
        match tokio::fs::remove_dir_all(&path).await {
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(_) => tokio::time::sleep(REMOVE_PAUSE).await,
        }
    }
    tracing::warn!("a layer that did not arrive takes space until the next start");
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let Some(tasks) = self.tasks.take() else { return };
        let path = std::mem::take(&mut self.path);
        tasks.spawn("arrival", remove(path));
    }
}
