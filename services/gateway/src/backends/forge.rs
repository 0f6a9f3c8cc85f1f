//! The App of this deployment at its forge, behind the broker. Only this file reads the codes of the broker about it.

use crate::errors::{error::Error, forge_refusal::ForgeRefusal};
use anyhow::Context as _;
use chassis::{backends::BrokerConfig, grpc::backend::Backend};
use rpc::{
    client::Bearer,
    v1::{self, ErrorCode, forge_service_client::ForgeServiceClient},
};
use std::time::Duration;
use tonic::{Request, Status, service::interceptor::InterceptedService, transport::Channel};

/// Longest wait for an answer: the broker waits for its turn and for the forge, and repeats a call whose token is too new.
const CALL: Duration = Duration::from_secs(60);
/// Longest wait for the check of a delivery, for whose answer the forge waits.
const CHECK: Duration = Duration::from_secs(5);

/// The connection; clones share it. `None`: this deployment has no broker.
#[derive(Debug, Clone)]
pub(crate) struct Forge(Option<ForgeServiceClient<InterceptedService<Channel, Bearer>>>);

/// The calls that only carry a message there and back.
macro_rules! calls {
    ($($(#[$documentation:meta])* $name:ident = $method:ident($request:ident) -> $response:ident;)*) => {
        impl Forge {$(
            $(#[$documentation])*
            ///
            /// # Errors
            /// `Forge` with the codes of the broker; `broker_unavailable`: done or not; `store_unavailable`, `broker_failed`.
            pub(crate) async fn $name(&self, request: v1::$request) -> Result<v1::$response, Error> {
                let mut client = self.client()?.clone();
                let mut request = Request::new(request);
                request.set_timeout(CALL);
                client.$method(request).await.map(tonic::Response::into_inner).map_err(|status| refusal(&status))
            }
        )*}
    };
}

calls! {
    /// Stores the App of this deployment.
    put_app = put_forge_app(PutForgeAppRequest) -> PutForgeAppResponse;
    get_app = get_forge_app(GetForgeAppRequest) -> GetForgeAppResponse;
    /// Lists what the forge has sent, or tried to.
    list_attempts = list_delivery_attempts(ListDeliveryAttemptsRequest) -> ListDeliveryAttemptsResponse;
    repeat_attempt = repeat_delivery_attempt(RepeatDeliveryAttemptRequest) -> RepeatDeliveryAttemptResponse;
    get_installation = get_forge_installation(GetForgeInstallationRequest) -> GetForgeInstallationResponse;
    /// Asks what a person may do in a repository.
    get_permission = get_forge_permission(GetForgePermissionRequest) -> GetForgePermissionResponse;
    get_repository = get_forge_repository(GetForgeRepositoryRequest) -> GetForgeRepositoryResponse;
    /// Writes a comment of the App.
    put_comment = put_forge_comment(PutForgeCommentRequest) -> PutForgeCommentResponse;
}

impl Forge {
    /// Prepares the connection, which the first call establishes.
    ///
    /// # Errors
    /// If the URL, the CA or the token is invalid or missing.
    pub(crate) fn connect(config: &BrokerConfig) -> anyhow::Result<Self> {
        let Some((channel, token)) = config.channel()? else { return Ok(Self(None)) };
        let token = Bearer::new(token).context("use the broker token")?;
        let client = ForgeServiceClient::with_interceptor(channel, token);
        let bytes_max = domain::limits::DELIVERY_BYTES_MAX + 64 * 1024;
        Ok(Self(Some(client.max_encoding_message_size(bytes_max))))
    }

    /// Checks that the forge has signed a delivery.
    ///
    /// # Errors
    /// `signature_invalid`; `forge_app_missing`; `broker_unavailable`, `store_unavailable`, `broker_failed`.
    pub(crate) async fn check_delivery(&self, body: Vec<u8>, signature: String) -> Result<(), Error> {
        let mut client = self.client()?.clone();
        let mut request = Request::new(v1::CheckDeliveryRequest { body, signature });
        request.set_timeout(CHECK);
        client.check_delivery(request).await.map(drop).map_err(|status| refusal(&status))
    }

    fn client(&self) -> Result<&ForgeServiceClient<InterceptedService<Channel, Bearer>>, Error> {
        self.0.as_ref().ok_or(Error::BrokerUnavailable("this server has no broker, so it knows no forge"))
    }
}

/// What the refusal of the broker means for a caller.
fn refusal(status: &Status) -> Error {
    // A refused token is the operator's mistake, and no tenant's.
    let code = rpc::status::code_of(status).filter(|_| !rpc::status::refuses_token(status));
    let Some(code) = code else {
        metrics::counter!("flotilla_broker_unanswered_total").increment(1);
        Backend::Broker.report(status, rpc::status::refuses_token);
        return Error::BrokerUnavailable("the broker does not answer; try again later");
    };
    match ErrorCode::parse(&code) {
        Some(ErrorCode::StoreUnavailable) => Error::StoreUnavailable,
        Some(ErrorCode::KmsUnavailable) => {
            Error::BrokerUnavailable("the key service of the broker does not answer; try again later")
        }
        Some(
            ErrorCode::SignatureInvalid
            | ErrorCode::ForgeAppMissing
            | ErrorCode::ForgeUrlInvalid
            | ErrorCode::ForgeKeyInvalid
            | ErrorCode::ForgeUnreachable
            | ErrorCode::ForgeFailed
            | ErrorCode::ForgeUnauthorized
            | ErrorCode::ForgeBusy
            | ErrorCode::ForgeNotFound
            | ErrorCode::ForgeRefused
            | ErrorCode::InstallationNotFound,
        ) => Error::Forge(ForgeRefusal::new(code, status)),
        Some(_) | None => {
            tracing::error!(
                error.code = code,
                "the broker refused a call about the forge: {}",
                status.message()
            );
            Error::BrokerFailed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn a_refusal_has_a_meaning_and_silence_too() {
        for (code, want) in [
            ("signature_invalid", "signature_invalid"),
            ("forge_app_missing", "forge_app_missing"),
            ("installation_not_found", "installation_not_found"),
            ("store_unavailable", "store_unavailable"),
            ("kms_unavailable", "broker_unavailable"),
            ("token_invalid", "broker_unavailable"),
            ("internal", "broker_failed"),
        ] {
            assert_eq!(refusal(&rpc::status::error_as(Code::Internal, code, "why")).code(), want);
        }
        assert_eq!(refusal(&Status::unavailable("connection refused")).code(), "broker_unavailable");
        let pause = Duration::from_secs(7);
        let busy = refusal(&rpc::status::exhausted(ErrorCode::ForgeBusy, "too many", pause));
        assert!(matches!(busy, Error::Forge(refusal) if refusal.retry_after == Some(pause)));
    }
}
