#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::{fs::File, time::Duration};
use tokio::process::Command;

/// Runs the script as in a helper whose bubblewrap is gone. `kill` may only look for processes here, not end them.
#[tokio::test]
async fn the_size_watch_ends_with_its_script() {
    let directory = tempfile::tempdir().unwrap();
    let held = directory.path().join("held");
    let safe = r#"kill() { [ "$1" = -0 ] && command kill "$@"; }"#;
    let script = format!("{safe}\nlimit=1\nused() {{ echo 0; }}\n{}\nbound\n", include_str!("bound.sh"));
    let mut helper =
        Command::new("flock").arg(&held).args(["bash", "-c", &script]).process_group(0).spawn().unwrap();
    let group = rustix::process::Pid::from_raw(helper.id().unwrap().cast_signed()).unwrap();
    assert!(helper.wait().await.unwrap().success());
    // The lock is free once no process has the file open.
    let free = tokio::task::spawn_blocking(move || File::open(held).unwrap().lock());
    let is_free = tokio::time::timeout(Duration::from_secs(20), free).await;
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
    is_free.expect("the loop ends with the script").unwrap().unwrap();
}
