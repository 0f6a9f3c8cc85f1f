//! How long the sessions of a tenant are kept. `control::retention` deletes the others.

/// For how many days sessions are kept; `None` and 0: for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// After the last change of an idle session.
    pub idle_days: Option<u32>,
    /// After a session was archived.
    pub archived_days: Option<u32>,
}

impl Retention {
    /// The two parameters of `control::retention::is_expired`.
    pub(crate) fn columns(self) -> [Option<i32>; 2] {
        [self.idle_days, self.archived_days]
            .map(|days| days.map(|days| i32::try_from(days).unwrap_or(i32::MAX)))
    }
}
