#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
use super::*;
use crate::{
    disk::{host::HostDisk, workspace::Uncounted},
    workspace::mirror::generation::PACKS,
};
use domain::ids::ProjectId;
use futures::FutureExt as _;
use std::os::unix::fs::MetadataExt as _;

const ID: &str = "1111111111111111111111111111111111111111";

/// A data directory, and the mirrors in it.
struct Site {
    directory: tempfile::TempDir,
    mirrors: Arc<Mirrors>,
}

impl Site {
    fn new(bytes_max: u64, reserve_bytes: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mirrors = load(directory.path(), bytes_max, reserve_bytes);
        Self { directory, mirrors }
    }

    /// Has a clone of `key` report one pack of `bytes`.
    async fn keep(&self, key: &MirrorKey, bytes: usize) {
        let taken = self.take(key).await;
        let clone = self.clone_of(bytes);
        taken.keep(content(bytes), clone).await;
    }

    async fn take(&self, key: &MirrorKey) -> MirrorUse {
        self.mirrors.take(key.clone(), &CancellationToken::new()).await.unwrap().unwrap()
    }

    fn clone_of(&self, bytes: usize) -> PathBuf {
        let clone = self.directory.path().join(format!("clone-{}", uuid::Uuid::now_v7()));
        let packs = clone.join(".git").join(PACKS);
        fs::create_dir_all(&packs).unwrap();
        fs::write(packs.join(format!("pack-{ID}.pack")), vec![7; bytes]).unwrap();
        fs::write(packs.join(format!("pack-{ID}.idx")), "index").unwrap();
        clone
    }

    async fn has(&self, key: &MirrorKey) -> bool {
        self.take(key).await.generation.is_some()
    }

    /// The directories of generations on the disk.
    fn on_disk(&self) -> usize {
        let tenants =
            fs::read_dir(self.directory.path().join("mirrors")).unwrap().map(|it| it.unwrap().path());
        tenants.map(|tenant| fs::read_dir(tenant).unwrap().count()).sum()
    }
}

fn load(directory: &Path, bytes_max: u64, reserve_bytes: u64) -> Arc<Mirrors> {
    let layout = Layout::create(directory).unwrap();
    layout::make_passage(&layout.mirror_drafts()).unwrap();
    let host = HostDisk::new(directory.to_owned(), reserve_bytes);
    let quota = Arc::new(Quota::new(Space::default(), host, Uncounted::Counted));
    let spec = MirrorsSpec { layout, bytes_max, quota, tasks: Tasks::default() };
    Arc::new(Mirrors::load(spec).unwrap())
}

fn content(bytes: usize) -> MirrorContent {
    let report = format!("tip {ID}\npack 1 {bytes} pack-{ID}.pack\npack 2 5 pack-{ID}.idx\n");
    MirrorContent::parse(&report).unwrap()
}

fn key(tenant: TenantId, source: &str) -> MirrorKey {
    let project: ProjectId = format!("prj_{}", "1".repeat(26)).parse().unwrap();
    MirrorKey { tenant, project, source: source.into() }
}

fn tenant() -> TenantId {
    TenantId(uuid::Uuid::now_v7())
}

