//! Authentication: only workers and gateways have tokens.

use crate::code::Code;
use chassis::grpc::tokens::Tokens;
use tonic::{Request, Status};

/// Gives an interceptor that lets calls with `authorization: Bearer <token>` pass, and counts them by the name of the token.
#[allow(clippy::result_large_err)] // The type of every interceptor.
pub fn interceptor(tokens: Tokens) -> impl Fn(Request<()>) -> Result<Request<()>, Status> + Clone {
    move |request| {
        if let Some(token) = tokens.find_bearer(request.metadata()) {
            let label = token.label.clone();
            metrics::counter!("flotilla_sandbox_token_uses_total", "token" => label).increment(1);
            return Ok(request);
        }
        let code = Code::TokenInvalid;
        Err(rpc::status::error(code.grpc(), code.name(), "the token is missing or wrong"))
    }
}
