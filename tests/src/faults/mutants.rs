//! The proof of the proof: each guard is removed once, and the harness must notice.

pub mod edits;
pub mod guard;
pub mod tree;

use super::{
    check::{promises, violation::Invariant},
    cluster::SLOTS,
    inject::{
        fault::{EVERYTHING, Kind},
        injector::Limit,
    },
    run::{self, Plan},
};
use anyhow::{Context as _, Result};
use guard::Mutant;
use std::{collections::BTreeSet, path::PathBuf, time::Duration};
use tree::Tree;

/// Number of faults after which a mutant counts as not caught. With 95 % confidence, fewer than one fault in a hundred
/// reveals it.
const INJECTIONS_MAX: usize = 300;
/// Number of faults in one run. A run is checked only at its end.
const INJECTIONS_PER_RUN: usize = 50;
/// Longest run.
const RUN: Duration = Duration::from_secs(90);
/// Additional weight of the faults that a guard protects against.
const FOCUS: u32 = 30;

/// The result of the hunt for a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub mutant: Mutant,
    /// The promises that were broken in the last run.
    pub caught_by: BTreeSet<Invariant>,
    /// Whether one of them is a promise that the guard protects.
    pub is_caught: bool,
    /// Number of injected faults, rounded up to whole runs.
    pub injections: usize,
    /// Directories of runs that broke only other promises; a person should look at them.
    pub odd: Vec<PathBuf>,
}

/// Returns the promises that a guard protects, and the faults that it protects against.
pub fn expected(mutant: Mutant) -> (&'static [Invariant], &'static [Kind]) {
    use Invariant::{I1, I2, I3, I4, I5, I6, I7, I8, I9, I10, I14};
    match mutant {
        Mutant::EpochUnchecked => (&[I1, I2, I3, I4], &[Kind::FreezeWorker]),
        Mutant::EpochBySelect => (&[I1, I2, I3, I4], &[Kind::LateWrite]),
        Mutant::WriteSeqUnchecked => (&[I2], &[Kind::LostCommit, Kind::TornStream]),
        Mutant::ParkBlind => (&[I1, I7], &[]),
        Mutant::NoSweeper => (&[I7], &[Kind::FlushRedis, Kind::KillRedis, Kind::KillNats]),
        Mutant::AliveUnchecked => (&[I4], &[Kind::FlushRedis, Kind::WakeStorm]),
        Mutant::AttemptsKept => (&[I10], &[Kind::KillWorker]),
        Mutant::DedupeOff => (&[I1], &[Kind::KillGateway, Kind::CutFront]),
        Mutant::SandboxEpochUnchecked => (&[I3], &[Kind::LateCall]),
        Mutant::SandboxEpochForgotten => (&[I3], &[Kind::LateCall, Kind::KillSandbox]),
        Mutant::ExecIdPerEpoch => (&[I3], &[Kind::KillWorker, Kind::FreezeWorker]),
        Mutant::RepeatUnchecked => (&[I3], &[Kind::KillUnheard]),
        Mutant::OrphansKept => (&[I7], &[Kind::LostCommit, Kind::TornStream]),
        Mutant::HeartbeatDies => (&[I4], &[Kind::KillRedis, Kind::FreezeRedis]),
        Mutant::GapUnrepaired => (&[I5], &[Kind::KillNats, Kind::CutLink]),
        Mutant::HeadUnchecked => (&[I5], &[Kind::KillNats, Kind::CutLink]),
        Mutant::DeltaEpochUnchecked => (&[I6], &[Kind::LateNews]),
        Mutant::AbortAnnouncedOnly => (&[I7, I9], &[Kind::KillNats, Kind::KillWorker]),
        Mutant::DrainDrops => (&[I14], &[Kind::DrainWorker]),
        Mutant::AckAhead => (&[I1], &[]),
        // With one slot for each worker, a few trees are enough to block each other.
        Mutant::WaitKeepsSlot => (&[I7, I8], &[]),
    }
}

/// Builds a mutant and runs it until a check catches it.
///
/// # Errors
/// If the build without the guard or the harness itself fails.
pub async fn hunt(mutant: Mutant, tree: &Tree, seed: u64) -> Result<Verdict> {
    let program = tree.build_without(mutant)?;
    let (promises, faults) = expected(mutant);
    let weight =
        |(kind, weight): (Kind, u32)| (kind, if faults.contains(&kind) { weight + FOCUS } else { weight });
    let mix = EVERYTHING.map(weight).to_vec();
    let mut verdict =
        Verdict { mutant, caught_by: BTreeSet::new(), is_caught: false, injections: 0, odd: vec![] };
    while verdict.injections < INJECTIONS_MAX && !verdict.is_caught {
        let plan = Plan {
            seed: seed + verdict.injections as u64,
            limit: Limit { time: RUN, count: INJECTIONS_PER_RUN },
            mix: mix.clone(),
            program: program.clone(),
            slots: if mutant == Mutant::WaitKeepsSlot { 1 } else { SLOTS },
        };
        let outcome = run::run(&plan).await.with_context(|| format!("hunt {}", mutant.as_str()))?;
        verdict.injections += outcome.history.injections.len().max(1);
        verdict.caught_by = promises::count(&outcome.violations).into_keys().collect();
        verdict.is_caught = promises.iter().any(|promise| verdict.caught_by.contains(promise));
        match outcome.directory {
            // The logs of a caught mutant have no further use.
            Some(directory) if verdict.is_caught => {
                std::fs::remove_dir_all(directory).context("remove the logs")?;
            }
            Some(directory) => verdict.odd.push(directory),
            None => {}
        }
    }
    Ok(verdict)
}

/// Writes one line of the table.
pub fn row(verdict: &Verdict) -> String {
    let names = |of: &mut dyn Iterator<Item = &Invariant>| {
        of.map(|invariant| format!("{invariant:?}")).collect::<Vec<_>>().join(" ")
    };
    let (promises, _) = expected(verdict.mutant);
    let odd: String = verdict.odd.iter().map(|directory| format!("; odd: {}", directory.display())).collect();
    let word = if verdict.is_caught { "caught by" } else { "NOT CAUGHT" };
    format!(
        "{:<26} for {:<18} {word} {:<18} after {} faults{odd}",
        verdict.mutant.as_str(),
        names(&mut promises.iter()),
        names(&mut verdict.caught_by.iter()),
        verdict.injections,
    )
}
