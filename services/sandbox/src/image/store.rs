//! The layers on the disk of this machine. Each has a directory of its own that all sessions share; a rename puts it in place, so a layer is
//! there whole or not at all. A layer that a workspace uses stays; of the others, those of the tenant that has most make room for new ones.

use super::{
    layer::{EnvironmentLayerName, LayerName, layers_on_disk},
    ledger::{Ledger, StoredLayer},
    manifest::Manifest,
    skeletons,
};
use crate::{
    disk::{
        shared_space::{self, Newcomer, NoRoom},
        workspace::Quota,
    },
    error::Error,
    isolation::root::image::{BuildRoot, ImageRoot, Overlay, Root, UPPER, WORK},
    layout::{self, Layout},
};
use chassis::{lock, tasks::Tasks};
use domain::ids::TenantId;
use rpc::v1::ErrorCode;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::SystemTime,
};

/// The content of a layer, in its directory. A build writes there.
const TREE: &str = UPPER;
/// The record of a layer, next to its content. Its modification time is when a call last asked for the layer.
const RECORD: &str = "record.json";
/// What each entry of a layer takes in addition to its content, at most: a block of a directory, or an inode. Bytes.
const ENTRY_BYTES: u64 = 4096;

/// What the store needs of the service.
#[derive(Debug)]
pub struct StoreSpec {
    pub layout: Layout,
    /// The program that unpacks layers.
    pub unpack: PathBuf,
    /// The user that owns layers; `None`: the service's own.
    pub owner: Option<u32>,
    /// What joins layers. Where nothing can, the store takes no layer.
    pub overlay: Overlay,
    /// What all layers together may take; bytes.
    pub bytes_max: u64,
    pub quota: Arc<Quota>,
    /// They remove what is left of a layer that did not arrive.
    pub tasks: Tasks,
}

/// The layers of this machine.
#[derive(Debug)]
pub struct Store {
    pub(super) spec: StoreSpec,
    ledger: Mutex<Ledger>,
    /// Held while a skeleton is made.
    skeletons: Mutex<()>,
}

/// `record.json`: `{"bytes":311000000,"entries":7755,"tenant":"0198…"}`.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Record {
    /// Bytes of all files.
    pub bytes: u64,
    pub entries: u64,
    /// The tenant that brought the layer of an image, whose share of the machine it takes. Layers of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
}

/// The use of an image by a workspace that is being made. Dropping it ends the use, unless it was kept.
#[derive(Debug)]
pub struct Pin {
    store: Arc<Store>,
    image: Manifest,
    is_kept: bool,
}

impl Store {
    /// Loads the layers from the disk. `used` are the images of all workspaces. Blocks.
    pub fn load(spec: StoreSpec, used: &[Manifest]) -> io::Result<Self> {
        let mut ledger = Ledger::default();
        used.iter().filter(|image| !image.is_empty()).for_each(|image| ledger.pin(image));
        for (layer, path) in layers_on_disk(&spec.layout)? {
            match StoredLayer::read(&layer, &path.join(RECORD)) {
                Ok(stored) => ledger.add(layer, stored),
                Err(error) => {
                    tracing::warn!(%error, "the record of layer {layer} cannot be read; the layer counts as missing")
                }
            }
        }
        let store = Self { spec, ledger: Mutex::new(ledger), skeletons: Mutex::default() };
        store.report();
        Ok(store)
    }

    /// Refuses images on a machine that cannot join layers.
    ///
    /// # Errors
    /// `images_unsupported`.
    pub fn require_support(&self) -> Result<(), Error> {
        match &self.spec.overlay {
            Overlay::Unsupported(reason) => {
                let text = format!("this machine cannot run images: {reason}");
                Err(Error::refused(ErrorCode::ImagesUnsupported, text))
            }
            Overlay::Launcher | Overlay::Bubblewrap => Ok(()),
        }
    }

    /// Lists the layers of an image that the machine does not have. The others count as used now. Blocks.
    pub fn missing(&self, image: &Manifest) -> Vec<LayerName> {
        let now = SystemTime::now();
        let missing = self.ledger().missing(image, now);
        self.remember_use(image.layers().iter().filter(|layer| !missing.contains(layer)), now);
        missing
    }

