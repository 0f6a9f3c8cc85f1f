//! The builds of environment layers: each key is built by one task at a time, and every caller that wants it follows this task. A build goes on when its
//! callers leave.

use super::{
    build::{Build, BuildMeans, BuildOrder},
    digest::Digest,
    layer::{EnvironmentLayerName, LayerName},
    ledger::StoredLayer,
    records::{BUILDS_KEPT_MAX, BuildRecord, Records, milliseconds},
    script::{BuildEnd, BuildProgress, BuildStage},
};
use crate::{
    error::{Error, blocking},
    layout::{Key, Layout},
};
use chassis::lock;
use domain::ids::TenantId;
use rpc::v1::ErrorCode;
use shares::{Permit, Shares};
use std::{
    collections::{HashMap, HashSet},
    io,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Builds at once in one service: each may use the memory of a sandbox and write ten GiB. Further ones wait for their turn.
const BUILDS_MAX: u32 = 4;
/// Those of one tenant.
const BUILDS_TENANT_MAX: usize = 2;
/// Longest wait of a build for its turn: as long as a build may take. Beyond it: `helpers_busy`.
const BUILD_WAIT_MAX: Duration = Duration::from_secs(20 * 60);
/// How long an environment layer stays without a use.
const ENVIRONMENT_UNUSED: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// The builds of this machine, and what is known of earlier ones.
#[derive(Debug)]
pub struct Builds {
    means: BuildMeans,
    records: Records,
    flights: Mutex<HashMap<EnvironmentLayerName, Arc<Flight>>>,
    shares: Shares<TenantId>,
}

#[derive(Debug)]
pub struct Flight {
    /// The session through whose door it reaches the network.
    session: Key,
    project: String,
    stage: BuildStage,
    started_at: SystemTime,
    progress: watch::Sender<BuildProgress>,
    stop: CancellationToken,
}

#[derive(Debug)]
pub struct FlightSpec {
    pub name: EnvironmentLayerName,
    /// The session through whose door it reaches the network.
    pub session: Key,
    pub project: String,
    pub stage: BuildStage,
    /// Whether the session has files already. Its door is then that of its own programs, and nothing begins.
    pub has_files: bool,
}

/// What a caller gets that wants an environment layer.
#[derive(Debug)]
pub enum BuildStart {
    Ready,
    Running(Arc<Flight>),
}

/// What the machine knows of an environment layer.
#[derive(Debug, Clone)]
pub struct KnownEnvironmentLayer {
    pub key: Digest,
    /// The newest build.
    pub build: BuildRecord,
    pub is_building: bool,
    /// What the layer takes, bytes, and when it was last used; milliseconds since 1970. `None`: there is no layer.
    pub layer: Option<(u64, i64)>,
}

/// Ends a flight however its task ends.
struct Landing<'a> {
    builds: &'a Builds,
    name: &'a EnvironmentLayerName,
    flight: &'a Flight,
    end: BuildEnd,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        lock(&self.builds.flights).remove(self.name);
        let end = self.end.clone();
        self.flight.progress.send_modify(|progress| progress.end = Some(end));
    }
}

impl Flight {
    /// How far the build is, from now on.
    pub fn follow(&self) -> watch::Receiver<BuildProgress> {
        self.progress.subscribe()
    }

    /// Takes what the script prints.
    pub fn progress(&self) -> &watch::Sender<BuildProgress> {
        &self.progress
    }

    /// Cancelled when the build must end.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}

impl Builds {
    /// Loads what is known of earlier builds. Blocks.
    pub fn load(layout: Layout, means: BuildMeans) -> io::Result<Self> {
        let (records, shares) = (Records::load(layout)?, Shares::new(BUILDS_MAX, BUILDS_TENANT_MAX));
        Ok(Self { means, records, flights: Mutex::default(), shares })
    }

    /// Builds an environment layer for `session`, unless the machine has it. Callers that want the same key share one build.
    ///
    /// # Errors
    /// `argument_invalid`, `images_unsupported`.
    ///
    /// Dropped midway: a build that has begun goes on.
    pub async fn start(
        self: &Arc<Self>,
        session: &Key,
        order: BuildOrder,
    ) -> Result<(EnvironmentLayerName, BuildStart), Error> {
        order.spec.check()?;
        self.means.store.require_support()?;
        let name = order.spec.name()?;
        let flight = FlightSpec {
            name: name.clone(),
            session: session.clone(),
            project: order.spec.project.to_string(),
            stage: BuildStage::Setup,
            has_files: order.has_files,
        };
        let build = move |builds: Arc<Self>, flight: Arc<Flight>, permit| async move {
            let (means, progress, stop) = (&builds.means, &flight.progress, &flight.stop);
            Box::pin(Build { means, name: &name, order: &order, progress, stop }.run(permit)).await
        };
        self.begin_flight(flight, build).await
    }

