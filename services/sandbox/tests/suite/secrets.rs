//! Secrets of setups and installs: the script gets them through the door of its session, and nothing that it leaves has a value.

use crate::{
    environments::{Site, begin},
    harness::{Session, code},
    installs,
};
use domain::egress::secrets::{encode, encode_passing_refusal, encode_refusal};
use rpc::v1;
use std::{
    fs::{self, Permissions},
    io::Write as _,
    os::{
        fd::AsRawFd as _,
        unix::{fs::PermissionsExt as _, net::UnixListener},
    },
    path::{Path, PathBuf},
};

const TOKEN: &str = "npm_4711_s3cr3t";

/// Answers at the door of a session as a broker would: the answers in their order, and then the last one again.
fn serve(directory: &Path, session: &Session, answers: Vec<Vec<u8>>) {
    let tenant = session.tenant.replace('-', "");
    let door = directory.join("egress").join(tenant).join(&session.id).join("door");
    fs::create_dir_all(&door).unwrap();
    // The address of a socket has at most 107 bytes, fewer than the path may have.
    let opened = fs::File::open(&door).unwrap();
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/secrets", opened.as_raw_fd())).unwrap();
    fs::set_permissions(door.join("secrets"), Permissions::from_mode(0o666)).unwrap();
    std::thread::spawn(move || {
        let last = answers.last().cloned().into_iter().cycle();
        for (answer, stream) in answers.into_iter().chain(last).zip(listener.incoming()) {
            stream.unwrap().write_all(&answer).unwrap();
        }
    });
}

fn values() -> Vec<u8> {
    encode([("NPM_TOKEN", TOKEN), ("EMPTY", "")].into_iter())
}

/// A build of a script that gets the token.
fn request(site: &Site, session: &Session, script: &str) -> v1::BuildEnvironmentRequest {
    let secrets = vec!["NPM_TOKEN=NPM@1".to_owned()];
    v1::BuildEnvironmentRequest { secrets, ..site.request(session, script) }
}

/// The files below a directory that contain a text.
fn files_with(directory: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files_with(&path, text));
        } else if entry.file_type().unwrap().is_file() && contains(&path, text) {
            found.push(path);
        }
    }
    found
}

