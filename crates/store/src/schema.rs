//! The version of the database's schema, and whether this program can work with it. A migration is named by its number.

use crate::{Store, broker::BrokerStore, error::Error};
use sqlx::{PgConnection, Row as _};

pub(crate) static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations");

/// Postgres has no table of this name.
const UNDEFINED_TABLE: &str = "42P01";
/// Only migrations of this version and later let our roles read the version.
const INSUFFICIENT_PRIVILEGE: &str = "42501";

/// What a program says that Postgres refuses, before its cause.
pub const UNREADABLE: &str = "read the version of the database; `flotilla migrate` makes its tables, and its roles with their passwords";

/// What a program does with a database that a newer version has migrated. Migrations keep what programs of the version before need, so an older program
/// can go on, for example while an upgrade is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewerSchema {
    /// It does not start.
    Refuse,
    /// It starts.
    Accept,
}

impl NewerSchema {
    /// Accepts it if `is_accepted`.
    pub fn of(is_accepted: bool) -> Self {
        if is_accepted { Self::Accept } else { Self::Refuse }
    }
}

/// Why a program cannot work with a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SchemaProblem {
    #[error("the database has no tables of Flotilla; run `flotilla migrate`")]
    Missing,
    /// An older version has migrated it.
    #[error(
        "the schema of the database is older than version {needed} of this program; run `flotilla migrate` of the same version"
    )]
    Older {
        /// The version that the program needs.
        needed: i64,
    },
    /// A newer version has migrated it.
    #[error(
        "the schema of the database has version {found}, this program knows versions up to {known}; start a newer program, or let this one start with \
         FLOTILLA_ACCEPT_NEWER_SCHEMA=true"
    )]
    Newer {
        /// The version of the database.
        found: i64,
        /// The version that the program knows.
        known: i64,
    },
}

/// The newest version that this program knows.
pub fn known_version() -> i64 {
    MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or_default()
}

/// Why the schema does not fit this program, if it does not.
pub(crate) fn problem(found: Option<i64>, newer: NewerSchema) -> Option<SchemaProblem> {
    let known = known_version();
    match found {
        None => Some(SchemaProblem::Missing),
        Some(found) if found < known => Some(SchemaProblem::Older { needed: known }),
        Some(found) if found > known && newer == NewerSchema::Refuse => {
            Some(SchemaProblem::Newer { found, known })
        }
        Some(_) => None,
    }
}

impl Store {
    /// Why this program cannot work with the database, if it cannot.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_schema_problem(&self, newer: NewerSchema) -> Result<Option<SchemaProblem>, Error> {
        without_privilege(find_version(&mut *self.system.acquire().await?).await, newer)
    }
}

impl BrokerStore {
    /// Why this program cannot work with the database, if it cannot.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_schema_problem(&self, newer: NewerSchema) -> Result<Option<SchemaProblem>, Error> {
        let mut tx = self.0.begin_without_tenant().await?;
        without_privilege(find_version(&mut tx).await, newer)
    }
}

/// Of a version that does not let our roles read the version yet.
fn without_privilege(
    found: Result<Option<i64>, sqlx::Error>,
    newer: NewerSchema,
) -> Result<Option<SchemaProblem>, Error> {
    match found {
        Ok(found) => Ok(problem(found, newer)),
        Err(error) if has_code(&error, INSUFFICIENT_PRIVILEGE) => {
            Ok(Some(SchemaProblem::Older { needed: known_version() }))
        }
        Err(error) => Err(error.into()),
    }
}

/// Reads the version; `None`: nothing has migrated the database.
pub(crate) async fn find_version(connection: &mut PgConnection) -> Result<Option<i64>, sqlx::Error> {
    let query = sqlx::query("select max(version) as version from _sqlx_migrations where success");
    match query.fetch_one(connection).await {
        Ok(row) => row.try_get("version"),
        Err(error) if has_code(&error, UNDEFINED_TABLE) => Ok(None),
        Err(error) => Err(error),
    }
}

fn has_code(error: &sqlx::Error, code: &str) -> bool {
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_known_version_fits_unless_a_newer_one_is_accepted() {
        use NewerSchema::{Accept, Refuse};
        let known = known_version();
        let newer = SchemaProblem::Newer { found: known + 1, known };
        for (found, accepted, want) in [
            (None, Accept, Some(SchemaProblem::Missing)),
            (Some(known - 1), Accept, Some(SchemaProblem::Older { needed: known })),
            (Some(known), Refuse, None),
            (Some(known + 1), Refuse, Some(newer)),
            (Some(known + 1), Accept, None),
        ] {
            assert_eq!(problem(found, accepted), want, "{found:?}");
        }
    }
}
