//! For which calls of the broker the token of a caller is. A stolen token of a gateway opens no door, and one of a worker changes no secret.

use chassis::grpc::tokens::Caller;

/// The calls of gateways: what people want.
const OF_GATEWAYS: [&str; 3] = ["FlushEgress", "Push", "PutSecret"];
/// The calls of workers: what sessions need.
const OF_WORKERS: [&str; 5] = ["GrantHosts", "OpenEgress", "PullLayer", "ReadPage", "ResolveImage"];

/// Whether the token of a caller is for this call.
pub(crate) fn may_call(caller: Caller, method: &str) -> bool {
    match caller {
        Caller::Any => true,
        Caller::Gateway => OF_GATEWAYS.contains(&method),
        Caller::Worker => OF_WORKERS.contains(&method),
    }
}
