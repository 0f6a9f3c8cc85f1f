//! The mirrors of this machine.

use super::{
    arrivals::{Arrivals, ObjectsBringer},
    content::MirrorContent,
    generation::Generation,
    key::MirrorKey,
    ledger::Ledger,
    next_generation::{GenerationParts, NextGeneration},
    objects::{MirrorObjects, SessionObjects},
    writes::Writes,
};
use crate::{
    disk::{shared_space, space::Space, workspace::Quota},
    error::{Error, blocking},
    layout::{self, Layout},
};
use chassis::{lock, tasks::Tasks};
use domain::{
    egress::lfs::{pointer::LfsPointer, report::LfsReport},
    ids::{ProjectId, TenantId},
};
use rpc::v1::ErrorCode;
use shares::{Permit, Shares};
use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long a mirror stays without a use.
const MIRROR_UNUSED: Duration = Duration::from_secs(14 * 24 * 60 * 60);
/// Longest wait for the clone that fills a mirror. A clone that waited longer transfers what the mirror does not have yet.
const MIRROR_FILL_WAIT_MAX: Duration = Duration::from_secs(300);
/// Clones at once that only fill mirrors, before a session needs them: clones of sessions come first. Beyond it: `helpers_busy`.
const WARM_UP_CLONES_MAX: u32 = 2;
/// Those of one tenant. Beyond it: `helpers_busy`.
const WARM_UP_CLONES_TENANT_MAX: usize = 1;
/// Mirrors that were found too large for the machine and are not tried again until the service restarts. Beyond it all are tried again.
const MIRRORS_TOO_LARGE_MAX: usize = 1_000;

/// What the mirrors need of the service.
#[derive(Debug)]
pub struct MirrorsSpec {
    pub layout: Layout,
    /// What all mirrors together may take, bytes, of which one tenant gets three quarters; 0: the machine keeps none.
    pub bytes_max: u64,
    pub quota: Arc<Quota>,
    /// They remove mirrors.
    pub tasks: Tasks,
}

/// The mirrors of this machine.
#[derive(Debug)]
pub struct Mirrors {
    spec: MirrorsSpec,
    ledger: Mutex<Ledger>,
    /// The mirrors that a first clone fills. The receiver ends when its packs are kept, or with the clone.
    fillings: Mutex<HashMap<MirrorKey, watch::Receiver<()>>>,
    too_large: Mutex<HashSet<MirrorKey>>,
    writes: Writes,
    arrivals: Arc<Arrivals>,
    warm_ups: Shares<TenantId>,
}

/// The mirror of a clone. While it lives, what the clone reads stays on the disk, and clones that wait for the first one go on waiting.
#[derive(Debug)]
pub struct MirrorUse {
    mirrors: Arc<Mirrors>,
    key: MirrorKey,
    generation: Option<Arc<Generation>>,
    filling: Option<Filling>,
}

/// The first clone of a mirror. Others wait for its end.
#[derive(Debug)]
struct Filling {
    mirrors: Arc<Mirrors>,
    key: MirrorKey,
    _end: watch::Sender<()>,
}

impl Mirrors {
    /// Loads the mirrors from the disk. Blocks.
    pub fn load(spec: MirrorsSpec) -> io::Result<Self> {
        let mut ledger = Ledger::default();
        for tenant in fs::read_dir(spec.layout.mirrors())? {
            let tenant = tenant?;
            let Some(id) = tenant.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            for generation in generations(&tenant.path())? {
                match Generation::read(id, generation.clone(), spec.tasks.clone()) {
                    Ok((generation, used_at)) => drop(ledger.add(generation, used_at)),
                    Err(error) => {
                        tracing::warn!(%error, "the record of a mirror cannot be read; the mirror is removed");
                        layout::remove_directory(&generation)?;
                    }
                }
            }
        }
        let mirrors = Self {
            spec,
            ledger: Mutex::new(ledger),
            fillings: Mutex::default(),
            too_large: Mutex::default(),
            writes: Writes::default(),
            arrivals: Arc::default(),
            warm_ups: Shares::new(WARM_UP_CLONES_MAX, WARM_UP_CLONES_TENANT_MAX),
        };
        mirrors.report();
        Ok(mirrors)
    }