/// Waits until the task that removes unused generations has done so.
async fn settled(is_settled: impl Fn() -> bool) {
    tokio::time::timeout(Duration::from_secs(20), async {
        while !is_settled() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("mirrors are removed");
}

#[tokio::test]
async fn the_mirror_that_was_unused_for_longest_makes_room_and_a_used_one_stays() {
    let site = Site::new(25_000, 0);
    let tenant = tenant();
    let [one, two, three, four] = ["1", "2", "3", "4"].map(|source| key(tenant, source));
    site.keep(&one, 10_000).await;
    site.keep(&two, 10_000).await;
    // The first is read, so the second one goes.
    let reader = site.take(&one).await;
    let read = reader.generation().unwrap().directory.clone();
    site.keep(&three, 10_000).await;
    assert_eq!((site.has(&one).await, site.has(&two).await, site.has(&three).await), (true, false, true));
    settled(|| site.on_disk() == 2).await;
    // Now both are read, and another one is not kept.
    let other = site.take(&three).await;
    site.keep(&four, 10_000).await;
    assert!(!site.has(&four).await && site.has(&one).await && site.has(&three).await && read.exists());
    drop((reader, other));
    site.keep(&four, 10_000).await;
    assert!(site.has(&four).await);
    settled(|| site.on_disk() == 2).await;
}

#[tokio::test]
async fn a_mirror_that_does_not_fit_is_not_kept_and_no_clone_waits_for_it() {
    let site = Site::new(25_000, 0);
    let large = key(tenant(), "large");
    site.keep(&large, 30_000).await;
    assert!(!site.has(&large).await);
    let [first, second] = [site.take(&large).await, site.take(&large).await];
    assert!(first.filling.is_none() && second.filling.is_none(), "none waits for another");
    // The machine keeps its reserve.
    let site = Site::new(25_000, u64::MAX / 2);
    let small = key(tenant(), "small");
    site.keep(&small, 10).await;
    assert!(!site.has(&small).await && site.on_disk() == 0);
    // Without space for mirrors there are none.
    let site = Site::new(0, 0);
    assert!(site.mirrors.take(small, &CancellationToken::new()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_clone_waits_for_the_one_that_fills_the_mirror_and_for_no_other() {
    let site = Site::new(1 << 20, 0);
    let (own, foreign) = (key(tenant(), "same"), key(tenant(), "same"));
    let first = site.take(&own).await;
    assert!(first.filling.is_some());
    let mut second = Box::pin(site.take(&own));
    assert!(second.as_mut().now_or_never().is_none());
    assert!(site.take(&foreign).await.filling.is_some(), "another tenant fills its own");
    let left = CancellationToken::new();
    left.cancel();
    let gone = site.mirrors.take(own.clone(), &left).await.unwrap().unwrap();
    assert!(gone.generation.is_none() && gone.filling.is_none(), "a caller that left does not wait");
    let clone = site.clone_of(10);
    first.keep(content(10), clone).await;
    assert!(second.await.generation.is_some(), "it has waited");
    // One that fails leaves the mirror to the next.
    let third = key(own.tenant, "third");
    drop(site.take(&third).await);
    assert!(site.take(&third).await.filling.is_some());
}

#[tokio::test]
async fn a_next_generation_shares_files_with_the_one_before_and_none_with_a_clone() {
    let site = Site::new(1 << 20, 0);
    let own = key(tenant(), "own");
    let (taken, clone) = (site.take(&own).await, site.clone_of(10));
    taken.keep(content(10), clone.clone()).await;
    let name = format!("pack-{ID}.pack");
    let inode = |path: PathBuf| fs::metadata(path.join(&name)).unwrap();
    let first = site.take(&own).await;
    let place = first.generation().unwrap().directory.join(PACKS);
    let kept = inode(place.clone());
    assert_ne!(kept.ino(), inode(clone.join(".git").join(PACKS)).ino());
    assert_eq!(kept.mode() & 0o777, 0o444);
    // A clone that began with an older generation replaces no newer one.
    let late = site.take(&own).await;
    first.keep(content(10), site.clone_of(10)).await;
    let second = site.take(&own).await;
    let newer = second.generation().unwrap().directory.join(PACKS);
    assert!(newer != place && inode(newer.clone()).ino() == kept.ino());
    late.keep(content(10), site.clone_of(10)).await;
    assert_eq!(site.take(&own).await.generation().unwrap().directory.join(PACKS), newer);
    drop(second);
    settled(|| !place.exists()).await;
    // A link in a clone leads nowhere, and a pack of another size is not kept.
    let (other, clone) = (key(own.tenant, "other"), site.clone_of(10));
    let pack = clone.join(".git").join(PACKS).join(&name);
    fs::rename(&pack, clone.join("moved")).unwrap();
    std::os::unix::fs::symlink(clone.join("moved"), &pack).unwrap();
    site.take(&other).await.keep(content(10), clone).await;
    assert!(!site.has(&other).await);
    site.take(&other).await.keep(content(10), site.clone_of(11)).await;
    assert!(
        !site.has(&other).await
            && fs::read_dir(site.mirrors.spec.layout.mirror_drafts()).unwrap().count() == 0
    );
}

#[tokio::test]
async fn mirrors_outlive_a_restart_and_go_without_use_and_with_their_tenant() {
    let site = Site::new(1 << 20, 0);
    let (used, unused, foreign) = (key(tenant(), "used"), key(tenant(), "unused"), key(tenant(), "used"));
    for key in [&used, &unused, &foreign] {
        site.keep(key, 10).await;
    }
    let old = site.take(&unused).await.generation().unwrap().directory.join("record.json");
    let time = SystemTime::now() - MIRROR_UNUSED - Duration::from_secs(60);
    fs::File::options().write(true).open(old).unwrap().set_modified(time).unwrap();
    let mirrors = load(site.directory.path(), 1 << 20, 0);
    let site = Site { mirrors, ..site };
    site.mirrors.forget_unused();
    assert!(site.has(&used).await && !site.has(&unused).await && site.has(&foreign).await);
    site.mirrors.close_tenant(used.tenant).unwrap();
    assert!(!site.has(&used).await && site.has(&foreign).await);
    let left = site.directory.path().join("mirrors").join(used.tenant.to_string());
    assert!(!left.exists());
}
