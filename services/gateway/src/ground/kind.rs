//! The meaning of an error for a caller, independent of its cause. Each protocol maps kinds to its own status codes
//! in one place.

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
    /// The caller's tenant has no such object.
    NotFound,
    /// Another object has this name.
    AlreadyExists,
    /// The current state does not allow the call.
    Precondition,
    /// Another call changed the state in between.
    Aborted,
    /// A limit is reached.
    Exhausted,
    /// An operation took too long.
    DeadlineExceeded,
    /// A backend of the gateway is down: the same call may succeed soon.
    Unavailable,
    /// A defect: the log says more.
    Internal,
}