    /// Keeps the layers of an image for a workspace. Blocks.
    ///
    /// # Errors
    /// `images_unsupported`; `layers_missing` with the digests of the missing layers; `environment_missing`.
    pub fn pin(self: &Arc<Self>, image: &Manifest) -> Result<Pin, Error> {
        if !image.is_empty() {
            self.require_support()?;
            let now = SystemTime::now();
            let mut ledger = self.ledger();
            let missing = ledger.missing(image, now);
            if !missing.is_empty() {
                return Err(layers_missing(&missing));
            }
            ledger.pin(image);
            drop(ledger);
            self.remember_use(image.layers(), now);
        }
        Ok(Pin { store: Arc::clone(self), image: image.clone(), is_kept: false })
    }

    /// Ends the use of an image by a workspace that is gone. Blocks.
    pub fn unpin(&self, image: &Manifest) {
        if image.is_empty() || !self.ledger().unpin(image) {
            return;
        }
        let _making = lock(&self.skeletons);
        if let Err(error) = layout::remove_directory(&self.skeleton(image)) {
            tracing::warn!(%error, "the skeleton of an image stays until the next start");
        }
    }

    /// Gives what a sandbox sees at `/` with an image. The caller's workspace keeps the layers.
    ///
    /// # Errors
    /// `images_unsupported`, `layers_missing`; those of the file system.
    pub async fn root(self: &Arc<Self>, image: &Manifest) -> Result<Root, Error> {
        if image.is_empty() {
            return Ok(Root::Host);
        }
        self.require_support()?;
        let (store, image) = (Arc::clone(self), image.clone());
        let root = tokio::task::spawn_blocking(move || store.image_root(&image)).await;
        root.unwrap_or_else(|error| Err(Error::io("find the layers of an image")(io::Error::other(error))))
            .map(Root::Image)
    }

    /// Gives what a build sees at `/`, which changes the tree below `arrival`. Blocks.
    ///
    /// # Errors
    /// As [`Store::root`].
    pub(super) fn build_root(&self, image: &Manifest, arrival: &Path) -> Result<Root, Error> {
        let ImageRoot { layers } = self.image_root(image)?;
        Ok(Root::Build(BuildRoot { layers, directory: arrival.to_owned() }))
    }

    /// The environment layers of a tenant that the machine has: what each takes, and its last use.
    pub(super) fn environment_layers(&self, tenant: TenantId) -> HashMap<EnvironmentLayerName, StoredLayer> {
        self.ledger().environment_layers(tenant)
    }

    /// Removes an environment layer, if the machine has it. Blocks.
    ///
    /// # Errors
    /// `environment_in_use`; those of the file system.
    pub(super) fn remove_environment_layer(&self, name: &EnvironmentLayerName) -> Result<(), Error> {
        let layer = LayerName::Environment(name.clone());
        let mut ledger = self.ledger();
        if ledger.is_used(&layer) {
            let text = "the files of a session use this environment; delete the sessions that have it first";
            return Err(Error::refused(ErrorCode::EnvironmentInUse, text));
        }
        let removed = self.take_out(&mut ledger, &layer).map_err(Error::io("remove an environment"))?;
        drop(ledger);
        self.report();
        remove_all(removed);
        Ok(())
    }

    /// Removes the environment layers that no workspace uses, and that none has used since `since`. Blocks.
    pub fn forget_environments(&self, since: SystemTime) -> io::Result<()> {
        let mut ledger = self.ledger();
        let removed = ledger.unused_environment_layers(since);
        let removed: Vec<Option<PathBuf>> =
            removed.iter().map(|layer| self.take_out(&mut ledger, layer)).collect::<io::Result<_>>()?;
        drop(ledger);
        self.report();
        remove_all(removed.into_iter().flatten());
        Ok(())
    }

    /// Removes all environment layers of a tenant without workspaces. Blocks.
    pub(super) fn close_tenant(&self, tenant: TenantId) -> io::Result<()> {
        let mut ledger = self.ledger();
        let names = ledger.environment_layers(tenant).into_keys();
        names.for_each(|name| ledger.take_out(&LayerName::Environment(name)));
        ledger.release(tenant);
        layout::remove_directory(&self.spec.layout.environments().join(tenant.to_string()))?;
        drop(ledger);
        self.report();
        Ok(())
    }

    /// Takes a layer out of the ledger and of its place; the caller removes what is returned.
    fn take_out(&self, ledger: &mut Ledger, layer: &LayerName) -> io::Result<Option<PathBuf>> {
        ledger.take_out(layer);
        if !self.layer(layer).exists() {
            return Ok(None);
        }
        self.discard(layer).map(Some)
    }

