//! Checks that the caller has the scope of a gRPC method, before anything reads the message. The methods find the caller in the request.

use crate::{
    app::gateway::Gateway,
    auth::{live_keys::RequestKey, principal::Principal},
    errors::error::Error,
    grpc::{service::credentials_of, status::to_status},
    scope::Scope,
};
use axum::{
    extract::{Request, State},
    http::request::Parts,
    middleware::Next,
    response::Response,
};
use chassis::port;
use rpc::v1::{self, Access};
use std::{collections::BTreeMap, sync::Arc};

/// The methods, and who may call them.
#[derive(Clone)]
pub(super) struct Methods {
    gateway: Gateway,
    table: Arc<BTreeMap<String, Access>>,
}

impl Methods {
    /// Reads the methods of the API.
    ///
    /// # Errors
    /// If the descriptors of the services cannot be read.
    pub(super) fn new(gateway: &Gateway) -> anyhow::Result<Self> {
        Ok(Self { gateway: gateway.clone(), table: Arc::new(rpc::access::methods()?) })
    }

    /// The name of a method in metrics. Clients cannot make names: those of other paths are the same.
    pub(super) fn name(&self, path: &str) -> String {
        let known = self.table.get_key_value(path).map(|(path, _)| path.trim_start_matches("/flotilla.v1."));
        known.unwrap_or("other").to_owned()
    }
}

/// Serves the call if its caller may make it. Calls of other services, such as reflection, need no key.
pub(super) async fn check(State(methods): State<Methods>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    if let Some(access) = methods.table.get(head.uri.path()) {
        match admit(&methods.gateway, &head, access).await {
            Ok(principal) => head.extensions.insert(principal),
            Err(error) => return to_status(error).into_http(),
        };
    }
    next.run(Request::from_parts(head, body)).await
}

async fn admit(gateway: &Gateway, head: &Parts, access: &Access) -> Result<Principal, Error> {
    let credentials = credentials_of(&head.headers, &head.extensions)?;
    let scope = scope(access.scope());
    let is_operators = access.by_operator && gateway.is_operators(credentials)?;
    let principal = if scope == Scope::Operate || is_operators {
        gateway.authenticate_operator(credentials)?
    } else {
        gateway.authenticate(credentials).await?
    };
    port::vouch(&head.extensions);
    RequestKey::note(&head.extensions, principal.key());
    principal.require(if is_operators { Scope::Operate } else { scope })?;
    Ok(principal)
}

fn scope(scope: v1::Scope) -> Scope {
    match scope {
        v1::Scope::Read => Scope::Read,
        v1::Scope::Write => Scope::Write,
        v1::Scope::Manage => Scope::Manage,
        v1::Scope::Operate | v1::Scope::Unspecified => Scope::Operate,
    }
}