    /// Has `build` make an environment layer, unless the machine has it or another caller builds it.
    ///
    /// # Errors
    /// `argument_invalid`.
    ///
    /// Dropped midway: a build that has begun goes on.
    pub async fn begin_flight<F>(
        self: &Arc<Self>,
        spec: FlightSpec,
        build: impl FnOnce(Arc<Self>, Arc<Flight>, Permit) -> F + Send + 'static,
    ) -> Result<(EnvironmentLayerName, BuildStart), Error>
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let FlightSpec { name, session, project, stage, has_files } = spec;
        let (store, layer) = (Arc::clone(&self.means.store), LayerName::Environment(name.clone()));
        if blocking("look for an environment", move || Ok(store.has(&layer))).await? {
            return Ok((name, BuildStart::Ready));
        }
        let mut flights = lock(&self.flights);
        if let Some(flight) = flights.get(&name) {
            return Ok((name.clone(), BuildStart::Running(Arc::clone(flight))));
        }
        if has_files {
            let text = "the session has files already, so its door is that of its own programs; build in a new session";
            return Err(Error::refused(ErrorCode::ArgumentInvalid, text));
        }
        let flight = Arc::new(Flight {
            session,
            project,
            stage,
            started_at: SystemTime::now(),
            progress: watch::Sender::default(),
            stop: CancellationToken::new(),
        });
        flights.insert(name.clone(), Arc::clone(&flight));
        let (builds, own, running) = (Arc::clone(self), name.clone(), Arc::clone(&flight));
        // Apart from the call: other callers may wait for it when this one has left.
        self.means.tasks.spawn_apart("environment build", async move {
            builds.fly(&own, running, build).await;
        });
        Ok((name, BuildStart::Running(flight)))
    }

    /// Ends the builds that reach the network through the door of a session, and returns when they are gone. What the session's own programs may
    /// reach is none of a build's business, and the other way round.
    pub async fn end_of(&self, session: &Key) {
        let own: Vec<_> =
            lock(&self.flights).values().filter(|flight| flight.session == *session).cloned().collect();
        for flight in own {
            flight.stop.cancel();
            // The flight ends its own progress.
            drop(flight.follow().wait_for(|progress| progress.end.is_some()).await);
        }
    }

    /// Lists what is known of the environment layers of a tenant, newest build first.
    pub async fn list(self: &Arc<Self>, tenant: TenantId) -> Result<Vec<KnownEnvironmentLayer>, Error> {
        let builds = Arc::clone(self);
        blocking("list the environments", move || {
            let layers = builds.means.store.environment_layers(tenant);
            let mut known = builds.records.list(tenant)?;
            known.truncate(BUILDS_KEPT_MAX);
            let describe =
                |(key, build)| builds.describe(EnvironmentLayerName { tenant, key }, build, &layers);
            Ok(known.into_iter().map(describe).collect())
        })
        .await
    }

    /// Gives what is known of an environment layer, and what its newest build printed.
    ///
    /// # Errors
    /// `environment_unknown`; those of the file system.
    pub async fn log(
        self: &Arc<Self>,
        name: &EnvironmentLayerName,
    ) -> Result<(KnownEnvironmentLayer, Vec<u8>), Error> {
        let (builds, name) = (Arc::clone(self), name.clone());
        let read = move || {
            let Some(build) = builds.records.find(&name)? else { return Ok(None) };
            let flight = lock(&builds.flights).get(&name).cloned();
            let log = match flight {
                Some(flight) => flight.progress.borrow().log.to_vec(),
                None => builds.records.log(&name)?,
            };
            let layers = builds.means.store.environment_layers(name.tenant);
            Ok(Some((builds.describe(name, build, &layers), log)))
        };
        blocking("read the log of a build", read).await?.ok_or_else(unknown)
    }

    fn describe(
        &self,
        name: EnvironmentLayerName,
        build: BuildRecord,
        layers: &HashMap<EnvironmentLayerName, StoredLayer>,
    ) -> KnownEnvironmentLayer {
        let is_building = lock(&self.flights).contains_key(&name);
        let layer = layers.get(&name).map(|stored| (stored.bytes, milliseconds(stored.used_at)));
        KnownEnvironmentLayer { key: name.key, build, is_building, layer }
    }

