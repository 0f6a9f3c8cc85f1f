//! The connection to the broker, which keeps the secrets of tenants and pushes with them. Only this file reads its codes.

use crate::errors::{entity::Entity, error::Error, push_refusal::PushRefusal};
use anyhow::Context as _;
use chassis::{backends::BrokerConfig, grpc::backend::Backend};
use futures::Stream;
use rpc::{
    client::Bearer,
    v1::{self, ErrorCode, broker_service_client::BrokerServiceClient},
};
use std::time::Duration;
use tonic::{Request, Status, service::interceptor::InterceptedService, transport::Channel};

/// Longest wait for an answer: Postgres answers the broker within 15 s, or not at all.
const CALL: Duration = Duration::from_secs(20);
/// Longest wait for a push, which the broker ends after ten minutes.
const PUSH: Duration = Duration::from_secs(660);
/// Longest wait until the broker has stored what a session reached: a person waits for the log, which is nearly complete without it.
const FLUSH: Duration = Duration::from_secs(2);
/// The beginning of the codes of refused pushes.
const PUSH_CODES: &str = "push_";

/// The connection; clones share it. `None`: this deployment has no broker.
#[derive(Debug, Clone)]
pub(crate) struct Broker(Option<BrokerServiceClient<InterceptedService<Channel, Bearer>>>);

impl Broker {
    /// Prepares the connection, which the first call establishes.
    ///
    /// # Errors
    /// If the URL, the CA or the token is invalid or missing.
    pub(crate) fn connect(config: &BrokerConfig) -> anyhow::Result<Self> {
        let Some((channel, token)) = config.channel()? else { return Ok(Self(None)) };
        let token = Bearer::new(token).context("use the broker token")?;
        Ok(Self(Some(BrokerServiceClient::with_interceptor(channel, token))))
    }

    /// Hands over a secret. The connection keeps no copy of the value.
    ///
    /// # Errors
    /// `broker_unavailable`: stored or not; `project_not_found`, `secrets_too_many`, `store_unavailable`, `broker_failed`.
    pub(crate) async fn put_secret(
        &self,
        secret: v1::PutSecretRequest,
    ) -> Result<v1::PutSecretResponse, Error> {
        let Some(client) = &self.0 else {
            return Err(Error::BrokerUnavailable("this server has no broker, so it cannot store secrets"));
        };
        let mut request = Request::new(secret);
        request.set_timeout(CALL);
        match client.clone().put_secret(request).await {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => Err(refusal(&status)),
        }
    }

    /// Has the broker store what a session reached of the network until now. Without a broker, sessions reach nothing.
    ///
    /// # Errors
    /// `broker_unavailable`, `store_unavailable`, `broker_failed`: the log may lack the last seconds.
    pub(crate) async fn flush_egress(&self, session: v1::FlushEgressRequest) -> Result<(), Error> {
        let Some(client) = &self.0 else { return Ok(()) };
        let mut client = client.clone();
        // The time includes that of a new connection.
        match tokio::time::timeout(FLUSH, client.flush_egress(session)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(status)) => Err(refusal(&status)),
            Err(_) => Err(refusal(&Status::deadline_exceeded(
                "it did not store the network use of a session in time",
            ))),
        }
    }

    /// Checks that there is a broker that may push.
    ///
    /// # Errors
    /// `broker_unavailable`.
    pub(crate) fn check_push(&self) -> Result<(), Error> {
        self.pushing().map(drop)
    }

    /// Calls the broker with a request that it refuses, and gives the refusal. `None`: there is no broker.
    pub(crate) fn ping(&self) -> Option<impl Future<Output = Option<Status>> + use<>> {
        let mut client = self.0.clone()?;
        Some(async move { client.flush_egress(v1::FlushEgressRequest::default()).await.err() })
    }

    fn pushing(&self) -> Result<&BrokerServiceClient<InterceptedService<Channel, Bearer>>, Error> {
        self.0.as_ref().ok_or(Error::BrokerUnavailable("this server has no broker, so it cannot push"))
    }

    /// Pushes commits to a repository.
    ///
    /// # Errors
    /// `Push` with the codes of the broker; `broker_unavailable`: pushed or not; `store_unavailable`, `broker_failed`.
    pub(crate) async fn push(
        &self,
        messages: impl Stream<Item = v1::PushRequest> + Send + 'static,
    ) -> Result<v1::PushResponse, Error> {
        let client = self.pushing()?;
        let mut request = Request::new(messages);
        request.set_timeout(PUSH);
        match client.clone().push(request).await {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => Err(refusal(&status)),
        }
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
        Some(ErrorCode::ProjectNotFound) => Error::NotFound(Entity::Project),
        Some(ErrorCode::SecretsTooMany) => Error::SecretsTooMany,
        Some(ErrorCode::StoreUnavailable) => Error::StoreUnavailable,
        Some(ErrorCode::SecretKeyChanged) => {
            Error::BrokerUnavailable("another key began to seal secrets meanwhile; try again")
        }
        Some(ErrorCode::KmsUnavailable) => {
            tracing::warn!("the broker cannot seal: {}", status.message());
            Error::BrokerUnavailable("the key service of the broker does not answer; try again later")
        }
        _ if code.starts_with(PUSH_CODES) => Error::Push(PushRefusal::new(code, status)),
        Some(_) | None => {
            tracing::error!(error.code = code, "the broker refused a call: {}", status.message());
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
            ("project_not_found", "project_not_found"),
            ("secrets_too_many", "secrets_too_many"),
            ("store_unavailable", "store_unavailable"),
            ("kms_unavailable", "broker_unavailable"),
            ("secret_key_changed", "broker_unavailable"),
            ("token_invalid", "broker_unavailable"),
            ("caller_not_allowed", "broker_unavailable"),
            ("internal", "broker_failed"),
            ("push_branch_moved", "push_branch_moved"),
        ] {
            assert_eq!(refusal(&rpc::status::error_as(Code::Internal, code, "why")).code(), want);
        }
        assert_eq!(refusal(&Status::unavailable("connection refused")).code(), "broker_unavailable");
    }
}
