//! The end of what the sandbox machine builds for a workspace: a setup, or an install. It builds each once for all sessions that need the same.

use crate::process::sandbox::is_away;
use rpc::v1::{self, ErrorCode, build_environment_response::Item};
use settings::LevelHosts;
use std::time::Duration;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Code, Status};

/// Builds that may end before their script did (another session that shared the build was deleted, the service restarted) until the turn fails.
const INTERRUPTIONS_MAX: u32 = 5;
/// Pause after each of them.
const INTERRUPTION_PAUSE: Duration = Duration::from_secs(1);

/// Waits for the end of a build, and gives its key. A build that is interrupted begins again.
///
/// # Errors
/// The code with which the build ends; those of the sandbox.
pub(super) async fn with_interruptions<F, S>(mut start: impl FnMut() -> F) -> Result<String, Status>
where
    F: Future<Output = Result<S, Status>>,
    S: Stream<Item = Result<v1::BuildEnvironmentResponse, Status>> + Unpin,
{
    let mut interruptions = 0;
    loop {
        let ended = match start().await {
            Ok(items) => finish(items).await,
            Err(status) => Err(status),
        };
        match ended {
            Err(status) if is_interrupted(&status) && interruptions < INTERRUPTIONS_MAX => {
                interruptions += 1;
                tracing::debug!("a build begins again: {}", status.message());
                tokio::time::sleep(INTERRUPTION_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// The entries of one list, in one line.
pub(super) fn entries(hosts: &LevelHosts) -> String {
    let mut entries = hosts.allow.clone();
    entries.sort();
    entries.dedup();
    entries.join(" ")
}

/// Waits for the end of a build, and gives its key.
async fn finish(
    mut items: impl Stream<Item = Result<v1::BuildEnvironmentResponse, Status>> + Unpin,
) -> Result<String, Status> {
    let mut key = String::new();
    while let Some(item) = items.next().await.transpose()? {
        match item.item {
            Some(Item::Build(build)) => key = build.key,
            Some(Item::End(end)) if end.code.is_empty() => return Ok(key),
            Some(Item::End(end)) => {
                return Err(rpc::status::error_as(Code::FailedPrecondition, &end.code, end.message));
            }
            // `flotilla env log` shows it.
            Some(Item::Output(_)) | None => {}
        }
    }
    Err(Status::unavailable("the build has no end"))
}

fn is_interrupted(status: &Status) -> bool {
    is_away(status)
        || matches!(
            rpc::status::code(status),
            Some(
                ErrorCode::SetupInterrupted
                    | ErrorCode::InstallInterrupted
                    | ErrorCode::HelpersBusy
                    | ErrorCode::SandboxUnavailable
            )
        )
}
