//! The fence of one session: the highest epoch seen, also before a restart, and the order of effects and take-overs.
//!
//! An effect happens while its [`EffectPermit`] is held, and a higher epoch is admitted only while no permit is held.
//! So an admitted caller knows that each effect of a lower epoch is over or will never happen.

use crate::{
    error::{Error, blocking},
    layout,
};
use std::path::PathBuf;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The epoch of the first loop of a session. There is no lower one.
const FIRST_EPOCH: u64 = 1;

#[derive(Debug)]
pub struct Fence {
    path: PathBuf,
    /// `None` until it was read from the disk.
    highest: RwLock<Option<u64>>,
}

/// The right to have an effect. Held until the effect is over, and never while waiting for the start of a sandbox.
#[derive(Debug)]
pub struct EffectPermit<'a>(#[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'a, Option<u64>>);

/// The right to admit a higher epoch: no effect is under way.
#[derive(Debug)]
pub struct RaisePermit<'a>(RwLockWriteGuard<'a, Option<u64>>);

impl Fence {
    /// The fence that is kept at `path`.
    pub fn new(path: PathBuf) -> Self {
        Self { path, highest: RwLock::default() }
    }

    /// Admits a caller whose epoch is the highest; `false` if its epoch must be raised first.
    ///
    /// # Errors
    /// `epoch_stale`.
    pub async fn admit(&self, epoch: u64) -> Result<bool, Error> {
        let Some(highest) = *self.highest.read().await else { return Ok(false) };
        refuse_below(highest, epoch)?;
        Ok(epoch <= highest)
    }

    /// Gives the right to have an effect to a caller that was admitted.
    ///
    /// # Errors
    /// `epoch_stale` when a higher epoch was admitted meanwhile.
    pub async fn hold(&self, epoch: u64) -> Result<EffectPermit<'_>, Error> {
        let highest = self.highest.read().await;
        refuse_below(highest.unwrap_or_default(), epoch)?;
        Ok(EffectPermit(highest))
    }

    /// Waits until no effect is under way. Cancel-safe.
    pub async fn settle(&self) -> RaisePermit<'_> {
        RaisePermit(self.highest.write().await)
    }

    /// Refuses all epochs below `epoch` from now on, also after a restart.
    ///
    /// # Errors
    /// `epoch_stale` when a higher one was here before; those of the file system.
    pub async fn raise(&self, mut settled: RaisePermit<'_>, epoch: u64) -> Result<(), Error> {
        let highest = match *settled.0 {
            Some(highest) => highest,
            None => match tokio::fs::read_to_string(&self.path).await {
                // A crash of the machine may leave this of the first epoch.
                Ok(text) if text.is_empty() => 0,
                Ok(text) => text.trim().parse().unwrap_or(u64::MAX),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
                Err(source) => return Err(Error::Io { doing: "read the fence", source }),
            },
        };
        *settled.0 = Some(highest);
        refuse_below(highest, epoch)?;
        if epoch > highest {
            let path = self.path.clone();
            blocking("write the fence", move || {
                path.parent().map_or(Ok(()), layout::make_passage)?;
                // The first epoch shuts nothing out, so a crash of the machine may undo it.
                let replace = if epoch > FIRST_EPOCH { layout::replace } else { layout::replace_quickly };
                replace(&path, epoch.to_string().as_bytes())
            })
            .await?;
            *settled.0 = Some(epoch);
        }
        Ok(())
    }
}

fn refuse_below(highest: u64, epoch: u64) -> Result<(), Error> {
    if epoch < highest { Err(Error::Stale { epoch, highest }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures::FutureExt as _;
    use rpc::v1::ErrorCode;

    async fn admit(fence: &Fence, epoch: u64) -> Result<(), Error> {
        if fence.admit(epoch).await? { Ok(()) } else { fence.raise(fence.settle().await, epoch).await }
    }

    #[tokio::test]
    async fn a_higher_epoch_waits_for_an_effect_and_then_shuts_out_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let fence = Fence::new(directory.path().join("fences/t/s"));
        admit(&fence, 3).await.unwrap();
        let right = fence.hold(3).await.unwrap();
        assert!(fence.admit(3).await.unwrap(), "others of the same epoch do not wait");
        assert!(fence.settle().now_or_never().is_none(), "an effect under way delays the admission");
        drop(right);
        admit(&fence, 4).await.unwrap();
        assert_eq!(fence.hold(3).await.unwrap_err().code(), ErrorCode::EpochStale);
        assert_eq!(fence.admit(3).await.unwrap_err().code(), ErrorCode::EpochStale);
        fence.hold(4).await.unwrap();
    }

    #[tokio::test]
    async fn a_fence_survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fences/t/s");
        admit(&Fence::new(path.clone()), 7).await.unwrap();
        let fence = Fence::new(path);
        assert_eq!(admit(&fence, 6).await.unwrap_err().code(), ErrorCode::EpochStale);
        admit(&fence, 7).await.unwrap();
    }

    #[tokio::test]
    async fn only_a_fence_of_the_first_epoch_may_be_empty_after_a_crash() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        std::fs::write(&path, "").unwrap();
        admit(&Fence::new(path.clone()), FIRST_EPOCH).await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1");
        std::fs::write(&path, "?").unwrap();
        assert_eq!(admit(&Fence::new(path), FIRST_EPOCH).await.unwrap_err().code(), ErrorCode::EpochStale);
    }
}
