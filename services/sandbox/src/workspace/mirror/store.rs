//! The mirrors of this machine.

use super::{
    content::MirrorContent,
    draft::{Draft, DraftParts},
    generation::Generation,
    key::MirrorKey,
    ledger::Ledger,
};
use crate::{
    disk::{space::Space, workspace::Quota},
    error::{Error, blocking},
    layout::{self, Layout},
};
use chassis::{lock, tasks::Tasks};
use domain::ids::{ProjectId, TenantId};
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
/// Longest wait for the clone that fills a mirror. A clone that waited longer transfers the repository too.
const MIRROR_FILL_WAIT_MAX: Duration = Duration::from_secs(300);
/// Mirrors that were found too large for the machine and are not tried again until the service restarts. Beyond it all are tried again.
const MIRRORS_TOO_LARGE_MAX: usize = 1_000;

/// What the mirrors need of the service.
#[derive(Debug)]
pub struct MirrorsSpec {
    /// The data directory.
    pub layout: Layout,
    /// What all mirrors together may take, bytes; 0: the machine keeps none.
    pub bytes_max: u64,
    /// The disk.
    pub quota: Arc<Quota>,
    /// They remove mirrors.
    pub tasks: Tasks,
}

/// The mirrors of this machine.
#[derive(Debug)]
pub struct Mirrors {
    spec: MirrorsSpec,
    ledger: Mutex<Ledger>,
    /// The mirrors that a first clone fills. The receiver ends with the clone.
    fillings: Mutex<HashMap<MirrorKey, watch::Receiver<()>>>,
    too_large: Mutex<HashSet<MirrorKey>>,
}

/// The mirror of a clone. While it lives, what the clone reads stays on the disk.
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
    ///
    /// # Errors
    /// Those of the file system.
    pub fn load(spec: MirrorsSpec) -> io::Result<Self> {
        let mut ledger = Ledger::default();
        for tenant in fs::read_dir(spec.layout.mirrors())? {
            let tenant = tenant?;
            let Some(id) = tenant.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            for generation in generations(&tenant.path())? {
                match Generation::read(id, generation.clone(), spec.tasks.clone()) {
                    Ok((generation, used_at)) => ledger.add(generation, used_at),
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
        };
        mirrors.report();
        Ok(mirrors)
    }

    /// Takes the mirror of a clone into use. If another clone fills the mirror, this waits for its end, or until the caller has `left`: the objects
    /// are then on this disk. A clone waits once, and then goes on with what there is.
    ///
    /// # Errors
    /// Those of the file system.
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

    /// Keeps what a clone reported. Blocks.
    fn keep(&self, parts: &DraftParts<'_>, base: Option<&Arc<Generation>>) -> Result<(), Error> {
        let bytes_max = self.spec.bytes_max;
        if parts.content.bytes() > bytes_max {
            let mut too_large = lock(&self.too_large);
            if too_large.len() >= MIRRORS_TOO_LARGE_MAX {
                too_large.clear();
            }
            too_large.insert(parts.key.clone());
            return Ok(());
        }
        let host = &self.spec.quota.host;
        if !host.has_reserve(host.free()?.saturating_sub(Space { bytes: parts.new_bytes(), inodes: 0 })) {
            return Ok(());
        }
        let name = uuid::Uuid::now_v7().simple().to_string();
        let draft = Draft::write(self.spec.layout.mirror_drafts().join(&name), parts);
        let draft = draft.map_err(Error::io("write a mirror"))?;
        let tenant = self.spec.layout.mirrors().join(parts.key.tenant.to_string());
        let mut ledger = lock(&self.ledger);
        let read = Generation::read(parts.key.tenant, draft.directory.clone(), self.spec.tasks.clone());
        let (mut generation, used_at) = read.map_err(Error::io("read a new mirror"))?;
        let is_wanted = ledger.is_newest(parts.key, base);
        if !is_wanted || !ledger.make_room(parts.key, generation.bytes, bytes_max) {
            return Ok(());
        }
        generation.directory = tenant.join(&name);
        let moved =
            layout::make_passage(&tenant).and_then(|()| fs::rename(&draft.directory, &generation.directory));
        moved.map_err(Error::io("move a mirror into its place"))?;
        ledger.add(generation, used_at);
        drop(ledger);
        self.report();
        Ok(())
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
    ///
    /// # Errors
    /// Those of the file system.
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

    /// Keeps what a clone reported, as the next generation. `clone` has its files, which no process uses. Without it later sessions take longer, so a
    /// failure is only logged.
    ///
    /// Dropped midway: the work goes on.
    pub async fn keep(self, content: MirrorContent, clone: PathBuf) {
        let keep = move || {
            let Self { mirrors, key, generation, filling } = self;
            let base = generation.as_deref();
            let parts = DraftParts { key: &key, content: &content, clone: &clone, base };
            if let Err(error) = mirrors.keep(&parts, generation.as_ref()) {
                tracing::warn!("a mirror of a repository is not kept: {}", error.chain());
            }
            drop(filling);
            Ok(())
        };
        // A panic is logged by its thread.
        drop(blocking("keep a mirror", keep).await);
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        lock(&self.mirrors.fillings).remove(&self.key);
    }
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
