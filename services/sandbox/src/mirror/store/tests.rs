#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::{
    disk::{host::HostDisk, workspace::Uncounted},
    mirror::generation::{OBJECTS, PACKS},
};
use domain::{ids::ProjectId, text};
use futures::FutureExt as _;
use sha2::{Digest as _, Sha256};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

const ID: &str = "1111111111111111111111111111111111111111";

/// A data directory, and the mirrors in it.
struct Site {
    directory: tempfile::TempDir,
    mirrors: Arc<Mirrors>,
}

impl Site {
    /// On a machine where the mirrors of one tenant may take `bytes_max`.
    fn new(bytes_max: u64, reserve_bytes: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mirrors = load(directory.path(), bytes_max.div_ceil(3) * 4, reserve_bytes);
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

    /// Has a session of `key` transfer objects with these contents.
    async fn keep_objects(&self, key: &MirrorKey, contents: &[&str]) {
        let report = LfsReport { transferred: pointers(contents), ..LfsReport::default() };
        self.take(key).await.keep_objects(report, self.store_of(contents)).await;
    }

    /// The directory in which a helper has left objects with these contents.
    fn store_of(&self, contents: &[&str]) -> PathBuf {
        let store = self.directory.path().join(format!("store-{}", uuid::Uuid::now_v7()));
        fs::create_dir(&store).unwrap();
        for content in contents {
            fs::write(store.join(pointer(content).oid()), content).unwrap();
        }
        store
    }

    /// The contents of the objects that a next session finds.
    async fn objects(&self, key: &MirrorKey) -> Vec<String> {
        let Some(generation) = self.take(key).await.generation else { return vec![] };
        let objects = generation.objects().unwrap();
        let read = |pointer: &LfsPointer| {
            fs::read_to_string(generation.directory.join(OBJECTS).join(pointer.oid())).unwrap()
        };
        let mut contents: Vec<String> = objects.pointers().iter().map(read).collect();
        assert_eq!(
            fs::read_dir(generation.directory.join(OBJECTS)).unwrap().count(),
            contents.len(),
            "there is nothing else"
        );
        contents.sort();
        contents
    }

    /// The file of an object in the mirror.
    async fn object(&self, key: &MirrorKey, content: &str) -> PathBuf {
        let directory = self.take(key).await.generation.unwrap().directory.clone();
        directory.join(OBJECTS).join(pointer(content).oid())
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

fn pointer(content: &str) -> LfsPointer {
    LfsPointer::new(&text::hex(&Sha256::digest(content)), content.len() as u64).unwrap()
}

fn pointers(contents: &[&str]) -> Vec<LfsPointer> {
    contents.iter().map(|content| pointer(content)).collect()
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
async fn the_mirrors_of_one_tenant_push_out_no_others() {
    let site = Site::new(45_000, 0);
    let (crowd, other) = (tenant(), key(tenant(), "other"));
    site.keep(&other, 10_000).await;
    let sources = ["1", "2", "3", "4", "5", "6", "7", "8"].map(|source| key(crowd, source));
    for source in &sources {
        site.keep(source, 10_000).await;
    }
    assert!(site.has(&other).await, "it was unused for longest");
    let mut kept = 0;
    for source in &sources {
        kept += usize::from(site.has(source).await);
    }
    assert_eq!(kept, 4);
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
    // A clone that began with an older generation goes on from the newest one.
    let late = site.take(&own).await;
    first.keep(content(10), site.clone_of(10)).await;
    let second = site.take(&own).await;
    let newer = second.generation().unwrap().directory.join(PACKS);
    assert!(newer != place && inode(newer.clone()).ino() == kept.ino());
    late.keep(content(10), site.clone_of(10)).await;
    let newest = site.take(&own).await.generation().unwrap().directory.join(PACKS);
    assert_eq!(inode(newest).ino(), kept.ino());
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

#[tokio::test]
async fn objects_of_git_lfs_are_checked_and_share_no_file_with_a_session() {
    let site = Site::new(1 << 20, 0);
    let own = key(tenant(), "own");
    site.keep_objects(&own, &["early"]).await;
    assert!(!site.has(&own).await, "without packs there is no mirror");
    site.keep(&own, 10).await;
    let store = site.store_of(&["one", "two"]);
    let report = LfsReport { transferred: pointers(&["one", "two"]), ..LfsReport::default() };
    site.take(&own).await.keep_objects(report, store.clone()).await;
    assert_eq!(site.objects(&own).await, ["one", "two"]);
    let (kept, given) = (site.object(&own, "one").await, store.join(pointer("one").oid()));
    let (kept, given) = (fs::metadata(kept).unwrap(), fs::metadata(given).unwrap());
    assert!(kept.ino() != given.ino() && kept.mode() & 0o777 == 0o444);
    let other = MirrorKey { project: format!("prj_{}", "2".repeat(26)).parse().unwrap(), ..own.clone() };
    assert!(!site.has(&other).await, "another project has a mirror of its own");

    // What a helper may have written, instead of an object.
    let oid = pointer("three").oid().to_owned();
    let link = |store: &Path| std::os::unix::fs::symlink(store.join("moved"), store.join(&oid)).unwrap();
    type Damage<'a> = &'a dyn Fn(&Path);
    let damages: [(&str, Damage<'_>); 5] = [
        ("other bytes", &|store| fs::write(store.join(&oid), "thrEe").unwrap()),
        ("more bytes", &|store| fs::write(store.join(&oid), "three and more").unwrap()),
        ("fewer bytes", &|store| fs::write(store.join(&oid), "thr").unwrap()),
        ("nothing", &|store| fs::remove_file(store.join(&oid)).unwrap()),
        ("a link", &|store| {
            fs::rename(store.join(&oid), store.join("moved")).unwrap();
            link(store);
        }),
    ];
    for (name, damage) in damages {
        let store = site.store_of(&["three"]);
        damage(&store);
        let report = LfsReport { transferred: pointers(&["three"]), ..LfsReport::default() };
        site.take(&own).await.keep_objects(report, store).await;
        assert_eq!(site.objects(&own).await, ["one", "two"], "{name}");
    }
    let wrong = LfsReport {
        transferred: vec![LfsPointer::new(pointer("three").oid(), 4).unwrap()],
        ..LfsReport::default()
    };
    site.take(&own).await.keep_objects(wrong, site.store_of(&["three"])).await;
    assert_eq!(site.objects(&own).await, ["one", "two"], "another size");
    assert_eq!(fs::read_dir(site.mirrors.spec.layout.mirror_drafts()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_next_generation_has_the_objects_of_the_one_before() {
    let site = Site::new(1 << 20, 0);
    let own = key(tenant(), "own");
    site.keep(&own, 10).await;
    site.keep_objects(&own, &["one"]).await;
    let inode = async || fs::metadata(site.object(&own, "one").await).unwrap().ino();
    let first = inode().await;
    site.keep(&own, 10).await;
    assert_eq!((site.objects(&own).await, inode().await), (vec!["one".to_owned()], first));

    // Two sessions that read the same generation both keep what they have transferred.
    let (two, three) = (site.take(&own).await, site.take(&own).await);
    for (taken, content) in [(two, "two"), (three, "three")] {
        let report = LfsReport { mirrored: pointers(&["one"]), transferred: pointers(&[content]) };
        taken.keep_objects(report, site.store_of(&["one", content])).await;
    }
    assert_eq!(site.objects(&own).await, ["one", "three", "two"]);
    assert_eq!(inode().await, first);

    // A session that needs nothing else makes no generation.
    let before = site.object(&own, "one").await;
    let report = LfsReport { mirrored: pointers(&["two"]), ..LfsReport::default() };
    site.take(&own).await.keep_objects(report, site.store_of(&["two"])).await;
    assert_eq!(site.object(&own, "one").await, before);
    settled(|| site.on_disk() == 1).await;

    // The objects outlive a restart, with the bytes that they count for.
    let bytes = lock(&site.mirrors.ledger).bytes();
    let mirrors = load(site.directory.path(), 1 << 20, 0);
    let site = Site { mirrors, ..site };
    assert_eq!(site.objects(&own).await, ["one", "three", "two"]);
    assert_eq!(lock(&site.mirrors.ledger).bytes(), bytes);
}

#[tokio::test]
async fn a_damaged_object_is_replaced_by_the_one_that_a_session_has_transferred() {
    let site = Site::new(1 << 20, 0);
    let own = key(tenant(), "own");
    site.keep(&own, 10).await;
    site.keep_objects(&own, &["one", "two", "three"]).await;
    let damaged = site.object(&own, "one").await;
    fs::set_permissions(&damaged, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&damaged, "onE").unwrap();
    fs::remove_file(site.object(&own, "two").await).unwrap();
    fs::remove_file(site.object(&own, "three").await).unwrap();
    let report = LfsReport { transferred: pointers(&["one", "two"]), ..LfsReport::default() };
    site.take(&own).await.keep_objects(report, site.store_of(&["one", "two"])).await;
    assert_eq!(site.objects(&own).await, ["one", "two"], "the third one is not there any more");
    // A damaged list is found with the files that the service wrote.
    let generation = site.take(&own).await.generation.unwrap().directory.clone();
    let list = generation.join("lfs-objects");
    fs::set_permissions(&list, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&list, "").unwrap();
    assert!(!site.has(&own).await);
    settled(|| site.on_disk() == 0).await;
}

#[tokio::test]
async fn objects_leave_room_for_the_packs_and_the_newest_stay() {
    let site = Site::new(40_000, 0);
    let own = key(tenant(), "own");
    let contents = ["1", "2", "3"].map(|digit| digit.repeat(6_000));
    let [one, two, three] = contents.each_ref().map(String::as_str);
    site.keep(&own, 10_000).await;
    site.keep_objects(&own, &[one, two]).await;
    site.keep_objects(&own, &[three]).await;
    let kept = site.objects(&own).await;
    assert!(
        kept.len() == 2 && kept.iter().any(|content| content == three),
        "half of what the packs leave is for objects"
    );
    assert!(lock(&site.mirrors.ledger).bytes() > 22_000, "objects count");
    // More packs leave less room for objects. The service still keeps the mirror.
    site.keep(&own, 30_000).await;
    assert_eq!(site.objects(&own).await, Vec::<String>::new());
    // A mirror without use makes room for the objects of another one.
    let other = key(own.tenant, "other");
    site.keep(&other, 5_000).await;
    assert!(site.has(&own).await && site.has(&other).await);
    site.keep_objects(&other, &[one]).await;
    assert_eq!((site.has(&own).await, site.objects(&other).await), (false, vec![one.to_owned()]));
}

#[tokio::test]
async fn a_clone_waits_for_the_packs_of_the_first_one_and_not_for_its_objects() {
    let site = Site::new(1 << 20, 0);
    let own = key(tenant(), "own");
    let first = site.take(&own).await;
    let mut second = Box::pin(site.take(&own));
    assert!(second.as_mut().now_or_never().is_none());
    let first = first.keep(content(10), site.clone_of(10)).await.unwrap();
    let second = second.await;
    assert!(second.filling.is_none() && second.generation.is_some());

    // It finds them when it asks again.
    let report = LfsReport { transferred: pointers(&["one"]), ..LfsReport::default() };
    first.keep_objects(report, site.store_of(&["one"])).await;
    let second = second.refresh().await.unwrap();
    assert_eq!(second.generation.unwrap().objects().unwrap().pointers(), pointers(&["one"]));
}

#[tokio::test]
async fn one_session_brings_objects_and_the_others_learn_where_until_it_ends() {
    let site = Site::new(1 << 20, 0);
    let (own, foreign) = (key(tenant(), "same"), key(tenant(), "same"));
    site.keep(&own, 10).await;
    let begin = async |key: &MirrorKey, content: &str| {
        site.take(key).await.begin_objects(&site.store_of(&[content])).unwrap()
    };
    let first = begin(&own, "one").await;
    assert!(matches!(first, ObjectsBringer::This(_)) && first.arrival().is_none());
    let second = begin(&own, "two").await;
    assert!(matches!(second, ObjectsBringer::Other(_)) && second.arrival().is_some());
    assert!(matches!(begin(&foreign, "one").await, ObjectsBringer::This(_)), "another tenant learns nothing");
    drop(second);
    assert!(matches!(begin(&own, "two").await, ObjectsBringer::Other(_)));
    drop(first);
    assert!(matches!(begin(&own, "two").await, ObjectsBringer::This(_)));
    assert_eq!(fs::read_dir(site.mirrors.spec.layout.mirror_drafts()).unwrap().count(), 0);
}

#[tokio::test]
async fn sessions_that_keep_objects_at_once_lose_none() {
    let site = Site::new(1 << 20, 0);
    let own = key(tenant(), "own");
    site.keep(&own, 10).await;
    let contents = ["1", "2", "3", "4", "5", "6", "7", "8"];
    let (place, name) = (&site, &own);
    let keep = |content| async move { place.keep_objects(name, &[content]).await };
    futures::future::join_all(contents.map(keep)).await;
    assert_eq!(site.objects(&own).await, contents);
}

#[tokio::test]
async fn packs_of_a_clone_are_kept_although_a_session_has_kept_objects_meanwhile() {
    let site = Site::new(1 << 20, 0);
    let own = key(tenant(), "own");
    site.keep(&own, 10).await;
    let [early, late] = [site.take(&own).await, site.take(&own).await];
    site.keep_objects(&own, &["one"]).await;
    early.keep(content(20), site.clone_of(20)).await;
    let newest = site.take(&own).await.generation.unwrap().content().unwrap();
    assert_eq!((newest.bytes(), site.objects(&own).await), (content(20).bytes(), vec!["one".to_owned()]));
    // Another clone has replaced the packs that this one knows.
    late.keep(content(30), site.clone_of(30)).await;
    assert_eq!(site.take(&own).await.generation.unwrap().content().unwrap().bytes(), content(20).bytes());
}
