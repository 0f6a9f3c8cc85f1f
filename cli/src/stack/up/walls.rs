//! What the sandbox of this machine lacks, for the person who starts the stack.

use anyhow::{Context as _, Result};
use rpc::{
    client::Bearer,
    v1::{GetIsolationRequest, sandbox_service_client::SandboxServiceClient},
};

/// What `flotilla up` accepts unless its user says otherwise: a developer's machine has no other tenants to protect.
pub(super) const ACCEPTED: &str = "memory,processes,cpu,disk,users,landlock,terminals";

/// Returns the note about the walls that the sandbox service lacks, if it lacks any.
///
/// # Errors
/// If the service does not answer.
pub(super) async fn note(url: &str, token: &str) -> Result<Option<String>> {
    let bearer = Bearer::new(token).context("use the token of the sandbox")?;
    let mut client = SandboxServiceClient::with_interceptor(chassis::grpc::channel(url)?, bearer);
    let isolation =
        client.get_isolation(GetIsolationRequest {}).await.context("ask the sandbox for its walls")?;
    Ok(text(&isolation.into_inner().missing))
}

fn text(missing: &[String]) -> Option<String> {
    let list: Vec<String> = missing.iter().map(|wall| format!("  - {wall}")).collect();
    (!list.is_empty()).then(|| {
        format!(
            "The sandbox of this machine lacks these walls. That is fine for your own work; do not let strangers use this stack:\n{}",
            list.join("\n")
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use clap::ValueEnum as _;
    use sandbox::walls::Wall;

    #[test]
    fn a_developers_machine_may_lack_every_wall_that_can_be_accepted() {
        let all: Vec<String> = Wall::value_variants().iter().map(ToString::to_string).collect();
        assert_eq!(ACCEPTED, all.join(","));
    }

    #[test]
    fn missing_walls_are_listed_and_nothing_is_said_without_them() {
        assert_eq!(text(&[]), None);
        assert!(text(&["cpu: why".to_owned()]).unwrap().ends_with("\n  - cpu: why"));
    }
}
