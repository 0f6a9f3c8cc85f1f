//! Ids in OpenCode's wire format: a prefix, 12 hexadecimal digits of time and 14 random characters. An id does not give
//! an order, because its 48 time bits wrap every 795 days; order always comes from a sequence column.

pub mod pty;

use crate::text;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Characters of an id with its prefix. A longer text is no id.
const ID_CHARS_MAX: usize = 64;
/// Bytes of a hash in an id: as many characters as other ids have.
const DIGEST_BYTES: usize = 13;

/// A text that is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid id {text:?}; expected one that begins with \"{prefix}_\"")]
pub struct IdError {
    text: String,
    prefix: &'static str,
}

/// Milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Reads a time like `2026-11-30T09:00:00Z`. `None`: it is none.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let at = time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).ok()?;
        i64::try_from(at.unix_timestamp_nanos() / 1_000_000).ok().map(Self)
    }
}

/// Milliseconds since 1970-01-01 UTC.
#[derive(Debug)]
pub struct Ids {
    rng: StdRng,
    last: u64,
}

impl Ids {
    /// Makes a source of ids from 32 random bytes.
    pub fn new(seed: [u8; 32]) -> Self {
        Self { rng: StdRng::from_seed(seed), last: 0 }
    }

    fn tail(&mut self, prefix: &str, now: Timestamp, descending: bool) -> Box<str> {
        let ticks = (now.0.unsigned_abs().wrapping_mul(4096)).max(self.last + 1);
        self.last = ticks;
        let time = if descending { !ticks } else { ticks } & 0xffff_ffff_ffff;
        let mut id = format!("{prefix}_{time:012x}");
        for _ in 0..14 {
            id.push(char::from(BASE62[self.rng.random_range(0..BASE62.len())]));
        }
        id.into()
    }
}

fn parse(text: &str, prefix: &'static str) -> Result<Box<str>, IdError> {
    let tail = text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_'));
    let valid = tail.is_some_and(|tail| {
        !tail.is_empty() && text.len() <= ID_CHARS_MAX && tail.bytes().all(|b| b.is_ascii_alphanumeric())
    });
    if valid { Ok(text.into()) } else { Err(IdError { text: text.chars().take(80).collect(), prefix }) }
}

impl PermissionId {
    /// The permission request of the tool call of `part`: always the same id.
    pub fn of(part: &PartId) -> Self {
        Self(renamed(&part.0, "per"))
    }

    /// The request for permission to repeat the tool call of `part`: always the same id, and not the id for the call itself.
    pub fn of_loop(part: &PartId) -> Self {
        Self(format!("{}again", renamed(&part.0, "per")).into())
    }
}

impl QuestionId {
    /// The question of the tool call of `part`: always the same id.
    pub fn of(part: &PartId) -> Self {
        Self(renamed(&part.0, "que"))
    }
}

impl SessionId {
    /// Names the door of the warm-ups of a project, which belong to no session: always the same id. No session has it, because it is longer than those of sessions.
    pub fn of_warm_ups(project: &ProjectId) -> Self {
        Self(format!("{}warm", renamed(&project.0, "ses")).into())
    }
}

impl ProjectId {
    /// The id that stands for a SHA-256: always the same one.
    pub fn of_sha256(hash: [u8; 32]) -> Self {
        Self(format!("prj_{}", text::hex(&hash[..DIGEST_BYTES])).into())
    }
}

impl EventId {
    /// Makes another id, for an additional event of the same write.
    #[must_use]
    pub fn numbered(&self, number: usize) -> Self {
        Self(format!("{}r{number}", self.0).into())
    }
}

/// Returns the same id with another prefix.
fn renamed(id: &str, prefix: &str) -> Box<str> {
    let tail = id.split_once('_').map_or(id, |(_, tail)| tail);
    format!("{prefix}_{tail}").into()
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, descending = $descending:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Box<str>);

        impl $name {
            /// Makes a new id. Later ids of the same `ids` sort after earlier ones (session ids: before).
            pub fn make(ids: &mut Ids, now: Timestamp) -> Self {
                Self(ids.tail($prefix, now, $descending))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                parse(text, $prefix).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.into()
            }
        }
    };
}

id!(
    /// A session: `ses_…`.
    SessionId, "ses", descending = true
);
id!(
    /// A message: `msg_…`.
    MessageId, "msg", descending = false
);
id!(
    /// A part of a message: `prt_…`.
    PartId, "prt", descending = false
);
id!(
    /// A durable event: `evt_…`.
    EventId, "evt", descending = false
);
id!(
    /// A permission request: `per_…`.
    PermissionId, "per", descending = false
);
id!(
    /// A question to a person: `que_…`.
    QuestionId, "que", descending = false
);
id!(
    /// A project: `prj_…`.
    ProjectId, "prj", descending = false
);
id!(
    /// A worktree of a project: `wtr_…`.
    WorktreeId, "wtr", descending = false
);

/// A tenant: a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TenantId(pub uuid::Uuid);

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without hyphens, so that it fits into NATS subjects and file names.
        self.0.simple().fmt(f)
    }
}

impl FromStr for TenantId {
    type Err = uuid::Error;
    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_opencodes_shape_and_ascend() {
        let mut ids = Ids::new([7; 32]);
        let now = Timestamp(1_795_292_980_519);
        let first = MessageId::make(&mut ids, now);
        let second = MessageId::make(&mut ids, now);
        assert!(first < second);
        assert_eq!(first.as_str().len(), "msg_".len() + 26);
        assert_eq!(first.as_str().parse::<MessageId>().as_ref(), Ok(&first));
        assert!(SessionId::make(&mut ids, now) > SessionId::make(&mut ids, now), "sessions descend");
    }

    #[test]
    fn no_session_has_the_id_of_the_warm_ups_of_a_project() {
        let now = Timestamp(1_795_292_980_519);
        let mut ids = Ids::new([7; 32]);
        let of_session = SessionId::make(&mut ids, now).as_str().len();
        for project in [ProjectId::make(&mut ids, now), ProjectId::of_sha256([7; 32])] {
            let id = SessionId::of_warm_ups(&project);
            assert_eq!(id.as_str().parse::<SessionId>().as_ref(), Ok(&id));
            assert!(id.as_str().len() > of_session, "{id}");
        }
    }

    #[test]
    fn foreign_text_is_no_id() {
        for text in [
            "",
            "ses_",
            "ses",
            "msg_1ffcce3d00015Oy45kUL559D5O",
            "ses_../x",
            "ses_a b",
            &format!("ses_{}", "a".repeat(61)),
        ] {
            assert!(text.parse::<SessionId>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_clock_that_steps_back_still_ascends() {
        let mut ids = Ids::new([1; 32]);
        let first = PartId::make(&mut ids, Timestamp(2_000));
        assert!(first < PartId::make(&mut ids, Timestamp(1_000)));
    }
}
