//! What the setup of the settings makes on top of the image of a workspace. The sandbox machine builds it once for all sessions that need the same;
//! while it is built, the door of the session that asked for it leads to the hosts of the setup.

use super::{
    egress::{CloneAccess, Egress},
    secrets::SetupSecrets,
};
use crate::process::{
    deps::Deps,
    sandbox::{Identity, is_away},
};
use domain::ids::ProjectId;
use rpc::v1::{self, build_environment_response::Item};
use settings::LevelHosts;
use std::{collections::BTreeMap, time::Duration};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Code, Status};

/// Builds that may end before their script did (another session that shared the build was deleted, the service restarted) until the turn fails.
const INTERRUPTIONS_MAX: u32 = 5;
/// Pause after each of them.
const INTERRUPTION_PAUSE: Duration = Duration::from_secs(1);

/// The setup of a workspace.
pub(super) struct WorkspaceEnvironment<'a> {
    pub(super) deps: &'a Deps,
    pub(super) identity: &'a Identity,
    pub(super) project: &'a ProjectId,
    pub(super) egress: &'a Egress,
    pub(super) script: &'a str,
    /// The hosts that it may reach; all lists bind.
    pub(super) network: &'a [LevelHosts],
    pub(super) secrets: &'a SetupSecrets,
}

impl WorkspaceEnvironment<'_> {
    /// Has the machine build it on top of `image`, unless it is there, and gives its key. The door of the session is open for the setup when this
    /// returns, also with an error: the caller must change that before the workspace exists.
    ///
    /// # Errors
    /// `setup_failed`, `setup_timeout`, `setup_disk_full`, `setup_interrupted`; those of the broker and of the sandbox.
    ///
    /// Dropped midway: a build that has begun goes on.
    pub(super) async fn bring(&self, image: &v1::Image) -> Result<String, Status> {
        let request = v1::BuildEnvironmentRequest {
            fence: self.identity.fence(),
            project_id: self.project.to_string(),
            image: Some(image.clone()),
            script: self.script.to_owned(),
            hosts: self.network.iter().map(entries).collect(),
            secrets: self.secrets.versions.clone(),
        };
        with_interruptions(|| async {
            let nothing = CloneAccess { git: &BTreeMap::new(), url: "" };
            self.egress.open_for_setup(self.network, nothing, self.secrets).await?;
            let build = self.deps.sandbox.call(|mut client| {
                let request = request.clone();
                async move { client.build_environment(request).await }
            });
            build.await
        })
        .await
    }
}

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
                return Err(rpc::status::error(Code::FailedPrecondition, &end.code, end.message));
            }
            // `flotilla env log` shows it.
            Some(Item::Output(_)) | None => {}
        }
    }
    Err(Status::unavailable("the build has no end"))
}

fn is_interrupted(status: &Status) -> bool {
    let code = rpc::status::code_of(status);
    is_away(status)
        || matches!(
            code.as_deref(),
            Some("setup_interrupted" | "install_interrupted" | "helpers_busy" | "sandbox_unavailable")
        )
}