    /// Takes the mirror of a clone into use. If another clone fills the mirror, this waits for its end, or until the caller has `left`: the packs
    /// are then on this disk. A clone waits once, and then goes on with what there is.
    ///
    /// Cancel-safe.
    pub async fn take(
        self: &Arc<Self>,
        key: MirrorKey,
        left: &CancellationToken,
    ) -> Result<Option<MirrorUse>, Error> {
        if self.spec.bytes_max == 0 {
            return Ok(None);
        }
        let taken = self.find(key).await?;
        if taken.generation.is_some() || lock(&self.too_large).contains(&taken.key) {
            return Ok(Some(taken));
        }
        let filling = match self.fill(&taken.key) {
            Ok(filling) => Some(filling),
            Err(mut end) => {
                // The sender sends nothing: it ends.
                let ended = tokio::time::timeout(MIRROR_FILL_WAIT_MAX, end.changed());
                left.run_until_cancelled(ended).await;
                None
            }
        };
        // Another clone may have filled the mirror since the first look.
        let taken = self.find(taken.key).await?;
        let filling = filling.filter(|_| taken.generation.is_none());
        Ok(Some(MirrorUse { filling, ..taken }))
    }

    /// Whether a clone that begins now would fill the mirror: the machine keeps mirrors and lacks this one, it was not found too large, and no clone fills it.
    pub fn wants(&self, key: &MirrorKey) -> bool {
        self.spec.bytes_max > 0
            && lock(&self.ledger).find(key).is_none()
            && !lock(&self.too_large).contains(key)
            && !lock(&self.fillings).contains_key(key)
    }

    /// Expects no mirror of this repository: no clone waits for a first one, and no warm-up makes one.
    pub fn give_up(&self, key: &MirrorKey) {
        let mut too_large = lock(&self.too_large);
        if too_large.len() >= MIRRORS_TOO_LARGE_MAX {
            too_large.clear();
        }
        too_large.insert(key.clone());
    }

    /// Takes the right to fill a mirror that no session needs yet. It does not wait: such a clone is of use only now.
    ///
    /// # Errors
    /// `helpers_busy`.
    pub async fn begin_warm_up(&self, tenant: TenantId) -> Result<Permit, Error> {
        let text = "the machine already fills other mirrors; a session clones this repository when it opens its files";
        let permit = self.warm_ups.acquire(tenant, Duration::ZERO).await;
        permit.map_err(|_| Error::refused(ErrorCode::HelpersBusy, text))
    }

    async fn find(self: &Arc<Self>, key: MirrorKey) -> Result<MirrorUse, Error> {
        let mirrors = Arc::clone(self);
        let find = move || {
            let mut generation = lock(&mirrors.ledger).find(&key);
            if generation.as_ref().is_some_and(|generation| !generation.has_frame()) {
                mirrors.discard(&key, generation.take());
            }
            if let Some(generation) = &generation {
                let now = SystemTime::now();
                lock(&mirrors.ledger).touch(&key, now);
                if let Err(error) = generation.touch(now) {
                    tracing::debug!(%error, "the last use of a mirror is not remembered across a restart");
                }
            }
            Ok(MirrorUse { mirrors, key, generation, filling: None })
        };
        blocking("look for a mirror", find).await
    }

    /// Begins to fill a mirror, or gives the end of the clone that fills it.
    fn fill(self: &Arc<Self>, key: &MirrorKey) -> Result<Filling, watch::Receiver<()>> {
        let mut fillings = lock(&self.fillings);
        if let Some(end) = fillings.get(key) {
            return Err(end.clone());
        }
        let (sender, end) = watch::channel(());
        fillings.insert(key.clone(), end);
        Ok(Filling { mirrors: Arc::clone(self), key: key.clone(), _end: sender })
    }

    /// Removes a damaged mirror, unless it was replaced.
    fn discard(&self, key: &MirrorKey, damaged: Option<Arc<Generation>>) {
        tracing::warn!(tenant.id = %key.tenant, "a mirror of a repository is damaged; it is removed");
        metrics::counter!("flotilla_sandbox_mirrors_damaged_total").increment(1);
        {
            let mut ledger = lock(&self.ledger);
            if ledger.is_newest(key, damaged.as_ref()) {
                ledger.retire(key);
            }
        }
        self.report();
    }

    /// Keeps what a clone reported, and the objects of Git LFS that the earlier generation has. Blocks.
    fn keep(
        &self,
        key: &MirrorKey,
        content: &MirrorContent,
        clone: &Path,
        base: Option<&Arc<Generation>>,
    ) -> Result<Option<Arc<Generation>>, Error> {
        let bytes_max = shared_space::share(self.spec.bytes_max);
        if content.bytes() > bytes_max {
            self.give_up(key);
            return Ok(None);
        }
        self.writes.run(key, || {
            let base = &self.successor(key, base)?;
            let earlier = match base {
                Some(base) => whole_objects(base)?,
                None => vec![],
            };
            let objects = &MirrorObjects::choose(earlier, bytes_max - content.bytes());
            let base = base.as_ref();
            self.replace(&GenerationParts { key, content, clone: Some(clone), objects, session: None, base })
        })
    }

