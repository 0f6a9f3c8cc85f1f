//! Authentication: only our own services have tokens.

use crate::error::Error;
use chassis::grpc::tokens::Tokens;
use tonic::{Request, Status};

/// Gives an interceptor that lets calls with `authorization: Bearer <token>` pass, notes whose token it is for the call, and counts them by the name of the
/// token.
#[allow(clippy::result_large_err)] // The type of every interceptor.
pub(crate) fn interceptor(tokens: Tokens) -> impl Fn(Request<()>) -> Result<Request<()>, Status> + Clone {
    move |mut request: Request<()>| {
        let token = tokens.find_bearer(request.metadata().as_ref());
        let token = token.ok_or_else(|| Error::TokenInvalid.to_status())?;
        metrics::counter!("flotilla_broker_token_uses_total", "token" => token.label.clone()).increment(1);
        request.extensions_mut().insert(token.caller);
        Ok(request)
    }
}
