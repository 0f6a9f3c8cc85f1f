//! The id of a terminal. It contains the id of its session, so no look-up is needed: `pty_`, the session's id without `ses_`, and 26
//! characters of its own.

use super::{IdError, Ids, SessionId, Timestamp, parse};
use std::{fmt, str::FromStr};

const PREFIX: &str = "pty";
/// Characters after the session's.
const OWN_CHARS: usize = 26;

/// A terminal: `pty_…`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PtyId {
    text: Box<str>,
    session: SessionId,
}

impl PtyId {
    /// Makes a new id for a terminal of `session`.
    pub fn make(session: &SessionId, ids: &mut Ids, now: Timestamp) -> Self {
        let tail = session.as_str().split_once('_').map_or("", |(_, tail)| tail);
        let own = ids.tail(PREFIX, now, false);
        let own = own.split_once('_').map_or("", |(_, own)| own);
        Self { text: format!("{PREFIX}_{tail}{own}").into(), session: session.clone() }
    }

    /// The session of the terminal.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for PtyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for PtyId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = || IdError { text: text.chars().take(80).collect(), prefix: PREFIX };
        let checked = parse(text, PREFIX)?;
        let tail = checked.strip_prefix("pty_").unwrap_or_default();
        let session = &tail[..tail.len().checked_sub(OWN_CHARS).ok_or_else(wrong)?];
        let session = format!("ses_{session}").parse().map_err(|_| wrong())?;
        Ok(Self { text: checked, session })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn it_names_its_session() {
        let mut ids = Ids::new([7; 32]);
        let now = Timestamp(1_795_292_980_519);
        let session = SessionId::make(&mut ids, now);
        let pty = PtyId::make(&session, &mut ids, now);
        assert_eq!(pty.as_str().parse::<PtyId>().as_ref(), Ok(&pty));
        assert_eq!(pty.as_str().parse::<PtyId>().unwrap().session(), &session);
        for text in ["", "pty_", "pty_1", "ses_1", &pty.as_str()[..30], "pty_/../////////////////////////x"] {
            assert!(text.parse::<PtyId>().is_err(), "{text}");
        }
    }
}
