//! Calls of the store without which files cannot be opened.

use crate::process::store_timeout::retry_while_away;
use rpc::v1::ErrorCode;
use std::time::Duration;
use tonic::Status;

/// Longest wait for Postgres while files are opened.
const STORE_RETRY: Duration = Duration::from_secs(30);

/// Makes a call of the store whose failure fails the turn. It may be repeated.
pub(super) async fn from_store<T, F>(call: impl FnMut() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<T, store::error::Error>>,
{
    retry_while_away(STORE_RETRY, call).await.map_err(|error| {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, "cannot read or record what a workspace has");
        rpc::status::error(ErrorCode::StoreUnavailable, "the database does not answer; try again later")
    })
}
