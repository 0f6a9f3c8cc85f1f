//! The kinds of upkeep: how often each is due, and what it does.

use super::{
    bundles, error::Error, ledger, logs, reconciliation, removals, rows, sessions, tenants, unused, usage,
};
use crate::process::deps::Deps;
use domain::limits;
use std::time::Duration;

/// Time between two compactions of logs in the whole fleet; milliseconds. Finding the sessions reads all control rows.
const COMPACTION_PERIOD_MS: u64 = 10 * 60 * 1_000;
/// Time between two looks for old entries of the ledger; milliseconds. Each look reads the whole ledger.
const LEDGER_PERIOD_MS: u64 = 24 * 60 * 60 * 1_000;
/// Looks at the clock in each period of the reconciliation.
const RECONCILIATION_LOOKS: u64 = 60;
/// Looks at the clock in each period of the measurement.
const MEASUREMENT_LOOKS: u64 = 6;

/// A kind of upkeep. Each has rounds of its own, because the removal of a large workspace takes minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Removes the files of deleted sessions and tenants.
    Files,
    /// Removes the rows of deleted sessions.
    Rows,
    /// Removes what deleted tenants have.
    Tenants,
    /// Removes bundles that nobody needs.
    Bundles,
    /// Deletes sessions that are kept for no longer.
    Sessions,
    /// Removes empty projects and revoked keys.
    Unused,
    Ledger,
    Compaction,
    Measurement,
    /// Compares the sandbox with Postgres.
    Reconciliation,
}

impl Work {
    pub(super) const ALL: [Self; 10] = [
        Self::Files,
        Self::Rows,
        Self::Tenants,
        Self::Bundles,
        Self::Sessions,
        Self::Unused,
        Self::Ledger,
        Self::Compaction,
        Self::Measurement,
        Self::Reconciliation,
    ];

    /// Its name in metrics and logs, and as a chore in Postgres.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Rows => "rows",
            Self::Tenants => "tenants",
            Self::Bundles => "bundles",
            Self::Sessions => "sessions",
            Self::Unused => "unused",
            Self::Ledger => "ledger",
            Self::Compaction => "compaction",
            Self::Measurement => "usage",
            Self::Reconciliation => "reconciliation",
        }
    }

    /// The time between two rounds of the whole fleet, if only one worker is to do them; milliseconds.
    pub(super) fn fleet_period_ms(self, deps: &Deps) -> Option<u64> {
        match self {
            Self::Files | Self::Rows | Self::Tenants | Self::Bundles | Self::Sessions | Self::Unused => None,
            Self::Ledger => Some(LEDGER_PERIOD_MS),
            Self::Compaction => Some(COMPACTION_PERIOD_MS),
            Self::Measurement => Some(deps.measure_ms),
            Self::Reconciliation => Some(deps.reconcile_ms),
        }
    }

    /// The pause of this worker between two rounds, or between two looks whether one is due.
    pub(super) fn pause(self, deps: &Deps) -> Duration {
        Duration::from_millis(match self {
            // An operator or a client waits for the result.
            Self::Files | Self::Rows | Self::Tenants => limits::POLL_MS,
            Self::Bundles | Self::Sessions | Self::Unused | Self::Ledger | Self::Compaction => deps.upkeep_ms,
            Self::Measurement => deps.measure_ms / MEASUREMENT_LOOKS,
            Self::Reconciliation => deps.reconcile_ms / RECONCILIATION_LOOKS,
        })
    }

    /// Does one round. Several workers may do so at once; a round that is cut off is done again later.
    ///
    /// # Errors
    /// The next round tries again.
    pub(super) async fn run(self, deps: &Deps) -> Result<(), Error> {
        match self {
            Self::Files => removals::remove_due(deps).await,
            Self::Rows => rows::remove(deps).await,
            Self::Tenants => tenants::delete_marked(deps).await,
            Self::Bundles => bundles::forget_old(deps).await,
            Self::Sessions => sessions::expire_old(deps).await,
            Self::Unused => unused::forget(deps).await,
            Self::Ledger => ledger::forget_old(deps).await,
            Self::Compaction => logs::compact(deps).await,
            Self::Measurement => usage::measure(deps).await,
            Self::Reconciliation => reconciliation::reconcile(deps).await,
        }
    }
}