fn contains(path: &Path, text: &str) -> bool {
    let content = fs::read(path).unwrap();
    content.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn a_setup_gets_its_secrets_and_neither_its_log_nor_its_layer_has_a_value() {
    let Some(site) = Site::start(&[]).await else { return };
    let session = site.machine.session();
    // A broker that ends in the middle of its first answer.
    serve(site.directory.path(), &session, vec![values()[..9].to_vec(), values()]);
    let script = "echo \"token: $NPM_TOKEN, ${#EMPTY}\"; printf npm_4711; echo _s3cr3t >&2
        [ $NPM_TOKEN = npm_4711_s3cr3t ] && echo right; printf '%s' \"${NPM_TOKEN:0:4}\" > /srv/part; sleep 1000 &";
    let built = begin(&session, request(&site, &session, script)).await.unwrap().finish().await;
    assert_eq!((built.code.as_str(), built.log.as_str()), ("", "token: ***, 0\n***\nright\n"), "{built:?}");
    assert_eq!(
        files_with(&site.layer(&session.tenant, &built.key), "npm_"),
        [site.layer(&session.tenant, &built.key).join("tree/srv/part")]
    );
    let log = site.log(&session.tenant, &built.key).await.unwrap().log;
    assert_eq!(String::from_utf8_lossy(&log), built.log);
    assert_eq!(files_with(&site.directory.path().join("data"), TOKEN), Vec::<PathBuf>::new());

    // Another session has the layer without the secret, and its commands have no variable.
    let second = site.session_of(&session.tenant);
    let again = begin(&second, request(&site, &second, script)).await.unwrap();
    assert!(again.is_ready && again.key == built.key);
    site.open(&second, &again.key).await.unwrap();
    assert_eq!(second.sh("cat /srv/part; echo ${NPM_TOKEN-none}").await, "npm_none");
    // Another version of the secret is another environment.
    let third = site.session_of(&session.tenant);
    serve(site.directory.path(), &third, vec![values()]);
    let changed = v1::BuildEnvironmentRequest {
        secrets: vec!["NPM_TOKEN=NPM@2".to_owned()],
        ..request(&site, &third, script)
    };
    let other = begin(&third, changed).await.unwrap();
    assert!(!other.is_ready && other.key != built.key);
    assert_eq!(other.finish().await.code, "");
    site.machine.stop().await;
}

#[tokio::test]
async fn a_setup_that_fails_with_secrets_says_why() {
    let Some(site) = Site::start(&[]).await else { return };
    let refusal = encode_refusal("there is no secret NPM (secret_not_found)");
    for (answer, script, code, message) in [
        (
            refusal,
            "echo not run > /srv/run",
            "setup_failed",
            "flotilla: there is no secret NPM (secret_not_found)",
        ),
        (values(), "echo $NPM_TOKEN; exit 7", "setup_failed", "exit code 7; its last lines:\n***"),
        (values(), "echo $NPM_TOKEN; kill -9 $$", "setup_failed", "exit code 137; its last lines:\n***"),
        (values(), "echo $NPM_TOKEN > /srv/.npmrc", "setup_failed", "value of NPM_TOKEN in /srv/.npmrc"),
        (
            values(),
            "mkdir -m 0 /srv/shut; chmod 700 /srv/shut; echo $NPM_TOKEN > /srv/shut/x; chmod 0 /srv/shut/x /srv/shut",
            "setup_failed",
            "/srv/shut/x, where sessions could read it",
        ),
        (values(), "echo $NPM_TOKEN >> /srv/name", "setup_failed", "(secret_left)"),
    ] {
        let session = site.machine.session();
        serve(site.directory.path(), &session, vec![answer]);
        let built = begin(&session, request(&site, &session, script)).await.unwrap().finish().await;
        assert!(built.code == code && built.message.contains(message), "{script}: {built:?}");
        assert!(!built.message.contains(TOKEN) && !built.log.contains(TOKEN), "{built:?}");
        assert!(!site.layer(&session.tenant, &built.key).exists());
    }
    // The service may try again after a refusal that passes.
    let session = site.machine.session();
    serve(site.directory.path(), &session, vec![encode_passing_refusal("later (secret_unavailable)")]);
    let built = begin(&session, request(&site, &session, "true")).await.unwrap().finish().await;
    assert!(built.code == "setup_interrupted" && built.message.contains("secret_unavailable"), "{built:?}");
    assert_eq!(site.arrivals(), 0);
    // What no session sees may have the value.
    let session = site.machine.session();
    serve(site.directory.path(), &session, vec![values()]);
    let script = "for place in /tmp /dev/shm /home/agent; do echo $NPM_TOKEN > $place/.npmrc; done";
    let built = begin(&session, request(&site, &session, script)).await.unwrap().finish().await;
    assert_eq!(built.code, "", "{built:?}");
    let many = v1::BuildEnvironmentRequest {
        secrets: vec!["A=A@1".to_owned(); 17],
        ..site.request(&session, "true")
    };
    assert_eq!(code(begin(&session, many).await.map(|_| ())), "argument_invalid");
    site.machine.stop().await;
}

#[tokio::test]
async fn a_setup_with_secrets_that_never_ends_is_ended() {
    let Some(site) = Site::start(&["--setup-ms", "1000"]).await else { return };
    let session = site.machine.session();
    serve(site.directory.path(), &session, vec![values()]);
    let script = "echo waiting $NPM_TOKEN; sleep 60";
    let built = begin(&session, request(&site, &session, script)).await.unwrap().finish().await;
    assert_eq!(built.code, "setup_timeout", "{built:?}");
    assert!(!built.message.contains(TOKEN), "{built:?}");
    site.machine.stop().await;
}

/// The variables of an image for its own loader must not reach the one that starts our program.
#[tokio::test]
async fn a_setup_with_secrets_runs_in_an_image_that_preloads_a_library() {
    let Some(site) = Site::start(&[]).await else { return };
    let session = site.machine.session();
    serve(site.directory.path(), &session, vec![values()]);
    let mut request = request(&site, &session, "echo \"$LD_LIBRARY_PATH\" ${#NPM_TOKEN}");
    request.image.as_mut().unwrap().env = vec!["LD_LIBRARY_PATH=/srv/of-the-image".to_owned()];
    let built = begin(&session, request).await.unwrap().finish().await;
    assert_eq!((built.code.as_str(), built.log.as_str()), ("", "/srv/of-the-image 15\n"), "{built:?}");
    site.machine.stop().await;
}

#[tokio::test]
async fn an_install_gets_its_secrets_and_leaves_none() {
    let site = installs::Site::start(&[]).await;
    let (directory, session) = (site.directory.path(), site.machine.session());
    serve(directory, &session, vec![values()]);
    let header = |script: &str| {
        let mut header = site.header(script);
        header.install.as_mut().unwrap().secrets = vec!["NPM_TOKEN=NPM@1".to_owned()];
        header
    };
    // A token in the configuration of git is not kept, and neither is one in the home.
    let script = "echo $NPM_TOKEN; mkdir node_modules; echo ${#NPM_TOKEN} > node_modules/length
        echo $NPM_TOKEN > ~/.npmrc; git config x.token $NPM_TOKEN";
    let built = site.begin(&session, header(script)).await.unwrap().finish().await;
    assert_eq!((built.code.as_str(), built.log.as_str()), ("", "***\n"), "{built:?}");
    session.open(header(script), vec![]).await.unwrap();
    let look = "cat node_modules/length; echo ${NPM_TOKEN-none}; cat ~/.npmrc 2>&1 | grep -c 'No such'; git config x.token || echo none";
    assert_eq!(session.sh(look).await, "15\nnone\n1\nnone");
    assert_eq!(files_with(&directory.join("data"), TOKEN), Vec::<PathBuf>::new());

    let session = site.machine.session();
    serve(directory, &session, vec![values()]);
    let script = "mkdir node_modules; echo $NPM_TOKEN > node_modules/.npmrc";
    let built = site.begin(&session, header(script)).await.unwrap().finish().await;
    assert_eq!(built.code, "install_failed");
    assert!(built.message.contains("value of NPM_TOKEN in /workspace/node_modules/.npmrc"), "{built:?}");
    site.machine.stop().await;
}
