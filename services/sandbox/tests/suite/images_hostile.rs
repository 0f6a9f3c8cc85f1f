//! Layers and images that attack the machine. What unpacking itself refuses is tested where layers are unpacked.

use crate::{
    harness::{code, config, directory, is_root},
    layers::{Archive, Layer, base, digest, missing, put, session_with, start},
};
use rpc::v1::{self, put_layer_request::Part};
use sandbox::{
    disk::{
        host::HostDisk,
        space::Space,
        workspace::{Quota, Uncounted},
    },
    image::{
        manifest::Manifest,
        store::{Store, StoreSpec},
    },
    isolation::{
        facts::Facts,
        launch::{Directories, LaunchSpec, Launcher, Mount, Program, give_to},
        policy::Network,
        root::image::{ImageRoot, Overlay, Root},
    },
    layout::Layout,
    user_ids::UserIds,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;
use tokio_stream::wrappers::ReceiverStream;

/// The parents of every mount point, and the mount points.
const NAMES: [&str; 17] = [
    "dev",
    "etc",
    "home",
    "opt",
    "proc",
    "run",
    "sys",
    "tmp",
    "var",
    "workspace",
    "home/agent",
    "opt/flotilla",
    "run/sbx",
    "run/sbx/out",
    "etc/hosts",
    "etc/passwd",
    "opt/flotilla/init",
];

#[tokio::test]
async fn a_layer_that_is_not_what_its_sender_says_leaves_nothing() {
    let directory = directory();
    let Some(machine) = start(directory.path(), &[]).await else { return };
    let client = &machine.client;
    let honest = base();
    let with = |change: fn(&mut Layer)| {
        let mut layer = honest.clone();
        change(&mut layer);
        layer
    };
    let bomb = Archive::default().file("zeros", &vec![0; 80 << 20]).gzip();
    let cases = [
        (with(|layer| layer.header.digest = digest(b"other")), "layer_digest_wrong"),
        (with(|layer| layer.header.diff_id = digest(b"other")), "layer_digest_wrong"),
        (with(|layer| layer.blob.truncate(layer.blob.len() / 2)), "layer_unreadable"),
        (with(|layer| layer.blob.push(0)), "layer_unreadable"),
        (with(|layer| layer.blob = b"<html>".to_vec()), "layer_unreadable"),
        (Archive::default().link("a", "..").file("a/b", b"").layer(), "layer_path_invalid"),
        (bomb, "layer_bomb"),
        (with(|layer| layer.header.media_type = "text/html".to_owned()), "argument_invalid"),
        (with(|layer| layer.header.diff_id = "sha256:../../x".to_owned()), "argument_invalid"),
    ];
    let data = directory.path().join("data/images");
    for (layer, want) in cases {
        assert_eq!(code(put(client, &layer).await), want);
        for name in ["layers", "arrivals"] {
            assert_eq!(fs::read_dir(data.join(name)).unwrap().count(), 0, "{want}: {name}");
        }
    }
    assert!(put(client, &honest).await.unwrap());
    assert_eq!(missing(client, &[&honest]).await, Vec::<String>::new());
    machine.stop().await;
}

#[tokio::test]
async fn a_sender_that_leaves_leaves_nothing() {
    let directory = directory();
    let Some(machine) = start(directory.path(), &[]).await else { return };
    let layer = base();
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let header = v1::PutLayerRequest { part: Some(Part::Header(layer.header.clone())) };
    let half = v1::PutLayerRequest { part: Some(Part::Data(layer.blob[..1000].to_vec())) };
    let mut client = machine.client.clone();
    let call = tokio::spawn(async move { client.put_layer(ReceiverStream::new(receiver)).await });
    sender.send(header).await.unwrap();
    sender.send(half.clone()).await.unwrap();
    // It is being unpacked when a third part has room.
    sender.send(half).await.unwrap();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    // The next sender waits until the first one is gone.
    assert!(put(&machine.client, &layer).await.unwrap());
    machine.stop().await;
    assert_eq!(fs::read_dir(directory.path().join("data/images/layers")).unwrap().count(), 1);
}

#[tokio::test]
async fn slow_senders_of_one_tenant_delay_no_layer_of_another() {
    let directory = directory();
    let Some(machine) = start(directory.path(), &[]).await else { return };
    let of_new_tenant = |layer: &Layer| {
        let mut layer = layer.clone();
        layer.header.tenant_id = uuid::Uuid::now_v7().to_string();
        layer
    };
    let layer = base();
    let slow = of_new_tenant(&layer);
    let mut another = slow.clone();
    another.header.diff_id = digest(b"another layer");
    let mut senders = vec![];
    // One of them sends the layer that the other tenant needs too.
    for slow in [slow, another] {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let mut client = machine.client.clone();
        let call = tokio::spawn(async move { client.put_layer(ReceiverStream::new(receiver)).await });
        let pieces = slow.blob[..2000].chunks(1000).map(|piece| Part::Data(piece.to_vec()));
        for part in [Part::Header(slow.header)].into_iter().chain(pieces) {
            sender.send(v1::PutLayerRequest { part: Some(part) }).await.unwrap();
        }
        senders.push((sender, call));
    }
    assert!(put(&machine.client, &of_new_tenant(&layer)).await.unwrap());
    assert!(senders.iter().all(|(_, call)| !call.is_finished()), "it waited for the slow senders");
    drop(senders);
    machine.stop().await;
}

#[tokio::test]
async fn a_machine_that_cannot_join_layers_says_so() {
    let directory = directory();
    let layout = Layout::create(directory.path()).unwrap();
    let host = HostDisk::new(directory.path().to_owned(), 0);
    let store = Store::load(
        StoreSpec {
            layout,
            unpack: PathBuf::new(),
            owner: None,
            overlay: Overlay::Unsupported("bubblewrap is too old".to_owned()),
            bytes_max: 1 << 30,
            quota: Arc::new(Quota::new(Space::default(), host, Uncounted::Counted)),
            tasks: chassis::tasks::Tasks::default(),
        },
        &[],
    );
    let store = Arc::new(store.unwrap());
    let image = Manifest::parse(&[digest(b"layer")]).unwrap();
    let error = store.pin(&image).unwrap_err();
    assert_eq!(error.code().as_str(), "images_unsupported");
    assert_eq!(error.to_string(), "this machine cannot run images: bubblewrap is too old");
    assert!(store.pin(&Manifest::default()).is_ok(), "the machine's own root works");
}

/// A directory of this machine that every user may write. It is not below /tmp, which sandboxes replace before they see anything.
fn target() -> TempDir {
    let target = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(target.path(), fs::Permissions::from_mode(0o777)).unwrap();
    target
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

#[tokio::test]
async fn an_image_cannot_lead_mount_points_out_of_itself() {
    let directory = directory();
    let target = target();
    let Some(machine) = start(directory.path(), &[]).await else { return };
    let lead = format!("/oldroot{}", target.path().display());
    type Shape = fn(Archive, &str, &str) -> Archive;
    let shapes: [Shape; 3] = [
        |archive, name, lead| archive.link(name, lead),
        |archive, name, _| archive.file(name, b"a file of the image"),
        |archive, name, _| archive.file(&format!("{name}/inner"), b"a directory of the image"),
    ];
    for shape in shapes {
        for depth in 0..4 {
            let names = NAMES.iter().filter(|name| name.matches('/').count() == depth);
            let hostile = names.fold(Archive::default(), |archive, name| shape(archive, name, &lead));
            let session = session_with(&machine, &[&base(), &hostile.layer()]).await;
            assert_eq!(
                session.sh("echo inside > /tmp/x; cat /tmp/x; cat /etc/hosts").await.lines().count(),
                3
            );
            assert!(is_empty(target.path()), "depth {depth}");
            session.close().await;
        }
    }
    machine.stop().await;
}

/// Starts a sandbox whose image has no skeleton on top, and returns whether it could create something in `target`.
async fn reaches(target: &Path) -> bool {
    let directory = directory();
    let facts =
        Facts::find(&config(directory.path(), &[]), UserIds { first: 1_948_000_000, count: 1 }).unwrap();
    let uid = facts.user_ids.first;
    let place = |name: &str| -> PathBuf {
        let path = directory.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    };
    let (tree, out, layer, empty) = (place("tree"), place("out"), place("layer"), place("empty"));
    give_to(&facts, uid, &tree).unwrap();
    for name in ["dev", "etc", "home/agent", "opt/flotilla", "proc", "sys", "tmp", "workspace"] {
        place(&format!("layer/{name}"));
    }
    std::os::unix::fs::symlink(format!("/oldroot{}", target.display()), layer.join("run")).unwrap();
    let directories =
        Directories { etc: place("etc"), libraries: place("libraries"), copies: place("copies") };
    let launcher = Launcher::start(facts, directories, chassis::tasks::Tasks::default()).unwrap();
    let spec = LaunchSpec {
        program: Program::Script("true", Vec::new()),
        tenant: domain::ids::TenantId(uuid::Uuid::now_v7()),
        uid,
        root: Root::Image(ImageRoot { layers: vec![empty, layer] }),
        mounts: vec![Mount::write(&tree, "/workspace"), Mount::read(&out, "/run/sbx/out")],
        network: Network::None,
        options: domain::session::environment::SandboxOptions::NONE,
        permit: None,
    };
    launcher.launch(spec).await.unwrap().wait().await;
    target.join("sbx").is_dir()
}

#[tokio::test]
async fn without_the_skeleton_a_link_would_lead_to_the_machine() {
    if !is_root() {
        return testkit::left_out::skip(
            "the launcher of a user other than root joins no layers with every bubblewrap",
        );
    }
    let target = target();
    assert!(reaches(target.path()).await, "the control of the test of mount points");
}
