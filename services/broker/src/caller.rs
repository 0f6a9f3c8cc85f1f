//! Who calls the broker, and for which calls its token is. A stolen token of a gateway opens no door, and one of a worker changes no secret.

/// The calls of gateways: what people want.
const OF_GATEWAYS: [&str; 3] = ["FlushEgress", "Push", "PutSecret"];
/// The calls of workers: what sessions need.
const OF_WORKERS: [&str; 5] = ["GrantHosts", "OpenEgress", "PullLayer", "ReadPage", "ResolveImage"];

/// A caller, by its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// It has a token without a name, which is for every call.
    Any,
    Gateway,
    Worker,
}

impl Caller {
    /// The caller with the token of this name. `None`: no caller has this name.
    pub(crate) fn of(name: Option<&str>) -> Option<Self> {
        match name {
            None => Some(Self::Any),
            Some("gateway") => Some(Self::Gateway),
            Some("worker") => Some(Self::Worker),
            Some(_) => None,
        }
    }

    /// Whether its token is for this call.
    pub(crate) fn may_call(self, method: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Gateway => OF_GATEWAYS.contains(&method),
            Self::Worker => OF_WORKERS.contains(&method),
        }
    }
}