    /// Removes an environment layer with its log.
    ///
    /// # Errors
    /// `environment_unknown`, `environment_in_use`; those of the file system.
    pub async fn remove(self: &Arc<Self>, name: &EnvironmentLayerName) -> Result<(), Error> {
        if lock(&self.flights).contains_key(name) {
            let text = "the environment is being built; wait for the end of the build";
            return Err(Error::refused(ErrorCode::EnvironmentInUse, text));
        }
        let (builds, own) = (Arc::clone(self), name.clone());
        let removed = blocking("remove an environment", move || {
            let is_known = builds.records.find(&own)?.is_some()
                || builds.means.store.environment_layers(own.tenant).contains_key(&own);
            if !is_known {
                return Ok(Err(unknown()));
            }
            let removed = builds.means.store.remove_environment_layer(&own);
            if removed.is_ok() {
                builds.records.remove(&own)?;
            }
            Ok(removed)
        });
        removed.await?
    }

    /// Removes the environment layers that no session has used for two weeks. Blocks.
    pub fn forget_unused(&self) -> io::Result<()> {
        self.means.store.forget_environments(SystemTime::now() - ENVIRONMENT_UNUSED)
    }

    /// Removes everything of a tenant whose sessions are closed. Blocks.
    pub fn close_tenant(&self, tenant: TenantId) -> io::Result<()> {
        self.means.store.close_tenant(tenant)?;
        self.records.close_tenant(tenant)
    }

    async fn fly<F: Future<Output = Result<(), Error>>>(
        self: &Arc<Self>,
        name: &EnvironmentLayerName,
        flight: Arc<Flight>,
        build: impl FnOnce(Arc<Self>, Arc<Flight>, Permit) -> F,
    ) {
        let message = "the build failed inside the sandbox service".to_owned();
        let lost = BuildEnd { code: Some(ErrorCode::Internal), message };
        let mut landing = Landing { builds: self, name, flight: &flight, end: lost };
        let begun = self.begin(name, &flight).await;
        let built = match &begun {
            Ok(_) => match self.turn(name.tenant, &flight).await {
                Ok(permit) => build(Arc::clone(self), Arc::clone(&flight), permit).await,
                Err(error) => Err(error),
            },
            Err(_) => Ok(()),
        };
        let result = begun.and_then(|record| built.map(|()| record));
        landing.end = match &result {
            Ok(_) => BuildEnd { code: None, message: String::new() },
            Err(error) => {
                let code = error.code();
                if code == ErrorCode::Internal {
                    tracing::error!(error.code = code.as_str(), "a build failed: {}", error.chain());
                }
                BuildEnd { code: Some(code), message: error.to_string() }
            }
        };
        let code = landing.end.code.map_or("ok", ErrorCode::as_str);
        metrics::counter!("flotilla_sandbox_builds_total", "code" => code).increment(1);
        if let Err(error) = self.end(name, &flight, &landing.end).await {
            tracing::warn!("the log of a build is lost: {}", error.chain());
        }
    }

    async fn turn(&self, tenant: TenantId, flight: &Flight) -> Result<Permit, Error> {
        let left = || {
            let text = "the session of this build no longer waits for it; try again";
            Error::refused(flight.stage.interrupted(), text)
        };
        let permit = flight.stop.run_until_cancelled(self.shares.acquire(tenant, BUILD_WAIT_MAX)).await;
        permit.ok_or_else(left)?.map_err(|_| {
            let text = "other setups are running on this machine; try again later";
            Error::refused(ErrorCode::HelpersBusy, text)
        })
    }

    async fn begin(
        self: &Arc<Self>,
        name: &EnvironmentLayerName,
        flight: &Flight,
    ) -> Result<BuildRecord, Error> {
        let (builds, name) = (Arc::clone(self), name.clone());
        let (project, stage) = (flight.project.clone(), flight.stage);
        blocking("note the begin of a build", move || {
            let layers = builds.means.store.environment_layers(name.tenant);
            let ready: HashSet<Digest> = layers.into_keys().map(|name| name.key).collect();
            builds.records.begin(&name, &project, stage, &ready)
        })
        .await
    }

    async fn end(
        self: &Arc<Self>,
        name: &EnvironmentLayerName,
        flight: &Flight,
        end: &BuildEnd,
    ) -> Result<(), Error> {
        let record = BuildRecord {
            project: flight.project.clone(),
            stage: flight.stage,
            started_at_ms: milliseconds(flight.started_at),
            ended_at_ms: Some(milliseconds(SystemTime::now())),
            code: end.code.map(|code| code.as_str().to_owned()).unwrap_or_default(),
            message: end.message.clone(),
        };
        let (builds, name, log) = (Arc::clone(self), name.clone(), flight.progress.borrow().log.to_vec());
        blocking("keep the log of a build", move || builds.records.end(&name, &record, &log)).await
    }
}

fn unknown() -> Error {
    Error::refused(ErrorCode::EnvironmentUnknown, "the tenant has no environment of this key")
}