    fn image_root(&self, image: &Manifest) -> Result<ImageRoot, Error> {
        let missing = self.missing(image);
        if !missing.is_empty() {
            return Err(layers_missing(&missing));
        }
        let mut layers: Vec<PathBuf> =
            image.layers().iter().map(|layer| self.layer(layer).join(TREE)).collect();
        let skeleton = self.skeleton(image);
        // The caller's workspace keeps the skeleton. A start that finds it does not wait for starts that make other skeletons.
        if !skeleton.is_dir() {
            self.make_skeleton(&skeleton, &layers)?;
        }
        layers.push(skeleton);
        Ok(ImageRoot { layers })
    }

    fn make_skeleton(&self, skeleton: &Path, layers: &[PathBuf]) -> Result<(), Error> {
        let _making = lock(&self.skeletons);
        if !skeleton.is_dir() {
            let made = || {
                let temporary = self.spec.layout.arrivals().join(uuid::Uuid::now_v7().simple().to_string());
                fs::create_dir(&temporary)?;
                skeletons::write(&temporary, layers, self.spec.owner)?;
                fs::rename(&temporary, skeleton)
            };
            made().map_err(Error::io("make the skeleton of an image"))?;
        }
        Ok(())
    }

    /// Whether the machine has a layer, which counts as used now.
    pub fn has(&self, layer: &LayerName) -> bool {
        let now = SystemTime::now();
        let is_here = self.ledger().touch(layer, now);
        if is_here {
            self.remember_use([layer], now);
        }
        is_here
    }

    /// Keeps an environment layer for as long as its files are read, and gives where they are. `None`: the machine lacks it.
    pub fn hold(self: &Arc<Self>, name: &EnvironmentLayerName) -> Option<(Pin, PathBuf)> {
        let (layer, image) = (LayerName::Environment(name.clone()), Manifest::default().with(name.clone()));
        let now = SystemTime::now();
        let mut ledger = self.ledger();
        if !ledger.touch(&layer, now) {
            return None;
        }
        ledger.pin(&image);
        drop(ledger);
        self.remember_use([&layer], now);
        Some((Pin { store: Arc::clone(self), image, is_kept: false }, self.layer(&layer).join(TREE)))
    }

    /// Puts a layer that was unpacked or built in `arrival` in its place. Blocks.
    ///
    /// # Errors
    /// `images_full`; those of the file system.
    pub fn settle(&self, arrival: &Path, layer: &LayerName, record: Record) -> Result<(), Error> {
        let written = || {
            layout::replace(&arrival.join(RECORD), &serde_json::to_vec(&record)?)?;
            // A crash of the machine after the rename must not leave a layer without its content.
            Ok(rustix::fs::syncfs(fs::File::open(arrival)?)?)
        };
        written().map_err(Error::io("write a layer"))?;
        let now = SystemTime::now();
        let mut ledger = self.ledger();
        if ledger.touch(layer, now) {
            // A call for another tenant was quicker, or an earlier caller left meanwhile. Sessions may already use that layer.
            drop(ledger);
            self.remember_use([layer], now);
            return Ok(());
        }
        let stored = StoredLayer::of(layer, record, now);
        let new = Newcomer { tenant: stored.tenant, bytes: stored.bytes };
        let leaving = ledger.make_room(new, self.spec.bytes_max).map_err(|reason| self.full(reason))?;
        let removed = leaving.iter().map(|victim| self.discard(victim)).collect::<io::Result<Vec<_>>>();
        let removed = removed.map_err(Error::io("remove a layer"))?;
        if self.layer(layer).exists() {
            // Its record could not be read.
            drop(self.discard(layer));
        }
        let moved = || {
            let place = self.layer(layer);
            place.parent().map_or(Ok(()), layout::make_passage)?;
            fs::rename(arrival, place)
        };
        moved().map_err(Error::io("move a layer into its place"))?;
        ledger.add(layer.clone(), stored);
        drop(ledger);
        self.report();
        remove_all(removed);
        Ok(())
    }

    /// The user that owns layers; `None`: the service's own.
    pub fn owner(&self) -> Option<u32> {
        self.spec.owner
    }

    /// Refuses when the machine has too little space.
    ///
    /// # Errors
    /// `disk_full`.
    pub fn check_host(&self) -> Result<(), Error> {
        self.spec.quota.host.check().map(drop)
    }

    /// Makes the directory in which overlayfs prepares the changes of a build. Blocks.
    pub(super) fn make_work(&self, arrival: &Path) -> io::Result<()> {
        let work = arrival.join(WORK);
        fs::create_dir(&work)?;
        self.spec.owner.map_or(Ok(()), |owner| std::os::unix::fs::chown(work, Some(owner), Some(owner)))
    }

