//! Sessions with an image: what they see, what they share, and how long its layers stay.

use crate::{
    harness::{code, directory},
    layers::{Archive, Layer, base, missing, open, put, session_with, start},
};
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Five layers. The third hides a file and a directory of the second, the fourth hides what the third left of another one.
fn image() -> [Layer; 5] {
    let second = Archive::default()
        .program("usr/local/bin/only-here", b"#!/bin/bash\necho \"only in the image: $1\"\n")
        .file("srv/gone", b"gone")
        .file("srv/stays", b"stays")
        .directory("srv/tree")
        .file("srv/tree/old", b"old");
    let third = Archive::default().file("srv/.wh.gone", b"").file("srv/tree/newer", b"newer");
    let fourth = Archive::default().file("srv/tree/.wh..wh..opq", b"").file("srv/tree/newest", b"newest");
    let fifth = Archive::default()
        .file("etc/passwd", b"root:x:0:0:root:/root:/bin/bash\nnode:x:1000:1000::/home/node:/bin/bash\n")
        .file("etc/hosts", b"10.0.0.1 build-machine\n")
        .file("etc/java-17-openjdk/security/java.security", b"settings of the image\n");
    [base(), second.layer(), third.gzip(), fourth.layer(), fifth.layer()]
}

fn layer_directory(directory: &Path, layer: &Layer) -> PathBuf {
    directory.join("data/images/layers").join(layer.id().trim_start_matches("sha256:"))
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn a_session_sees_its_image_and_nothing_of_the_machine() {
    let directory = directory();
    let Some(machine) = start(directory.path(), &[]).await else { return };
    let image = image();
    let session = session_with(&machine, &image.each_ref()).await;
    assert_eq!(session.sh("only-here now").await, "only in the image: now");
    assert_eq!(session.sh("cd /srv; echo * tree/*").await, "stays tree tree/newest");
    assert!(Path::new("/usr/bin/env").exists());
    assert_eq!(session.sh("echo /usr/bin/* /usr/*").await, "/usr/bin/* /usr/local");
    // The image's own settings of Java; hosts and users are ours.
    assert_eq!(session.sh("cat /etc/java-17-openjdk/security/java.security").await, "settings of the image");
    assert_eq!(
        session.sh("cat /etc/hosts /etc/resolv.conf").await,
        "127.0.0.1 localhost sandbox\n::1 localhost"
    );
    let users = "root:x:0:0:root:/root:/bin/bash\nagent:x:1000:1000:Flotilla Agent:/home/agent:/bin/bash";
    assert_eq!(session.sh("cat /etc/passwd").await, users);
    assert_eq!(session.sh("echo $UID ~agent ~root $PWD").await, "1000 /home/agent /root /workspace");
    for place in ["/workspace/x", "/tmp/x", "/var/tmp/y", "/home/agent/x", "/dev/shm/x"] {
        assert_eq!(session.sh(&format!("echo {place} > {place}; cat {place}")).await, place);
    }
    let mounts = session.sh("cat /proc/mounts").await;
    assert!(mounts.starts_with("overlay / overlay ro,nosuid,nodev"), "{mounts}");
    if nix::unistd::geteuid().is_root() {
        assert!(!mounts.contains("data/images"), "{mounts}");
    }
    session.write("file", b"written from outside").await.unwrap();
    assert_eq!(session.sh("cat file").await, "written from outside");
    // A helper of ours works on the machine's own programs, although the image has no git.
    let diff = rpc::v1::DiffWorkspaceRequest {
        tenant_id: session.tenant.clone(),
        session_id: session.id.clone(),
        ..Default::default()
    };
    let diff = session.client.clone().diff_workspace(diff).await.unwrap().into_inner();
    assert!(format!("{diff:?}").contains("written from outside"), "{diff:?}");
    machine.stop().await;
}

#[tokio::test]
async fn sessions_share_the_layers_and_cannot_write_them() {
    let directory = directory();
    let Some(machine) = start(directory.path(), &[]).await else { return };
    let image = [base(), Archive::default().file("srv/shared", b"shared").directory("srv/open").layer()];
    let one = session_with(&machine, &image.each_ref()).await;
    let other = session_with(&machine, &image.each_ref()).await;
    assert_ne!(one.tenant, other.tenant);
    for session in [&one, &other] {
        for attack in
            ["echo x > /srv/shared", "echo x > /srv/open/new", "echo x > /new", "echo x > /etc/hosts"]
        {
            let outcome = session.run(&format!("echo canary; {attack}")).await;
            assert!(outcome.output.starts_with("canary\n"), "{outcome:?}");
            assert!(outcome.output.contains("Read-only file system"), "{attack}: {outcome:?}");
        }
        assert_eq!(session.sh("cat /srv/shared").await, "shared");
    }
    assert_eq!(names(&directory.path().join("data/images/layers")).len(), 2);
    let shared = layer_directory(directory.path(), &image[1]).join("tree/srv/shared");
    assert_eq!(fs::read_to_string(&shared).unwrap(), "shared");
    // Nothing runs as the owner of the layers: neither the service nor a session.
    let owner = fs::metadata(&shared).unwrap().uid();
    let users: BTreeSet<u32> = [&one, &other]
        .map(|session| fs::metadata(session.place(&directory, "ws").join("tree")).unwrap().uid())
        .into();
    if nix::unistd::geteuid().is_root() {
        assert!(owner != 0 && users.len() == 2 && !users.contains(&owner), "{owner} {users:?}");
    }
    machine.stop().await;
}

#[tokio::test]
async fn the_root_outlives_a_restart_and_what_was_half_there_does_not() {
    let directory = directory();
    let Some(machine) = start(directory.path(), &[]).await else { return };
    let image = [base(), Archive::default().file("srv/name", b"first").layer()];
    let session = session_with(&machine, &image.each_ref()).await;
    assert_eq!(session.sh("cat /srv/name").await, "first");
    // An existing workspace keeps its root, whatever a later call names.
    let other = Archive::default().file("srv/name", b"second").layer();
    put(&machine.client, &other).await.unwrap();
    assert!(!open(&session, &[&image[0], &other]).await.unwrap().created);
    machine.stop().await;
    // As a service leaves them that is killed while it unpacks and removes layers.
    let arrivals = directory.path().join("data/images/arrivals");
    fs::create_dir_all(arrivals.join("half/tree/srv")).unwrap();
    fs::write(arrivals.join("half/tree/srv/name"), "half").unwrap();

    let Some(machine) = start(directory.path(), &[]).await else { return };
    assert_eq!(names(&arrivals), Vec::<String>::new());
    assert_eq!(missing(&machine.client, &[&image[0], &image[1], &other]).await, Vec::<String>::new());
    let session = crate::harness::Session { client: machine.client.clone(), ..session };
    assert_eq!(session.sh("cat /srv/name").await, "first");
    let child = session.child();
    assert_eq!(child.sh("cat /srv/name").await, "first", "a subtask in the same workspace has the same root");
    machine.stop().await;
}

#[tokio::test]
async fn layers_that_no_workspace_uses_make_room() {
    let directory = directory();
    let Some(machine) = start(directory.path(), &["--image-bytes", "33554432"]).await else { return };
    let client = &machine.client;
    let large =
        |name: &str, mebibytes: usize| Archive::default().file(name, &vec![1; mebibytes << 20]).layer();
    let (base, used, unused, next) = (base(), large("used", 12), large("unused", 12), large("next", 12));
    let session = session_with(&machine, &[&base, &used]).await;
    put(client, &unused).await.unwrap();
    assert!(!put(client, &unused).await.unwrap(), "it is there");
    put(client, &next).await.unwrap();
    assert_eq!(missing(client, &[&base, &used, &unused, &next]).await, [unused.id()]);
    let too_large = large("too large", 26);
    assert_eq!(code(put(client, &too_large).await), "images_full");
    assert_eq!(
        missing(client, &[&base, &used, &next]).await,
        Vec::<String>::new(),
        "nothing was removed for it"
    );
    assert_eq!(session.sh("echo /us*").await, "/used");

    let skeletons = directory.path().join("data/images/skeletons");
    assert_eq!(names(&skeletons).len(), 1);
    session.close().await;
    assert_eq!(names(&skeletons), Vec::<String>::new());
    assert!(put(client, &too_large).await.unwrap());
    let absent = missing(client, &[&used, &next, &too_large]).await;
    assert!(absent.contains(&used.id()) && !absent.contains(&too_large.id()), "{absent:?}");
    let refused = open(&machine.session(), &[&base, &used]).await.unwrap_err();
    assert!(refused.message().contains(&used.id()), "{refused:?}");
    assert_eq!(code(Err::<(), _>(refused)), "layers_missing");
    machine.stop().await;
}

#[tokio::test]
async fn the_layers_of_one_tenant_push_out_no_others() {
    let directory = directory();
    let Some(machine) = start(directory.path(), &["--image-bytes", "33554432"]).await else { return };
    let [crowd, other] = [(); 2].map(|()| uuid::Uuid::now_v7().to_string());
    let layer = |tenant: &str, name: &str| {
        let mut layer = Archive::default().file(name, &vec![1; 6 << 20]).layer();
        layer.header.tenant_id = tenant.to_owned();
        layer
    };
    let theirs = layer(&other, "other");
    put(&machine.client, &theirs).await.unwrap();
    let layers = ["1", "2", "3", "4", "5", "6"].map(|name| layer(&crowd, name));
    for layer in &layers[..4] {
        put(&machine.client, layer).await.unwrap();
    }
    machine.stop().await;
    // The next start knows whose they are.
    let Some(machine) = start(directory.path(), &["--image-bytes", "33554432"]).await else { return };
    for layer in &layers[4..] {
        put(&machine.client, layer).await.unwrap();
    }
    let all: Vec<_> = layers.iter().chain([&theirs]).collect();
    let gone: Vec<String> = layers[..3].iter().map(Layer::id).collect();
    assert_eq!(missing(&machine.client, &all).await, gone, "three of 6 MiB fit into its share of 24 MiB");
    machine.stop().await;
}

#[tokio::test]
async fn a_layer_that_two_callers_send_is_unpacked_once() {
    let directory = directory();
    let Some(machine) = start(directory.path(), &[]).await else { return };
    let layer = base();
    let sent = futures::future::join_all([0; 4].map(|_| put(&machine.client, &layer))).await;
    let taken = sent.into_iter().filter(|sent| *sent.as_ref().unwrap()).count();
    assert_eq!(taken, 1);
    machine.stop().await;
}

#[tokio::test]
async fn a_proof_is_checked_although_the_machine_has_the_layer() {
    let directory = directory();
    let Some(machine) = start(directory.path(), &[]).await else { return };
    let layer = Archive::default().file("srv/secret", b"of another tenant").layer();
    let other = Archive::default().file("srv/other", b"bytes").layer();
    assert!(put(&machine.client, &layer).await.unwrap());
    // The digest of the layer over bytes that are not its own: without a proof nobody looks at them.
    let mut named = layer.clone();
    (named.blob, named.header.digest) = (other.blob.clone(), other.header.digest.clone());
    assert!(!put(&machine.client, &named).await.unwrap());
    named.header.is_proof = true;
    assert_eq!(code(put(&machine.client, &named).await), "layer_digest_wrong");
    let mut proof = layer.clone();
    proof.header.is_proof = true;
    assert!(!put(&machine.client, &proof).await.unwrap(), "the machine had it");
    assert_eq!(names(&directory.path().join("data/images/arrivals")), Vec::<String>::new());
    let session = session_with(&machine, &[&base(), &layer]).await;
    assert_eq!(session.sh("cat /srv/secret").await, "of another tenant");
}
