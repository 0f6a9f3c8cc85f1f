//! The errors of calls, each with a stable code.

use crate::{
    egress::error::EgressError,
    images::{error::ImageError, puller::PullError},
    push::error::PushError,
    secrets::vault::VaultError,
};
use tonic::{Code, Status};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The token of the caller is missing or wrong.
    #[error("the token is missing or wrong")]
    TokenInvalid,
    /// The token belongs to a caller that has no business with this call.
    #[error("the token of this caller is not for {0}")]
    CallerNotAllowed(&'static str),
    /// A field of the call is wrong.
    #[error("{0}")]
    ArgumentInvalid(&'static str),
    /// The name of the secret is wrong.
    #[error(transparent)]
    Name(#[from] domain::secret::SecretNameError),
    /// The servers of the secret are wrong.
    #[error(transparent)]
    Servers(#[from] domain::egress::secret_servers::SecretServersError),
    /// This broker has no directory for doors.
    #[error("this broker opens no doors to the network: FLOTILLA_BROKER_EGRESS is not set")]
    NoDoors,
    /// The door of a session cannot do that.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The secret cannot be stored or opened.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// A call about an image is wrong, or its stream ends early.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The image cannot be resolved or pulled.
    #[error(transparent)]
    Pull(#[from] PullError),
    /// The session cannot be pushed.
    #[error(transparent)]
    Push(#[from] PushError),
}

impl Error {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TokenInvalid => "token_invalid",
            Self::CallerNotAllowed(_) => "caller_not_allowed",
            Self::ArgumentInvalid(_) => "argument_invalid",
            Self::Name(_) => "secret_name_invalid",
            Self::Servers(_) => "secret_url_invalid",
            Self::NoDoors => "egress_unavailable",
            Self::Egress(error) => error.code(),
            Self::Image(error) => error.code(),
            Self::Pull(error) => error.code(),
            Self::Push(error) => error.code(),
            Self::Vault(error) => error.code(),
        }
    }

    /// The status that the caller gets. The cause stays in the log.
    pub fn to_status(&self) -> Status {
        let code = self.code();
        rpc::status::error(grpc_of(code), code, self.to_string())
    }
}

fn grpc_of(code: &str) -> Code {
    match code {
        "token_invalid" => Code::Unauthenticated,
        "argument_invalid"
        | "secret_name_invalid"
        | "secret_url_invalid"
        | "secret_empty"
        | "secret_too_large"
        | "egress_list_invalid"
        | "git_prefix_invalid"
        | "git_address_invalid"
        | "push_branch_invalid"
        | "page_address_invalid"
        | "image_reference_invalid" => Code::InvalidArgument,
        "project_not_found"
        | "tenant_not_found"
        | "secret_not_found"
        | "image_unknown"
        | "push_repository_unknown" => Code::NotFound,
        "caller_not_allowed" | "image_unauthorized" | "push_unauthorized" => Code::PermissionDenied,
        "image_too_large"
        | "image_unsupported"
        | "egress_unavailable"
        | "push_unavailable"
        | "push_branch_default"
        | "push_branch_moved"
        | "push_base_missing"
        | "push_nothing"
        | "push_path_refused"
        | "push_file_too_large"
        | "push_lfs_content"
        | "push_lfs_object_missing"
        | "push_lfs_refused"
        | "push_too_large"
        | "push_content_invalid"
        | "push_refused"
        | "push_secret_missing"
        | "push_secret_invalid"
        | "secret_not_for_server"
        | "page_redirects"
        | "page_status"
        | "page_too_large"
        | "egress_address_private"
        | "egress_host_invalid"
        | "egress_host_not_allowed"
        | "egress_host_unknown"
        | "egress_permission_needed"
        | "egress_port_refused"
        | "egress_quota_used_up"
        | "egress_sealed"
        | "epoch_stale" => Code::FailedPrecondition,
        "secret_key_changed" => Code::Aborted,
        "image_digest_wrong" => Code::DataLoss,
        "secrets_too_many"
        | "registry_busy"
        | "egress_busy"
        | "egress_doors_too_many"
        | "push_busy"
        | "page_busy" => Code::ResourceExhausted,
        "store_unavailable"
        | "kms_unavailable"
        | "registry_unreachable"
        | "registry_failed"
        | "pull_interrupted"
        | "push_unreachable"
        | "push_interrupted"
        | "push_secret_unavailable"
        | "egress_closed"
        | "egress_upstream_failed"
        | "page_timeout"
        | "page_unreachable" => Code::Unavailable,
        _ => Code::Internal,
    }
}