    /// Removes it. Blocks.
    pub(super) fn remove_work(&self, arrival: &Path) -> io::Result<()> {
        let work = arrival.join(WORK);
        // Overlayfs closes its own directory to all but root.
        drop(fs::set_permissions(work.join(WORK), std::os::unix::fs::PermissionsExt::from_mode(0o700)));
        layout::remove_directory(&work)
    }

    /// The content of a layer that is being unpacked into `arrival`.
    pub fn tree(arrival: &Path) -> PathBuf {
        arrival.join(TREE)
    }

    fn full(&self, reason: NoRoom) -> Error {
        let bytes_max = self.spec.bytes_max;
        let text = match reason {
            NoRoom::Own => format!(
                "the layers that sessions of the tenant use leave no space for another one on this machine; delete sessions, or have the operator give more: a tenant may \
                 have {} of {bytes_max} bytes (FLOTILLA_SANDBOX_IMAGE_BYTES)",
                shared_space::share(bytes_max)
            ),
            NoRoom::All => format!(
                "the layers that sessions use leave no space for another one; the limit is {bytes_max} bytes (FLOTILLA_SANDBOX_IMAGE_BYTES)"
            ),
        };
        Error::refused(ErrorCode::ImagesFull, text)
    }

    /// Takes a layer out of its place at once; the caller removes what is returned.
    fn discard(&self, layer: &LayerName) -> io::Result<PathBuf> {
        let discarded = self.spec.layout.arrivals().join(uuid::Uuid::now_v7().simple().to_string());
        fs::rename(self.layer(layer), &discarded)?;
        metrics::counter!("flotilla_sandbox_layers_removed_total").increment(1);
        Ok(discarded)
    }

    /// Notes on the disk when layers were used, for the next start. The ledger decides until then, so its lock need not be held: a layer that was removed
    /// meanwhile has no record.
    fn remember_use<'a>(&self, layers: impl IntoIterator<Item = &'a LayerName>, now: SystemTime) {
        for layer in layers {
            let record = fs::File::options().write(true).open(self.layer(layer).join(RECORD));
            if let Err(error) = record.and_then(|record| record.set_modified(now)) {
                tracing::debug!(%error, "the last use of a layer is not remembered across a restart");
            }
        }
    }

    fn layer(&self, layer: &LayerName) -> PathBuf {
        let layout = &self.spec.layout;
        match layer {
            LayerName::Image(digest) => layout.layers().join(digest.hex()),
            LayerName::Environment(EnvironmentLayerName { tenant, key }) => {
                layout.environments().join(tenant.to_string()).join(key.hex())
            }
        }
    }

    fn skeleton(&self, image: &Manifest) -> PathBuf {
        self.spec.layout.skeletons().join(image.key())
    }

    fn report(&self) {
        metrics::gauge!("flotilla_sandbox_image_bytes").set(self.ledger().bytes() as f64);
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }
}

impl StoredLayer {
    fn of(layer: &LayerName, record: Record, used_at: SystemTime) -> Self {
        let tenant = match layer {
            LayerName::Environment(name) => Some(name.tenant),
            LayerName::Image(_) => record.tenant,
        };
        Self { tenant, bytes: record.space(), used_at }
    }

    fn read(layer: &LayerName, file: &Path) -> io::Result<Self> {
        let record = serde_json::from_slice(&fs::read(file)?)?;
        Ok(Self::of(layer, record, fs::metadata(file)?.modified()?))
    }
}

impl Record {
    /// What the layer takes on the disk, at most.
    fn space(self) -> u64 {
        self.bytes.saturating_add(self.entries.saturating_mul(ENTRY_BYTES))
    }
}

impl Pin {
    /// Leaves the image to the workspace that now remembers it.
    pub fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if !self.is_kept {
            self.store.unpin(&self.image);
        }
    }
}

/// Removes directories that were taken out of their places.
fn remove_all(directories: impl IntoIterator<Item = PathBuf>) {
    for directory in directories {
        if let Err(error) = fs::remove_dir_all(directory) {
            tracing::warn!(%error, "a layer that was removed takes space until the next start");
        }
    }
}

fn layers_missing(missing: &[LayerName]) -> Error {
    if let [LayerName::Environment(_)] = missing {
        let text = "the machine lacks the environment of the session; build it first";
        return Error::refused(ErrorCode::EnvironmentMissing, text);
    }
    let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
    let text = format!("the machine lacks layers of the image; send them first: {}", names.join(", "));
    Error::refused(ErrorCode::LayersMissing, text)
}
