//! For which calls of the broker the token of a caller is. A stolen token of a gateway opens no door, and one of a worker changes no secret.

use chassis::grpc::tokens::Caller;

/// The calls of gateways: what people want, and what a forge tells.
const OF_GATEWAYS: [&str; 12] = [
    "CheckDelivery",
    "FlushEgress",
    "GetForgeApp",
    "GetForgeInstallation",
    "GetForgePermission",
    "GetForgeRepository",
    "ListDeliveryAttempts",
    "Push",
    "PutForgeApp",
    "PutForgeComment",
    "PutSecret",
    "RepeatDeliveryAttempt",
];
/// The calls of workers: what sessions need, and what shows their work at a forge.
const OF_WORKERS: [&str; 10] = [
    "AcknowledgeComment",
    "GrantHosts",
    "OpenEgress",
    "OpenForgePullRequest",
    "PullLayer",
    "Push",
    "PutForgeCheck",
    "PutForgeComment",
    "ReadPage",
    "ResolveImage",
];

/// Whether the token of a caller is for this call.
pub(crate) fn may_call(caller: Caller, method: &str) -> bool {
    match caller {
        Caller::Any => true,
        Caller::Gateway => OF_GATEWAYS.contains(&method),
        Caller::Worker => OF_WORKERS.contains(&method),
    }
}
