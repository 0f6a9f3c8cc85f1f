//! The NATS subjects of a namespace.

use domain::ids::{SessionId, TenantId};

/// Replaces the id in a subject: news of the whole tenant.
pub(crate) const ALL: &str = "all";
/// Replaces the id in a subject: news of everything in the tenant.
pub(crate) const ANY: &str = "*";

/// The rings of the doorbell.
pub(crate) fn wake(namespace: &str) -> String {
    format!("{namespace}.v1.wake")
}

/// The nudges to the holder of a session.
pub(crate) fn nudge(namespace: &str, tenant: TenantId, session: &SessionId) -> String {
    format!("{namespace}.v1.t.{tenant}.s.{session}.ctl")
}

/// The nudges to the holders of all sessions.
pub(crate) fn any_nudge(namespace: &str) -> String {
    format!("{namespace}.v1.t.*.s.*.ctl")
}

/// The hints that a session may soon need what its machine can have before.
pub(crate) fn warm_up(namespace: &str, tenant: TenantId, session: &SessionId) -> String {
    format!("{namespace}.v1.t.{tenant}.s.{session}.warm")
}

/// The hints for all sessions.
pub(crate) fn any_warm_up(namespace: &str) -> String {
    format!("{namespace}.v1.t.*.s.*.warm")
}

/// The session in a subject that [`nudge`] or [`warm_up`] returned.
pub(crate) fn parse_session(subject: &str) -> Option<(TenantId, SessionId)> {
    let mut words = subject.split('.').rev().skip(1);
    let session = words.next()?.parse().ok()?;
    let tenant = words.nth(1)?.parse().ok()?;
    Some((tenant, session))
}

/// The news of `id`: a session, a project, [`ALL`] or [`ANY`].
pub(crate) fn news(namespace: &str, tenant: TenantId, id: &str) -> String {
    format!("{namespace}.v1.t.{tenant}.s.{id}.news")
}

/// The id in a subject that [`news`] returned.
pub(crate) fn parse_news(subject: &str) -> Option<&str> {
    subject.strip_suffix(".news")?.rsplit('.').next()
}