    /// The newest generation, if it only has other objects of Git LFS than this one: another session has kept objects since a clone read this one.
    fn successor(
        &self,
        key: &MirrorKey,
        read: Option<&Arc<Generation>>,
    ) -> Result<Option<Arc<Generation>>, Error> {
        let Some(read) = read else { return Ok(None) };
        let newest = lock(&self.ledger).find(key);
        let Some(newest) = newest.filter(|newest| newest.has_frame()) else {
            return Ok(Some(Arc::clone(read)));
        };
        let [own, other] = [read, &newest].map(|generation| generation.content());
        let (own, other) =
            (own.map_err(Error::io("read a mirror"))?, other.map_err(Error::io("read a mirror"))?);
        Ok(Some(if own == other { newest } else { Arc::clone(read) }))
    }

    /// Keeps the objects of Git LFS that a session has got, in addition to those that the mirror has. Another session may have replaced the generation since the
    /// helper read it: the objects then go into the newest one. Blocks.
    fn keep_objects(&self, key: &MirrorKey, session: &SessionObjects) -> Result<(), Error> {
        self.writes.run(key, || self.add_objects(key, session))
    }

    fn add_objects(&self, key: &MirrorKey, session: &SessionObjects) -> Result<(), Error> {
        let newest = lock(&self.ledger).find(key);
        // Without packs there is no mirror.
        let Some(base) = newest else { return Ok(()) };
        if !base.has_frame() {
            self.discard(key, Some(base));
            return Ok(());
        }
        if !session.damaged.is_empty() {
            let objects = session.damaged.len();
            tracing::warn!(tenant.id = %key.tenant, objects, "objects of Git LFS in a mirror are damaged; they are replaced");
            metrics::counter!("flotilla_sandbox_mirrors_damaged_total").increment(1);
        }
        let content = &base.content().map_err(Error::io("read a mirror"))?;
        let known = base.objects().map_err(Error::io("read the objects of a mirror"))?;
        // What this session needed stays for longest.
        let candidates = session.pointers.iter().cloned().chain(whole_objects(&base)?);
        let room = shared_space::share(self.spec.bytes_max).saturating_sub(content.bytes());
        let objects = &MirrorObjects::choose(candidates, room);
        if session.damaged.is_empty() && objects.has_same(&known) {
            return Ok(());
        }
        let base = Some(&base);
        self.replace(&GenerationParts { key, content, clone: None, objects, session: Some(session), base })?;
        Ok(())
    }

    /// Puts a next generation into the place of the earlier one, unless another clone has replaced that one meanwhile, or there is no room. Returns it if
    /// it is kept. Blocks.
    fn replace(&self, parts: &GenerationParts<'_>) -> Result<Option<Arc<Generation>>, Error> {
        let host = &self.spec.quota.host;
        if !host.has_reserve(host.free()?.saturating_sub(Space { bytes: parts.new_bytes(), inodes: 0 })) {
            return Ok(None);
        }
        let name = uuid::Uuid::now_v7().simple().to_string();
        let next = NextGeneration::write(self.spec.layout.mirror_drafts().join(&name), parts);
        let next = next.map_err(Error::io("write a mirror"))?;
        let tenant = self.spec.layout.mirrors().join(parts.key.tenant.to_string());
        let read = Generation::read(parts.key.tenant, next.directory.clone(), self.spec.tasks.clone());
        let (mut generation, used_at) = read.map_err(Error::io("read a new mirror"))?;
        let mut ledger = lock(&self.ledger);
        let is_wanted = ledger.is_newest(parts.key, parts.base);
        if !is_wanted || !ledger.make_room(parts.key, generation.bytes, self.spec.bytes_max) {
            return Ok(None);
        }
        generation.directory = tenant.join(&name);
        let moved =
            layout::make_passage(&tenant).and_then(|()| fs::rename(&next.directory, &generation.directory));
        moved.map_err(Error::io("move a mirror into its place"))?;
        let kept = ledger.add(generation, used_at);
        drop(ledger);
        self.report();
        Ok(Some(kept))
    }

    /// Removes the mirrors that no clone has used for long. Blocks.
    pub fn forget_unused(&self) {
        lock(&self.ledger).retire_unused(SystemTime::now() - MIRROR_UNUSED);
        self.report();
    }

