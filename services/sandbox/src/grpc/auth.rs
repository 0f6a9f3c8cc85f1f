//! Authentication: only workers and gateways have the token.

use crate::code::Code;
use chassis::secret::{Secret, constant_time_eq};
use tonic::{Request, Status};

/// Gives an interceptor that lets calls with `authorization: Bearer <token>` pass.
#[allow(clippy::result_large_err)] // The type of every interceptor.
pub fn interceptor(token: Secret<String>) -> impl Fn(Request<()>) -> Result<Request<()>, Status> + Clone {
    move |request| {
        let header = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        let bearer = header.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        if constant_time_eq(bearer.as_bytes(), token.expose().as_bytes()) {
            return Ok(request);
        }
        let code = Code::TokenInvalid;
        Err(rpc::status::error(code.grpc(), code.name(), "the token is missing or wrong"))
    }
}
