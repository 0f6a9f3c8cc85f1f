//! The calls about single files. Each is one request to the init and the reply of the same kind.

use super::{scope::Scoped, server::Server};
use crate::{disk::workspace::Purpose, error::Error};
use rpc::v1::{self, ErrorCode};
use sandbox_wire::v1::{reply, request};
use tonic::{Request, Response, Status};

/// A call that the init does.
pub(super) trait FileCall: Scoped + Send + 'static {
    /// The method, for metrics and logs.
    const METHOD: &'static str;
    /// What the caller gets.
    type Response: Send + 'static;

    /// Whether it needs space on the disk.
    const NEEDS_SPACE: bool = false;

    /// The request to the init.
    fn into_body(self) -> request::Body;

    /// The response in the reply of the init; `None` for a reply of another kind.
    fn from_body(body: reply::Body) -> Option<Self::Response>;
}

macro_rules! file_calls {
    ($($method:literal $variant:ident $request:ident $response:ident $($space:ident)?;)*) => {$(
        impl FileCall for v1::$request {
            const METHOD: &'static str = $method;
            $(const $space: bool = true;)?
            type Response = v1::$response;

            fn into_body(self) -> request::Body {
                request::Body::$variant(self)
            }

            fn from_body(body: reply::Body) -> Option<Self::Response> {
                if let reply::Body::$variant(response) = body { Some(response) } else { None }
            }
        }
    )*};
}

file_calls! {
    "read_file" ReadFile ReadFileRequest ReadFileResponse;
    "read_lines" ReadLines ReadLinesRequest ReadLinesResponse;
    "write_file" WriteFile WriteFileRequest WriteFileResponse NEEDS_SPACE;
    "remove_file" RemoveFile RemoveFileRequest RemoveFileResponse;
    "list_files" ListFiles ListFilesRequest ListFilesResponse;
    "glob_files" GlobFiles GlobFilesRequest GlobFilesResponse;
    "grep_files" GrepFiles GrepFilesRequest GrepFilesResponse;
}

impl Server {
    /// Does one file operation inside the session's sandbox.
    pub(super) async fn file<M: FileCall>(
        &self,
        request: Request<M>,
    ) -> Result<Response<M::Response>, Status> {
        let (call, message) = self.begin(M::METHOD, request)?;
        let caller = call.caller.clone();
        let work = async move {
            if M::NEEDS_SPACE {
                caller.root.disk.admit(Purpose::Write).await?;
            }
            let sandbox = caller.enter().await?;
            // A writer holds the permit until it has written. A reader sees the moment in which it was admitted.
            let permit = match caller.epoch {
                Some(epoch) => Some(caller.session.hold(epoch).await?).filter(|_| M::IS_EFFECT),
                None => None,
            };
            let reply = sandbox.sandbox().call(message.into_body()).await?;
            drop(permit);
            M::from_body(reply).ok_or_else(|| {
                Error::refused(ErrorCode::Internal, "the sandbox sent a reply of the wrong kind")
            })
        };
        if M::IS_EFFECT { call.run(work).await } else { call.read(work).await }
    }
}
