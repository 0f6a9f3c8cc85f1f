//! Setups that try to get out, to leave something behind, or to reach another tenant.

use crate::{
    environments::{Site, begin, project},
    harness::{Session, code},
    layers::image,
};
use rpc::v1;
use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
};

#[tokio::test]
async fn a_setup_is_root_without_any_right() {
    let Some(site) = Site::start(&[]).await else { return };
    let secret = site.directory.path().join("secret");
    fs::write(&secret, "canary").unwrap();
    let session = site.machine.session();
    let script = format!(
        "id -u; id -g
        while read -r name value; do case $name in Cap*|NoNewPrivs:) echo $name $value;; esac; done < /proc/self/status
        echo x > /srv/file; chown 12:34 /srv/file && echo pretended; id -u
        groupadd -r database && cat /etc/group
        mknod /srv/device c 1 3 && [ ! -e /srv/device ] && echo no device
        for attack in 'mount -t tmpfs none /srv' 'unshare --user /bin/bash -c :' 'mount --bind / /srv' 'cat {secret}' \\
          'cat /proc/1/environ' 'mount -o remount,rw /sys'; do
          $attack >/dev/null 2>&1 && echo \"reached: $attack\"
        done
        (echo 1 > /proc/sys/kernel/panic) 2>/dev/null && echo reached: sysctl
        (exec 9<>/dev/tcp/1.1.1.1/53) 2>/dev/null && echo reached: network
        echo /oldroot/*; echo canary",
        secret = secret.display()
    );
    let built = site.build(&session, &script).await;
    let none = "0000000000000000";
    let want = format!(
        "0\n0\nCapInh: {none}\nCapPrm: {none}\nCapEff: {none}\nCapBnd: {none}\nCapAmb: {none}\nNoNewPrivs: 1\npretended\n0\nroot:x:0:\nnogroup:x:65534:\nagent:x:1000:\ndatabase:x:999:\nno device\n/oldroot/*\ncanary\n"
    );
    assert_eq!((built.code.as_str(), built.log), ("", want));
    site.machine.stop().await;
}

#[tokio::test]
async fn what_no_layer_may_have_is_not_kept() {
    let Some(site) = Site::start(&[]).await else { return };
    let session = site.machine.session();
    let script = "set +e
        echo x > /srv/setid; chmod 6755 /srv/setid; mkfifo /srv/fifo; mkdir -p /srv/dir; chmod 1777 /srv/dir
        echo x > /srv/closed; chmod 0 /srv/closed
        echo evil > /etc/hosts; echo evil > /etc/resolv.conf; echo evil > /workspace/evil; mkdir /opt/flotilla/evil
        rm -f /var/tmp; ln -s /etc /var/tmp; rm -rf /sys; ln -s / /sys; mv /home /home-before; ln -s /etc /home
        mv /opt /opt-before; ln -s /oldroot /opt; mv /run /run-before; ln -s /oldroot/tmp /run; echo over";
    let built = site.build(&session, script).await;
    assert_eq!((built.code.as_str(), built.log.ends_with("over\n")), ("", true), "{built:?}");
    let tree = site.layer(&session.tenant, &built.key).join("tree");
    let mode = |name: &str| fs::metadata(tree.join(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("srv/setid"), mode("srv/dir"), mode("srv/closed")), (0o755, 0o1777, 0o444));
    let owner = fs::metadata(&tree).unwrap().uid();
    let mut open = vec![tree.clone()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let stat = path.symlink_metadata().unwrap();
            let kind = stat.file_type();
            assert!(!kind.is_fifo() && !kind.is_socket() && !kind.is_block_device(), "{}", path.display());
            assert!(!kind.is_char_device() || stat.rdev() == 0, "{}", path.display());
            assert_eq!((stat.uid(), stat.mode() & 0o6000), (owner, 0), "{}", path.display());
            let attributes = rustix::fs::llistxattr(&path, &mut [0; 4096]).unwrap();
            let is_opaque = rustix::fs::lgetxattr(&path, "user.overlay.opaque", &mut [0; 4]).is_ok();
            assert_eq!(
                attributes,
                if is_opaque { "user.overlay.opaque".len() + 1 } else { 0 },
                "{}",
                path.display()
            );
            if kind.is_dir() {
                open.push(path);
            }
        }
    }
    for hidden in ["etc/hosts", "etc/resolv.conf", "workspace", "opt/flotilla", "var/tmp", "sys", "run"] {
        assert!(tree.join(hidden).symlink_metadata().is_err(), "{hidden}");
    }
    // A session has its own mount points, and nothing was made on the machine.
    site.open(&session, &built.key).await.unwrap();
    assert_eq!(
        session.sh("cat /etc/hosts; cd /workspace; echo *").await,
        "127.0.0.1 localhost sandbox\n::1 localhost\n*"
    );
    for place in ["/workspace/x", "/tmp/x", "/var/tmp/y", "/home/agent/x", "/run/egress/x"] {
        let written = session.run(&format!("echo {place} > {place}; cat {place}")).await.output;
        assert_eq!(written.trim() == place, place != "/run/egress/x", "{written}");
    }
    site.machine.stop().await;
}

#[tokio::test]
async fn a_fork_bomb_ends_with_its_build_and_nothing_of_a_build_stays() {
    let Some(site) = Site::start(&["--setup-ms", "2000", "--processes", "64"]).await else { return };
    let (session, other) = (site.machine.session(), site.machine.empty_session().await);
    let mut running = site.begin(&session, "echo begun; bomb() { bomb | bomb & }; bomb; sleep 1000").await;
    running.until("begun").await;
    assert_eq!(other.sh("echo works").await, "works", "another tenant works meanwhile");
    let built = running.finish().await;
    assert!(["setup_timeout", "setup_failed"].contains(&built.code.as_str()), "{built:?}");
    let built = site.build(&session, "sleep 1000 & (sleep 1000 &) ; echo over").await;
    assert_eq!((built.code.as_str(), built.log.as_str()), ("", "over\n"));
    let owner = fs::metadata(site.layer(&session.tenant, &built.key).join("tree")).unwrap().uid();
    if nix::unistd::geteuid().is_root() {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let left = processes.filter(|entry| entry.metadata().is_ok_and(|process| process.uid() == owner));
        assert_eq!(left.count(), 0);
    }
    site.machine.stop().await;
}

#[tokio::test]
async fn the_layers_below_a_build_stay_as_they_are() {
    let Some(site) = Site::start(&[]).await else { return };
    let session = site.machine.session();
    let name = |layer: &crate::layers::Layer| layer.id().trim_start_matches("sha256:").to_owned();
    let below =
        site.directory.path().join("data/images/layers").join(name(&site.image[1])).join("tree/srv/name");
    let built =
        site.build(&session, "echo evil > /srv/name; chmod 777 /srv/name; rm -rf /bin; echo over").await;
    assert_eq!((built.code.as_str(), built.log.as_str()), ("", "over\n"), "{built:?}");
    assert_eq!(fs::read_to_string(&below).unwrap(), "of the image");
    assert_eq!(fs::metadata(&below).unwrap().mode() & 0o777, 0o644);
    let other = site.machine.session();
    site.open(&other, "").await.unwrap();
    assert_eq!(other.sh("cat /srv/name").await, "of the image");
    site.machine.stop().await;
}

#[tokio::test]
async fn another_tenant_has_no_part_in_an_environment() {
    let Some(site) = Site::start(&[]).await else { return };
    let (session, thief) = (site.machine.session(), site.machine.session());
    assert_ne!(session.tenant, thief.tenant);
    let script = "echo of one tenant > /srv/secret; echo secret log";
    let built = site.build(&session, script).await;
    assert_eq!(code(site.open(&thief, &built.key).await), "environment_missing");
    assert_eq!(code(site.log(&thief.tenant, &built.key).await), "environment_unknown");
    assert_eq!(code(site.remove(&thief.tenant, &built.key).await), "environment_unknown");
    assert!(site.list(&thief.tenant).await.is_empty());
    // A request names the layers of its image by digests, so it cannot name the layer of an environment there, even its own.
    let mut header = v1::WorkspaceHeader {
        image: Some(image(&site.image.iter().collect::<Vec<_>>())),
        ..Default::default()
    };
    let tenant = session.tenant.replace('-', "");
    header.image.as_mut().unwrap().diff_ids.push(format!("environment:{tenant}:{}", built.key));
    assert_eq!(code(thief.open(header, vec![]).await), "argument_invalid");
    for key in ["..", "../../layers", &built.key[1..], &built.key.to_uppercase()] {
        assert_eq!(code(site.open(&thief, key).await), "argument_invalid", "{key}");
        assert_eq!(code(site.log(&thief.tenant, key).await), "argument_invalid", "{key}");
    }
    // The same content is built again for the other tenant. Without secrets, another project of the same one has it.
    let own = site.build(&thief, script).await;
    assert!(own.key != built.key && !own.is_ready, "{own:?}");
    let second = site.session_of(&session.tenant);
    let mut request = site.request(&second, script);
    request.project_id = format!("prj_{}", "1".repeat(26));
    assert_ne!(request.project_id, project());
    let other = begin(&second, request).await.unwrap().finish().await;
    assert!(other.key == built.key && other.is_ready, "{other:?}");
    site.machine.stop().await;
}

#[tokio::test]
async fn only_the_newest_loop_builds_and_a_setup_needs_an_image() {
    let Some(site) = Site::start(&[]).await else { return };
    let session = site.machine.session();
    let newer = Session { epoch: 2, ..session.clone() };
    newer.kill_all().await.unwrap();
    assert_eq!(code(begin(&session, site.request(&session, "true")).await.map(|_| ())), "epoch_stale");
    let mut plain = site.request(&newer, "true");
    plain.image = None;
    assert_eq!(code(begin(&newer, plain).await.map(|_| ())), "argument_invalid");
    let mut missing = site.request(&newer, "true");
    missing.image.as_mut().unwrap().diff_ids.push(format!("sha256:{}", "0".repeat(64)));
    assert_eq!(begin(&newer, missing).await.unwrap().finish().await.code, "layers_missing");
    assert!(Path::new("/bin/bash").exists());
    site.machine.stop().await;
}
