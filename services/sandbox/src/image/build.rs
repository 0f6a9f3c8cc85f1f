//! One build of an environment layer: a script runs as root in a sandbox whose root can be written, and what it changed becomes a layer. Nothing of
//! a build that fails is kept but its log.

use super::{
    arrival::Arrival,
    cleaning::{SETUP_ENTRIES_MAX, clean},
    environment_layer::EnvironmentLayerSpec,
    layer::{EnvironmentLayerName, LayerName},
    script::{BuildProgress, BuildStage, ScriptLimits, ScriptRun, ScriptSource, command},
    store::Store,
};
use crate::{
    disk::{space::Space, survey},
    error::{Error, blocking},
    isolation::launch::{Launcher, Mount},
    sandbox::{Sandbox, SandboxSpec},
};
use chassis::tasks::Tasks;
use domain::session::environment::SandboxOptions;
use shares::Permit;
use std::{path::Path, sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What runs before the script: it ends with the first command that fails, like a step of a build elsewhere.
const PRELUDE: &str = "set -e; cd /\n";

#[derive(Debug, Clone, Copy)]
pub struct BuildLimits {
    /// Longest run of a script.
    pub time: Duration,
    /// Files that it may leave, bytes.
    pub bytes: u64,
    /// Whether builds run on a machine that cannot bound the terminals of a sandbox.
    pub without_terminals: bool,
}

/// What builds need of the service.
#[derive(Debug)]
pub struct BuildMeans {
    pub store: Arc<Store>,
    pub launcher: Launcher,
    /// Own the builds.
    pub tasks: Tasks,
    /// Cancelled when the service stops.
    pub shutdown: CancellationToken,
    pub limits: BuildLimits,
}

/// A build that a caller asks for.
#[derive(Debug)]
pub struct BuildOrder {
    pub spec: EnvironmentLayerSpec,
    /// The variables of the script, those of the network among them.
    pub env: Vec<String>,
    /// What the script also sees: the door of the session.
    pub mounts: Vec<Mount>,
    /// Whether the session has files already. Its door is then that of its own programs, and no build begins.
    pub has_files: bool,
}

pub(super) struct Build<'a> {
    pub(super) means: &'a BuildMeans,
    pub(super) name: &'a EnvironmentLayerName,
    pub(super) order: &'a BuildOrder,
    pub(super) progress: &'a watch::Sender<BuildProgress>,
    /// Cancelled when the build must end.
    pub(super) stop: &'a CancellationToken,
}

impl Build<'_> {
    /// Runs the script and keeps what it left.
    ///
    /// # Errors
    /// `setup_failed`, `setup_timeout`, `setup_disk_full`, `setup_interrupted`; `disk_full`, `layers_missing`, `images_full`,
    /// `sandbox_unavailable`. Nothing is kept then.
    pub(super) async fn run(&self, permit: Permit) -> Result<(), Error> {
        let store = Arc::clone(&self.means.store);
        let (image, layer) = (self.order.spec.image.clone(), LayerName::Environment(self.name.clone()));
        let found = move || Ok((store.has(&layer), store.pin(&image)));
        let (is_there, pin) = blocking("find the layers of an image", found).await?;
        let _pin = pin?;
        if is_there {
            // The build before ended in this moment.
            return Ok(());
        }
        self.means.store.check_host()?;
        let store = Arc::clone(&self.means.store);
        let arrival = blocking("make the directory of a build", move || {
            let arrival = Arrival::make(&store)?;
            store.make_work(arrival.path())?;
            Ok(arrival)
        });
        let arrival = arrival.await?;
        let built = self.fill(&arrival, permit).await;
        if let Err(error) = built {
            arrival.remove().await;
            return Err(error);
        }
        self.keep(arrival).await
    }

    /// Runs the script, whose changes are in `arrival` when this returns, and all of its processes are gone.
    async fn fill(&self, arrival: &Arrival, permit: Permit) -> Result<(), Error> {
        let BuildMeans { store, launcher, tasks, limits, .. } = self.means;
        let (roots, image, path) =
            (Arc::clone(store), self.order.spec.image.clone(), arrival.path().to_owned());
        let root = tokio::task::spawn_blocking(move || roots.build_root(&image, &path)).await;
        let root =
            root.map_err(|error| Error::io("find the layers of an image")(std::io::Error::other(error)))??;
        let spec = SandboxSpec {
            tenant: self.name.tenant,
            uid: store.owner().unwrap_or_default(),
            root,
            mounts: self.order.mounts.clone(),
            options: SandboxOptions::NONE,
            permit: Some(permit),
        };
        let EnvironmentLayerSpec { script, secrets, .. } = &self.order.spec;
        let source =
            ScriptSource { text: format!("{PRELUDE}{script}"), secrets, env: self.order.env.clone() };
        let exec = command(source, "/", launcher.init(&spec.root));
        let sandbox = Sandbox::start(launcher, tasks, spec).await?;
        let script = ScriptRun {
            stage: BuildStage::Setup,
            exec,
            has_secrets: !secrets.is_empty(),
            limits: ScriptLimits {
                time: limits.time,
                space: Space { bytes: limits.bytes, inodes: SETUP_ENTRIES_MAX },
                memory_bytes: launcher.facts().limits.memory_bytes,
                without_terminals: limits.without_terminals,
            },
            tree: Store::tree(arrival.path()),
            measure: survey::measure_changes,
            store,
            progress: self.progress,
            stop: self.stop,
            shutdown: &self.means.shutdown,
        };
        script.run(&sandbox).await
    }

    /// Turns what the script left into a layer.
    async fn keep(&self, arrival: Arrival) -> Result<(), Error> {
        let store = Arc::clone(&self.means.store);
        let (layer, bytes_max) = (LayerName::Environment(self.name.clone()), self.means.limits.bytes);
        let keep = move |place: &Path| {
            store.remove_work(place).map_err(Error::io("clean what a setup left"))?;
            let record = clean(&Store::tree(place), store.owner(), bytes_max)?;
            store.settle(place, &layer, record)
        };
        arrival.keep("keep what a setup left", keep).await
    }
}
