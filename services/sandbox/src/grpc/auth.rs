//! Authentication: only workers and gateways have tokens.

use crate::{code::Code, settings::tokens::Tokens};
use tonic::{Request, Status};

/// Gives an interceptor that lets calls with `authorization: Bearer <token>` pass, and counts them by the name of the token.
#[allow(clippy::result_large_err)] // The type of every interceptor.
pub fn interceptor(tokens: Tokens) -> impl Fn(Request<()>) -> Result<Request<()>, Status> + Clone {
    move |request| {
        let header = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        let bearer = header.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        if let Some(label) = tokens.find(bearer) {
            metrics::counter!("flotilla_sandbox_token_uses_total", "token" => label.to_owned()).increment(1);
            return Ok(request);
        }
        let code = Code::TokenInvalid;
        Err(rpc::status::error(code.grpc(), code.name(), "the token is missing or wrong"))
    }
}
