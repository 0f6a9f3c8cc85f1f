//! What all calls share: whose they are, and how they are told.

use crate::{caller::may_call, error::Error};
use chassis::grpc::tokens::Caller;
use rpc::v1::ErrorCode;
use tonic::{Request, Response, Status, metadata::MetadataMap};
use tracing::Instrument as _;

/// A call that runs: its span, its metric and the line of its failure.
pub(super) struct Call {
    method: &'static str,
    /// `None`: only a later message has it.
    tenant: Option<String>,
    caller: Option<Caller>,
}

impl Call {
    pub(super) fn new<T>(method: &'static str, request: &Request<T>, tenant: &str) -> Self {
        let tenant = Some(tenant.to_owned()).filter(|tenant| !tenant.is_empty());
        Self { method, tenant, caller: request.extensions().get().copied() }
    }

    pub(super) async fn run<T>(
        self,
        metadata: &MetadataMap,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<Response<T>, Status> {
        let Self { method, tenant, caller } = self;
        let span = tracing::info_span!("broker call", otel.name = method, tenant.id = tenant);
        rpc::trace::adopt(&span, metadata.as_ref());
        let result = if caller.is_some_and(|caller| may_call(caller, method)) {
            work.instrument(span).await
        } else {
            Err(Error::CallerNotAllowed(method))
        };
        let code = result.as_ref().err().map_or("ok", |error| error.code().as_str());
        metrics::counter!("flotilla_broker_calls_total", "method" => method, "code" => code).increment(1);
        result.map(Response::new).map_err(|error| {
            match error.code() {
                ErrorCode::Internal | ErrorCode::SecretKeyMissing | ErrorCode::SecretNotSealed => {
                    let cause =
                        std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                    tracing::error!(error.code = code, "{method} failed: {error}: {cause}");
                }
                ErrorCode::CallerNotAllowed => {
                    tracing::warn!(error.code = code, "{method} was refused: {error}");
                }
                // Failures of the key service end here too: the key has logged them.
                _ => tracing::debug!(error.code = code, "{method} was refused: {error}"),
            }
            error.to_status()
        })
    }
}
