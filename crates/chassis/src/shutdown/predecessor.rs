//! Locks that a service of this machine holds as long as it lives. After a restart they may still be held for a moment: by a predecessor that
//! ends its calls and sandboxes, or by a child of one that was killed, between fork and exec.

use std::{
    fs::{File, TryLockError},
    io,
    path::Path,
    time::Duration,
};
use tokio::time::Instant;

/// Longest wait for a predecessor: it takes four seconds to end its calls and sandboxes. A service that lives longer than that is another one.
pub const PREDECESSOR_WAIT: Duration = Duration::from_secs(6);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Locks a file or a directory that exists, until the returned file is dropped. Waits for a predecessor. `None`: another process held it all the time.
pub async fn lock(path: &Path) -> io::Result<Option<File>> {
    acquire(PREDECESSOR_WAIT, || try_lock(path)).await
}

fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let file = File::open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Repeats an attempt to take a lock until it gives one, at most for `wait`. `None`: another process held it all the time.
///
/// # Errors
/// Those of the attempt.
pub async fn acquire<T>(
    wait: Duration,
    mut attempt: impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<Option<T>> {
    let deadline = Instant::now() + wait;
    loop {
        if let Some(lock) = attempt()? {
            return Ok(Some(lock));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[tokio::test]
    async fn a_lock_is_waited_for_while_a_predecessor_ends() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("lock");
        File::create(&file).unwrap();
        for path in [file.as_path(), directory.path()] {
            let held = lock(path).await.unwrap().unwrap();
            let attempt = || try_lock(path);
            assert!(acquire(Duration::ZERO, attempt).await.unwrap().is_none(), "another service lives");
            // The release comes after the first attempt.
            let (locked, ()) = tokio::join!(lock(path), async { drop(held) });
            assert!(locked.unwrap().is_some());
        }
    }
}
