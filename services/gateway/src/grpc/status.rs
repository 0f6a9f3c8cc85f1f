//! The gateway's errors as gRPC statuses.

use crate::errors::{entity::Entity, error::Error};
use rpc::v1::ErrorCode;
use std::str::FromStr;
use tonic::{Code, Response, Status};

/// An error as a status with its stable code.
pub(crate) fn to_status(error: Error) -> Status {
    let message = error.to_string();
    if let Error::TooManyAttempts { retry_after } = error {
        return rpc::status::exhausted(ErrorCode::TooManyAttempts, message, retry_after);
    }
    rpc::status::error_as(Code::from(error.kind().grpc()), error.code(), message)
}

/// The response with a converted result, or the status of the error.
pub(super) fn respond<T, R>(
    result: Result<T, Error>,
    convert: impl FnOnce(T) -> R,
) -> Result<Response<R>, Status> {
    result.map(|value| Response::new(convert(value))).map_err(to_status)
}

/// Parses an id. A malformed id counts as not found.
pub(super) fn id<T: FromStr>(text: &str, entity: Entity) -> Result<T, Status> {
    text.parse().map_err(|_| to_status(Error::NotFound(entity)))
}

/// Like [`id`]; an empty text is `None`.
pub(super) fn optional_id<T: FromStr>(text: &str, entity: Entity) -> Result<Option<T>, Status> {
    if text.is_empty() { Ok(None) } else { id(text, entity).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpc::status::{code_of, retry_after_of};
    use std::time::Duration;

    #[test]
    fn a_status_has_the_stable_code_and_the_pause() {
        let status = to_status(Error::NotFound(Entity::Session));
        assert_eq!((status.code(), code_of(&status).as_deref()), (Code::NotFound, Some("session_not_found")));
        let pause = Duration::from_secs(6);
        let status = to_status(Error::TooManyAttempts { retry_after: pause });
        assert_eq!(code_of(&status).as_deref(), Some("too_many_attempts"));
        assert_eq!((status.code(), retry_after_of(&status)), (Code::ResourceExhausted, Some(pause)));
    }
}
