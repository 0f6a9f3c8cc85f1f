//! Cursors: the positions from which streams resume. A session's cursor is a position in its log. A tenant's cursor is a
//! moment of Postgres, and what the stream sent of the sessions that wrote after that moment.

use crate::errors::{error::Error, invalid::Invalid};
use domain::ids::SessionId;
use std::{collections::BTreeMap, fmt};
use store::log::feed::Horizon;

/// The prefix of cursors of a session's stream.
const SESSION: &str = "v1.";
/// The prefix of cursors of a tenant's stream.
const TENANT: &str = "t1.";
/// Sessions whose positions a cursor holds. Each frame carries a cursor, so it must stay short. The events of further sessions
/// may repeat after a resume.
pub(super) const SESSIONS_MAX: usize = 16;

/// The start of a session's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    After(u64),
    /// With the next event.
    Now,
}

/// The cursor after an event of a session: `v1.7`.
pub(crate) fn of_session(seq: u64) -> String {
    format!("{SESSION}{seq}")
}

/// The cursor of a tenant's stream: `t1.81002.ses_b-7.ses_c-12`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TenantCursor {
    /// Everything that was written before this moment was sent.
    pub(crate) horizon: Horizon,
    /// The position in the log of a session up to which its events were sent too.
    pub(crate) sessions: BTreeMap<SessionId, u64>,
}

impl TenantCursor {
    /// The cursor of a moment.
    pub(crate) fn at(horizon: Horizon) -> Self {
        Self { horizon, sessions: BTreeMap::new() }
    }

    /// The position up to which the events of a session were sent, at most its last position `seq`. A session that was
    /// deleted and created again can have fewer events than before.
    pub(super) fn sent(&self, session: &SessionId, seq: u64) -> u64 {
        self.sessions.get(session).copied().filter(|sent| *sent <= seq).unwrap_or(0)
    }
}

impl fmt::Display for TenantCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TENANT}{}", self.horizon)?;
        self.sessions.iter().try_for_each(|(session, seq)| write!(f, ".{session}-{seq}"))
    }
}

/// Reads a cursor that [`of_session`] returned; an empty text means the beginning.
///
/// # Errors
/// `cursor_invalid`.
pub(crate) fn parse_session(text: &str) -> Result<Start, Error> {
    if text.is_empty() {
        return Ok(Start::After(0));
    }
    let seq = text.strip_prefix(SESSION).and_then(|seq| seq.parse().ok());
    seq.map(Start::After).ok_or_else(foreign)
}

/// Reads the text of a [`TenantCursor`]; an empty text is `None`.
///
/// # Errors
/// `cursor_invalid`.
pub(crate) fn parse_tenant(text: &str) -> Result<Option<TenantCursor>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    tenant(text).map(Some).ok_or_else(foreign)
}

fn tenant(text: &str) -> Option<TenantCursor> {
    let mut members = text.strip_prefix(TENANT)?.split('.');
    let horizon = members.next()?.parse().ok()?;
    let mut sessions = BTreeMap::new();
    for member in members {
        let (session, seq) = member.split_once('-')?;
        sessions.insert(session.parse().ok()?, seq.parse().ok()?);
        if sessions.len() > SESSIONS_MAX {
            return None;
        }
    }
    Some(TenantCursor { horizon, sessions })
}

fn foreign() -> Error {
    Invalid::Cursor.because("the cursor is not from this stream")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stream_reads_only_its_own_cursors() {
        let tenant = TenantCursor::at(7);
        assert_eq!(parse_session(&of_session(7)), Ok(Start::After(7)));
        assert_eq!(parse_tenant(&tenant.to_string()), Ok(Some(tenant.clone())));
        assert_eq!((parse_session(""), parse_tenant("")), (Ok(Start::After(0)), Ok(None)));
        assert_eq!(parse_session(&tenant.to_string()), Err(foreign()));
        assert_eq!(parse_tenant(&of_session(7)), Err(foreign()));
    }

    #[test]
    fn a_tenants_cursor_holds_the_positions_of_some_sessions() {
        let session = |number: usize| format!("ses_{number}").parse::<SessionId>().expect("id");
        let of =
            |count| TenantCursor { horizon: 9, sessions: (0..count).map(|at| (session(at), 3)).collect() };
        let text = of(2).to_string();
        assert_eq!(text, "t1.9.ses_0-3.ses_1-3");
        assert_eq!(parse_tenant(&text), Ok(Some(of(2))));
        assert_eq!(parse_tenant(&of(SESSIONS_MAX).to_string()), Ok(Some(of(SESSIONS_MAX))));
        for forged in [
            of(SESSIONS_MAX + 1).to_string(),
            "t1.9.".to_owned(),
            "t1.9.ses_0".to_owned(),
            "t1.9.ses_0-".to_owned(),
            "t1.9.ses_0--1".to_owned(),
            "t1.9.msg_0-1".to_owned(),
            "t1..ses_0-1".to_owned(),
        ] {
            assert_eq!(parse_tenant(&forged), Err(foreign()), "{forged}");
        }
        assert_eq!((of(1).sent(&session(0), 3), of(1).sent(&session(1), 3)), (3, 0));
        assert_eq!(of(1).sent(&session(0), 2), 0, "the session was created again");
    }
}
