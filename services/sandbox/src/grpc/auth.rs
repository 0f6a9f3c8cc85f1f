//! Authentication: only workers and gateways have tokens, and the token of a kind of caller is for its own calls. A stolen token of a gateway starts no command, and
//! one of a worker opens no terminal.

use chassis::grpc::tokens::{Caller, Tokens};
use futures::future::{Either, Ready, ready};
use rpc::v1::ErrorCode;
use std::task::{Context, Poll};
use tonic::{
    Status,
    body::Body,
    codegen::{
        Service,
        http::{HeaderMap, Request, Response},
    },
    server::NamedService,
};

/// The calls that only gateways make: what people do with the files of a session.
const OF_GATEWAYS: [&str; 16] = [
    "ApplyPatch",
    "AttachTerminal",
    "CreateTerminal",
    "DeleteTerminal",
    "DiffWorkspace",
    "DropEnvironment",
    "FindEnvironments",
    "GetOutput",
    "GetTerminal",
    "KillExecs",
    "ListTerminals",
    "ReadEnvironmentLog",
    "RestoreSnapshot",
    "RevertFiles",
    "UpdateTerminal",
    "WriteTerminal",
];
/// The calls that only workers make: what sessions need, and the upkeep of the machine.
const OF_WORKERS: [&str; 22] = [
    "AttachExec",
    "BuildEnvironment",
    "CheckLayers",
    "CloseTenant",
    "DropMirrors",
    "GetOpening",
    "GetWorkspace",
    "InstallWorkspace",
    "KeepOutput",
    "KeepPatch",
    "KillExec",
    "ListFiles",
    "ListMirrors",
    "ListWorkspaces",
    "MergeCopy",
    "PutLayer",
    "ReadSource",
    "ReleaseSandbox",
    "RemoveFile",
    "StartExec",
    "StartSandbox",
    "WriteFile",
];
const OF_BOTH: [&str; 12] = [
    "CloneSource",
    "CloseWorkspace",
    "DiffSnapshots",
    "ExportWorkspace",
    "GetIsolation",
    "GlobFiles",
    "GrepFiles",
    "OpenWorkspace",
    "ReadFile",
    "ReadGuidance",
    "ReadLines",
    "TrackSnapshot",
];

/// A service that only callers with a token reach.
#[derive(Debug, Clone)]
pub struct Authorized<S> {
    service: S,
    tokens: Tokens,
}

/// Whether the token of a caller is for a call.
fn may_call(caller: Caller, method: &str) -> bool {
    let own = match caller {
        Caller::Any => return true,
        Caller::Gateway => &OF_GATEWAYS[..],
        Caller::Worker => &OF_WORKERS[..],
    };
    own.contains(&method) || OF_BOTH.contains(&method)
}

impl<S> Authorized<S> {
    /// Lets calls with `authorization: Bearer <token>` pass to `service`, and counts them by the name of the token.
    pub fn new(service: S, tokens: Tokens) -> Self {
        Self { service, tokens }
    }

    /// Why a call does not pass.
    fn refusal(&self, path: &str, headers: &HeaderMap) -> Option<Status> {
        let Some(token) = self.tokens.find_bearer(headers) else {
            return Some(rpc::status::error(ErrorCode::TokenInvalid, "the token is missing or wrong"));
        };
        let method = path.rsplit('/').next().unwrap_or_default();
        if !may_call(token.caller, method) {
            tracing::warn!(
                error.code = ErrorCode::CallerNotAllowed.as_str(),
                "{method} was refused to a caller"
            );
            let text = format!("the token of this caller is not for {method}");
            return Some(rpc::status::error(ErrorCode::CallerNotAllowed, text));
        }
        let label = token.label.clone();
        metrics::counter!("flotilla_sandbox_token_uses_total", "token" => label).increment(1);
        None
    }
}

impl<S: NamedService> NamedService for Authorized<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B> Service<Request<B>> for Authorized<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<Ready<Result<S::Response, S::Error>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.refusal(request.uri().path(), request.headers()) {
            Some(status) => Either::Left(ready(Ok(status.into_http()))),
            None => Either::Right(self.service.call(request)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_call_of_the_wire_is_for_some_caller() {
        let wire = [
            include_str!("../../../../proto/flotilla/v1/sandbox.proto"),
            include_str!("../../../../proto/flotilla/v1/terminal.proto"),
        ];
        let calls = wire.iter().flat_map(|file| file.lines());
        let calls = calls.filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
        let calls: BTreeSet<&str> = calls.collect();
        let known = OF_GATEWAYS.iter().chain(&OF_WORKERS).chain(&OF_BOTH).copied();
        assert_eq!(known.clone().collect::<BTreeSet<_>>(), calls);
        assert_eq!(known.count(), calls.len(), "each stands in one list");
    }

    #[test]
    fn a_token_is_for_the_calls_of_its_caller() {
        for (caller, method, want) in [
            (Caller::Gateway, "StartExec", false),
            (Caller::Gateway, "CloseTenant", false),
            (Caller::Gateway, "CreateTerminal", true),
            (Caller::Gateway, "ReadFile", true),
            (Caller::Worker, "CreateTerminal", false),
            (Caller::Worker, "StartExec", true),
            (Caller::Worker, "ReadFile", true),
            (Caller::Worker, "Unknown", false),
            (Caller::Any, "StartExec", true),
        ] {
            assert_eq!(may_call(caller, method), want, "{caller:?} {method}");
        }
    }
}
