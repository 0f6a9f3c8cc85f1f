//! Sessions of any tenant, as workers look for them.

use crate::error::Error;
use domain::{
    ids::{SessionId, TenantId},
    session::Class,
};
use sqlx::{Row as _, postgres::PgRow};

/// A session by its full name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Whose.
    pub tenant: TenantId,
    /// Which.
    pub session: SessionId,
}

/// A session that a worker may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimable {
    /// Which.
    pub place: Place,
    /// How urgent it is.
    pub class: Class,
    /// Take-overs since the last progress.
    pub attempts: i16,
    /// Loops of its tenant that may run at once.
    pub running_max: u32,
    /// Its tenant's share of the slots.
    pub weight: u32,
}

pub(super) fn claimable(row: &PgRow) -> Result<Claimable, Error> {
    Ok(Claimable {
        place: place(row)?,
        class: Class::from_i16(row.try_get("class")?).unwrap_or_default(),
        attempts: row.try_get("attempts")?,
        running_max: u32::try_from(row.try_get::<i32, _>("running_max")?).unwrap_or(0),
        weight: u32::try_from(row.try_get::<i32, _>("weight")?).unwrap_or(1),
    })
}

pub(super) fn place(row: &PgRow) -> Result<Place, Error> {
    let session: String = row.try_get("session_id")?;
    Ok(Place {
        tenant: TenantId(row.try_get("tenant_id")?),
        session: session.parse().map_err(|error| Error::unreadable("session", error))?,
    })
}
