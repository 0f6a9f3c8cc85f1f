//! Sessions of any tenant, for workers that look for work.

use crate::{column::parse_id, error::Error};
use domain::{
    ids::{SessionId, TenantId},
    session::Class,
};
use sqlx::{Row as _, postgres::PgRow};

/// A session of any tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionRef {
    pub tenant: TenantId,
    pub session: SessionId,
}

/// A session that a worker may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub target: SessionRef,
    pub class: Class,
    /// Takeovers since the last progress.
    pub attempts: i16,
    /// Maximum concurrent loops of its tenant.
    pub running_max: u32,
    /// Its tenant's share of the slots.
    pub weight: u32,
}

/// Reads a row with the session, its class and attempts, and the limits of its tenant.
pub(super) fn candidate(row: &PgRow) -> Result<Candidate, Error> {
    Ok(Candidate {
        target: session_ref(row)?,
        class: Class::from_i16(row.try_get("class")?).unwrap_or_default(),
        attempts: row.try_get("attempts")?,
        running_max: u32::try_from(row.try_get::<i32, _>("running_max")?).unwrap_or(0),
        weight: u32::try_from(row.try_get::<i32, _>("weight")?).unwrap_or(1),
    })
}

/// Reads `tenant_id` and `session_id`.
pub(super) fn session_ref(row: &PgRow) -> Result<SessionRef, Error> {
    let session: String = row.try_get("session_id")?;
    Ok(SessionRef { tenant: TenantId(row.try_get("tenant_id")?), session: parse_id("session", &session)? })
}
