//! What an error means to a caller, apart from what caused it. Each protocol maps a kind to its own status once.

/// The kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The call is wrong: correct it before trying again.
    Invalid,
    /// The position that the call names is too old.
    OutOfRange,
    /// The caller is unknown.
    Unauthenticated,
    /// The caller may not do this.
    Forbidden,
    /// The caller's tenant has no such thing.
    NotFound,
    /// Something else has this name.
    AlreadyExists,
    /// The call does not fit the present state.
    Precondition,
    /// Another call changed the state in between.
    Aborted,
    /// A limit is reached.
    Exhausted,
    /// Something took too long.
    DeadlineExceeded,
    /// Something that the gateway needs is down: the same call may succeed soon.
    Unavailable,
    /// A defect: the log says more.
    Internal,
}
