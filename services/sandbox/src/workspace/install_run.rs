//! Runs the script of an install in a clone that no session sees, and keeps the files that it left in addition to those of the repository. So nothing
//! that an agent does can be among them.

use super::install::{
    copy::TreeCopy,
    key::{Install, InstallSpec, name},
    listing::{self, Listing},
};
use crate::{
    disk::{space::Space, survey},
    error::{Error, blocking},
    exec::variables::{NO_TERMINAL, environment},
    image::{
        arrival::Arrival,
        builds::{BuildStart, Flight, FlightSpec},
        layer::{EnvironmentLayerName, LayerName},
        script::{BuildStage, ScriptLimits, ScriptRun, ScriptSource, command},
        store::{Pin, Record, Store},
    },
    isolation::{launch::Mount, root::image::Root},
    sandbox::{Sandbox, SandboxSpec},
    session::{shared::Shared, slots::Slot, state::Session},
    walls::Wall,
    workspace::{open::spec::OpenSpec, scratch::Scratch},
};
use domain::session::environment::SandboxOptions;
use rpc::v1::ErrorCode;
use sandbox_wire::v1::Exec;
use shares::Permit;
use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// What runs before the script: it ends with the first command that fails.
const PRELUDE: &str = "set -e; cd /workspace\n";

/// Begins an install for a session without files, or follows the one of the same key.
///
/// # Errors
/// `argument_invalid`, those of a clone, `caller_left`.
///
/// Dropped midway: an install that has begun goes on.
pub async fn start(
    session: &Arc<Session>,
    spec: OpenSpec,
    left: &CancellationToken,
) -> Result<(EnvironmentLayerName, BuildStart), Error> {
    let invalid = |text: &str| Error::refused(ErrorCode::ArgumentInvalid, text);
    let Some(Install::Script(install)) = spec.install.clone() else {
        return Err(invalid("the call names no install"));
    };
    let shared = &session.shared;
    let has_files = session.find_workspace().await?.is_some();
    shared.images.check_host()?;
    let (slot, pin) = (shared.take_slot(session.key.tenant)?, shared.images.pin(&spec.image)?);
    let uid = shared.uid(slot.number());
    let clone = Scratch::make(session, uid)?;
    let listing = match clone_and_list(session, &spec, &clone, uid, left).await {
        Ok(listing) => listing,
        Err(error) => {
            clone.remove().await;
            return Err(error);
        }
    };
    let name = name(session.key.tenant, &spec.image, &spec.env, &install, &listing)?;
    let flight = FlightSpec {
        name: name.clone(),
        session: session.key.clone(),
        project: install.project.to_string(),
        stage: BuildStage::Install,
        has_files,
    };
    let run = InstallRun {
        session: Arc::clone(session),
        name,
        install,
        spec,
        clone,
        listing,
        uid,
        _slot: slot,
        _pin: pin,
    };
    let run = move |_, flight, permit| async move { Box::pin(run.run(flight, permit)).await };
    shared.builds.begin_flight(flight, run).await
}

async fn clone_and_list(
    session: &Arc<Session>,
    spec: &OpenSpec,
    clone: &Scratch,
    uid: u32,
    left: &CancellationToken,
) -> Result<Listing, Error> {
    spec.clone_into(session, clone.path(), uid, left).await?;
    listing::read(clone.path()).await
}

/// One run of the script.
struct InstallRun {
    session: Arc<Session>,
    name: EnvironmentLayerName,
    install: InstallSpec,
    spec: OpenSpec,
    clone: Scratch,
    listing: Listing,
    uid: u32,
    /// The user of the clone.
    _slot: Slot,
    /// Keeps the layers of the image.
    _pin: Pin,
}

impl InstallRun {
    async fn run(self, flight: Arc<Flight>, permit: Permit) -> Result<(), Error> {
        let kept = match self.execute(&flight, permit).await {
            Ok(()) => self.keep().await,
            Err(error) => Err(error),
        };
        self.clone.remove().await;
        kept
    }

    async fn execute(&self, flight: &Flight, permit: Permit) -> Result<(), Error> {
        let shared = &self.session.shared;
        let clone = Mount::write(self.clone.path(), "/workspace");
        let sandbox = SandboxSpec {
            tenant: self.name.tenant,
            uid: self.uid,
            root: shared.images.root(&self.spec.image).await?,
            mounts: [clone].into_iter().chain(shared.doors.mounts(&self.session.key)).collect(),
            options: SandboxOptions::NONE,
            permit: Some(permit),
        };
        let exec = self.exec(&sandbox.root);
        let sandbox = Sandbox::start(&shared.launcher, &shared.tasks, sandbox).await?;
        let script = ScriptRun {
            stage: BuildStage::Install,
            exec,
            has_secrets: !self.install.secrets.is_empty(),
            limits: ScriptLimits {
                time: Duration::from_millis(shared.config.install_ms),
                space: Space { bytes: shared.config.disk_bytes, inodes: shared.config.inodes },
                memory_bytes: shared.launcher.facts().limits.memory_bytes,
                without_terminals: shared.config.without.contains(&Wall::Terminals),
            },
            tree: self.clone.path().to_owned(),
            measure: survey::measure,
            store: &shared.images,
            progress: flight.progress(),
            stop: flight.stop(),
            shutdown: &shared.shutdown,
        };
        script.run(&sandbox).await
    }

    fn exec(&self, root: &Root) -> Exec {
        let Shared { launcher, doors, .. } = &*self.session.shared;
        let InstallSpec { script, secrets, .. } = &self.install;
        let env = environment(HashMap::new(), NO_TERMINAL, &doors.variables(), &self.spec.env);
        let source = ScriptSource { text: format!("{PRELUDE}{script}"), secrets, env };
        command(source, "/workspace", launcher.init(root))
    }

    /// Copies what the script left. No process of it is left.
    async fn keep(&self) -> Result<(), Error> {
        let store = Arc::clone(&self.session.shared.images);
        let making = Arc::clone(&store);
        let arrival = blocking("make the directory of an install", move || Arrival::make(&making)).await?;
        let (from, without) = (self.clone.path().to_owned(), self.listing.paths.clone());
        let layer = LayerName::Environment(self.name.clone());
        let bytes_max = self.session.shared.config.disk_bytes;
        let keep = move |place: &Path| {
            let check = || store.check_host();
            let copy = TreeCopy { owner: store.owner(), without: &without, bytes_max, check: &check };
            let copied = copy.run(&from, &Store::tree(place))?;
            let record = Record { bytes: copied.bytes, entries: copied.entries, tenant: None };
            store.settle(place, &layer, record)
        };
        arrival.keep("keep what was installed", keep).await
    }
}
