//! Statements without one of their guards, for a build that takes them out one at a time; see `domain::mutant`. In every
//! other build a statement is what it is.

use domain::mutant::{self, Mutant};
use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

/// A guard in a statement, and what stands there without it.
pub(crate) type Guard = (Mutant, &'static str, &'static str);

/// Gives the statement, without the guard that this process goes without.
pub(crate) fn guarded(sql: &'static str, guards: &[Guard]) -> SqlStr {
    let taken_out = guards.iter().find(|(mutant, _, _)| mutant::on(*mutant));
    match taken_out {
        Some((_, guard, instead)) => AssertSqlSafe(sql.replace(guard, instead)).into_sql_str(),
        None => sql.into_sql_str(),
    }
}
