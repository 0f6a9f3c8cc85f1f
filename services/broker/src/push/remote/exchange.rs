//! One request to the server with the credential of the push, and why it fails.

use super::server::Server;
use crate::{
    egress::git::{
        refusal::GitRefusal,
        request::Action,
        servers::{GitBody, GitQuestion},
    },
    push::error::PushError,
};
use reqwest::{
    Body, Response,
    header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};

/// The version of the protocol with which git reads. Pushes have no other version than the first.
const VERSION: &str = "version=2";

/// The body of a request, and its length.
pub(super) struct Upload {
    pub(super) body: GitBody,
    pub(super) bytes: u64,
}

impl From<String> for Upload {
    fn from(text: String) -> Self {
        Self { bytes: text.len() as u64, body: GitBody::Message(Body::from(text)) }
    }
}

impl Server<'_> {
    /// Sends a request.
    ///
    /// # Errors
    /// `Unauthorized`, `NotFound`, `Unreachable`.
    pub(super) async fn ask(&self, action: Action, upload: Upload) -> Result<Response, PushError> {
        let Self { servers, tenant, repository, secret, authorization } = self;
        let mut headers = HeaderMap::new();
        let request_type = match action {
            Action::Refs | Action::Pack => {
                headers.insert(HeaderName::from_static("git-protocol"), HeaderValue::from_static(VERSION));
                "application/x-git-upload-pack-request"
            }
            Action::PushRefs | Action::Push => "application/x-git-receive-pack-request",
        };
        headers.insert(ACCEPT, HeaderValue::from_static(action.content_type()));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(request_type));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(upload.bytes));
        let question = GitQuestion { repository, action, headers: &headers, secret };
        let asked = servers.ask(*tenant, &question, authorization.clone(), upload.body).await;
        asked.map_err(explain)
    }
}

/// What a refusal of the server means for a push.
pub(super) fn explain(refusal: GitRefusal) -> PushError {
    match refusal {
        GitRefusal::Unauthorized { host, secret } => PushError::Unauthorized { host, secret },
        GitRefusal::NotFound { host, secret } => PushError::NotFound { host, secret },
        GitRefusal::Redirected { host, to } => PushError::Unreachable(format!(
            "{host} redirects to {to}; sessions must start from that URL for their changes to be pushed"
        )),
        other => PushError::Unreachable(other.to_string()),
    }
}