    /// The projects with mirrors, and what these take; bytes.
    pub fn projects(&self) -> HashMap<(TenantId, ProjectId), u64> {
        lock(&self.ledger).projects()
    }

    /// Removes the mirrors of a project. What clones read stays until they end.
    pub fn forget_project(&self, tenant: TenantId, project: &ProjectId) {
        lock(&self.ledger).retire_project(tenant, project);
        self.report();
    }

    /// Removes all mirrors of a tenant without sessions. Blocks.
    pub fn close_tenant(&self, tenant: TenantId) -> io::Result<()> {
        lock(&self.ledger).retire_tenant(tenant);
        self.report();
        layout::remove_directory(&self.spec.layout.mirrors().join(tenant.to_string()))
    }

    fn report(&self) {
        metrics::gauge!("flotilla_sandbox_mirror_bytes").set(lock(&self.ledger).bytes() as f64);
    }
}

impl MirrorUse {
    /// What the clone may read.
    pub fn generation(&self) -> Option<&Generation> {
        self.generation.as_deref()
    }

    /// Goes on without the mirror, which is damaged, or of no use.
    pub fn discard(&mut self) {
        if let Some(damaged) = self.generation.take() {
            self.mirrors.discard(&self.key, Some(damaged));
        }
    }

    /// Keeps what a clone reported, as the next generation, and goes on with this one; `None` after a panic. `clone` has the files of the clone, which no
    /// process uses. Without the mirror later sessions take longer, so a failure is only logged.
    ///
    /// Dropped midway: the work goes on.
    pub async fn keep(mut self, content: MirrorContent, clone: PathBuf) -> Option<Self> {
        let keep = move || {
            match self.mirrors.keep(&self.key, &content, &clone, self.generation.as_ref()) {
                Ok(Some(kept)) => self.generation = Some(kept),
                Ok(None) => {}
                Err(error) => tracing::warn!("a mirror of a repository is not kept: {}", error.chain()),
            }
            // Clones that wait find the packs on this disk.
            self.filling = None;
            Ok(self)
        };
        // A panic is logged by its thread.
        blocking("keep a mirror", keep).await.ok()
    }

    /// Begins to bring objects of Git LFS into `store`, or finds the session that does so. `None`: this session brings them by itself, and the others do not
    /// learn of it. Blocks for a moment.
    pub fn begin_objects(&self, store: &Path) -> Option<ObjectsBringer> {
        let name = uuid::Uuid::now_v7().simple().to_string();
        let directory = self.mirrors.spec.layout.mirror_drafts().join(name);
        let begun = self.mirrors.arrivals.begin(&self.key, store, directory);
        let explain = |error: io::Error| tracing::warn!(%error, "sessions do not share the objects of Git LFS that they bring");
        begun.map_err(explain).ok()
    }

    /// Goes on with the newest generation, which may have objects that another session has brought.
    pub async fn refresh(self) -> Result<Self, Error> {
        let Self { mirrors, key, filling, .. } = self;
        Ok(Self { filling, ..mirrors.find(key).await? })
    }

    /// Keeps the objects of Git LFS that a helper reported, in a next generation. They are in `store`, each by its SHA-256, and no process uses them. Without
    /// them later sessions take longer, so a failure is only logged.
    ///
    /// Dropped midway: the work goes on.
    pub async fn keep_objects(self, report: LfsReport, store: PathBuf) {
        let keep = move || {
            let Self { mirrors, key, generation, filling } = self;
            let read = match &generation {
                Some(generation) => generation.objects()?,
                None => MirrorObjects::default(),
            };
            let objects = SessionObjects::new(report, store, &read);
            if let Err(error) = mirrors.keep_objects(&key, &objects) {
                tracing::warn!("objects of Git LFS are not kept: {}", error.chain());
            }
            drop(filling);
            Ok(())
        };
        if let Err(error) = blocking("keep objects of Git LFS", keep).await {
            tracing::warn!("objects of Git LFS are not kept: {}", error.chain());
        }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        lock(&self.mirrors.fillings).remove(&self.key);
    }
}

/// The objects of Git LFS of a generation, without those whose files have lost bytes.
fn whole_objects(generation: &Generation) -> Result<Vec<LfsPointer>, Error> {
    let objects = generation.objects().map_err(Error::io("read the objects of a mirror"))?;
    let whole = objects.pointers().iter().filter(|pointer| generation.find_object(pointer).is_some());
    Ok(whole.cloned().collect())
}

/// The generations in the directory of a tenant, oldest first: a newer one replaces an older one of the same mirror.
fn generations(tenant: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(tenant)?.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests;
