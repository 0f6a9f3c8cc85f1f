//! One call: its session and epoch, and the task that does its work. If the caller leaves, an effect is still finished, and a read
//! ends.

use super::{
    scope::{Scope, Scoped},
    server::Server,
};
use crate::{error::Error, session::caller::Caller};
use rpc::v1::ErrorCode;
use std::{fmt::Display, future::Future, str::FromStr, sync::Arc};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use tracing::Span;

/// A call whose ids have been read.
pub(super) struct Call {
    method: &'static str,
    uses_files: bool,
    pub(super) caller: Caller,
    pub(super) span: Span,
}

/// Reads an id that is in a field of a request.
///
/// # Errors
/// `argument_invalid`, with the name of the field.
pub(super) fn id<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, Error> {
    text.parse().map_err(|error| Error::refused(ErrorCode::ArgumentInvalid, format!("{field}: {error}")))
}

impl Server {
    /// Reads the ids of a call. A call without valid ids is counted and refused.
    pub(super) fn begin<M: Scoped>(
        &self,
        method: &'static str,
        request: Request<M>,
    ) -> Result<(Call, M), Status> {
        self.scoped(method, request).map_err(|error| to_status(method, &error))
    }

    fn scoped<M: Scoped>(&self, method: &'static str, request: Request<M>) -> Result<(Call, M), Error> {
        let (metadata, _, mut message) = request.into_parts();
        let Scope { tenant, session, workspace, epoch, opening, exec_id } = message.take_scope()?;
        let span = tracing::info_span!(
            "sandbox call",
            otel.name = method,
            tenant.id = %tenant,
            session.id = %session,
            exec.id = exec_id,
            epoch
        );
        rpc::trace::adopt(&span, &metadata.into_headers());
        let session = self.sessions.get(&tenant, &session)?;
        // The tenant is that of the session: a call cannot name another tenant's workspace.
        let root = if workspace.is_empty() {
            Arc::clone(&session)
        } else {
            self.sessions.get(&tenant, &workspace)?
        };
        let caller = Caller { session, root, epoch, opening };
        Ok((Call { method, uses_files: M::USES_FILES, caller, span }, message))
    }
}

impl Call {
    /// Checks the fence, and does the work in a separate task, which goes on when the caller leaves: an effect is whole or recorded.
    pub(super) async fn run<T: Send + 'static>(
        self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        self.perform(|_| work).await
    }

    /// The same for work without an effect: it ends when the caller leaves, and must bear to be dropped at any await.
    pub(super) async fn read<T: Send + 'static>(
        self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        self.perform(|left| async move {
            left.run_until_cancelled(work).await.unwrap_or_else(|| {
                Err(Error::refused(ErrorCode::CallerLeft, "the caller left before the call was over"))
            })
        })
        .await
    }

    /// The same for work that decides when it may end: its token is cancelled when the caller leaves.
    pub(super) async fn perform<T: Send + 'static, W>(
        self,
        work: impl FnOnce(CancellationToken) -> W,
    ) -> Result<Response<T>, Status>
    where
        W: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let Self { method, uses_files, caller, span } = self;
        let tasks = caller.session.shared.tasks.clone();
        let (answer, answered) = oneshot::channel();
        let left = CancellationToken::new();
        let work = work(left.clone());
        // Cancelled when this function is dropped, and also after the answer, when it means nothing.
        let _left = left.drop_guard();
        let fenced = async move {
            let admission = async {
                if let Some(epoch) = caller.epoch {
                    caller.session.admit(epoch).await?;
                }
                if uses_files { caller.check_opening().await } else { Ok(()) }
            };
            let result = match admission.await {
                Ok(()) => work.await,
                Err(error) => Err(error),
            };
            let result = result.map_err(|error| to_status(method, &error));
            if result.is_ok() {
                metrics::counter!("flotilla_sandbox_calls_total", "method" => method, "code" => "ok")
                    .increment(1);
            }
            // The caller may have disconnected.
            drop(answer.send(result));
        };
        span.in_scope(|| tasks.spawn("call", fenced));
        let lost = |_| Status::internal("the call failed inside the sandbox service");
        answered.await.map_err(lost)?.map(Response::new)
    }
}

/// Counts and logs a failed call once, and returns its status.
pub(super) fn to_status(method: &'static str, error: &Error) -> Status {
    let code = error.code();
    metrics::counter!("flotilla_sandbox_calls_total", "method" => method, "code" => code.as_str())
        .increment(1);
    if code == ErrorCode::Internal {
        let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
        tracing::error!(error.code = code.as_str(), "{method} failed: {error}: {cause}");
    } else {
        tracing::debug!(error.code = code.as_str(), "{method} was refused: {error}");
    }
    error.to_status()
}
