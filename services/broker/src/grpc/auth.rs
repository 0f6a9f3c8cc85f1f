//! Authentication: only our own services have tokens.

use crate::error::Error;
use chassis::grpc::tokens::Tokens;
use tonic::{Request, Status};

/// Gives an interceptor that lets calls with `authorization: Bearer <token>` pass, and counts them by the name of the token.
#[allow(clippy::result_large_err)] // The type of every interceptor.
pub(crate) fn interceptor(tokens: Tokens) -> impl Fn(Request<()>) -> Result<Request<()>, Status> + Clone {
    move |request| match tokens.find_bearer(request.metadata()) {
        Some(label) => {
            metrics::counter!("flotilla_broker_token_uses_total", "token" => label.to_owned()).increment(1);
            Ok(request)
        }
        None => Err(Error::TokenInvalid.to_status()),
    }
}
