//! The proof of the proof: each guard is removed once, and the harness must notice.

pub mod edits;
pub mod guard;
pub mod tree;

use super::{
    Plan,
    check::{self, Invariant},
    cluster::SLOTS,
    fault::{EVERYTHING, Kind},
    inject::Limit,
};
use anyhow::{Context as _, Result};
use guard::Mutant;
use std::{collections::BTreeSet, path::PathBuf, time::Duration};
use tree::Tree;

/// Faults after which a mutant counts as not caught: 95 % sure that fewer than one fault in a hundred shows it.
const INJECTIONS_MAX: usize = 300;
/// Faults of one run; a run must come to its end before it is judged.
const INJECTIONS_PER_RUN: usize = 50;
/// Longest run of that many.
const RUN: Duration = Duration::from_secs(90);
/// Weight of the faults that a guard is for, on top of the usual one.
const FOCUS: u32 = 30;

/// What became of a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Which guard was taken out.
    pub mutant: Mutant,
    /// The promises that were seen broken in the run that caught it.
    pub caught_by: BTreeSet<Invariant>,
    /// Whether one of them is a promise that the guard is for.
    pub is_caught: bool,
    /// Faults until then, rounded up to whole runs.
    pub injections: usize,
    /// Logs of runs that broke other promises only: somebody should look at them.
    pub odd: Vec<PathBuf>,
}

/// The promises that a guard is for, and the faults that it guards against.
pub fn expected(mutant: Mutant) -> (&'static [Invariant], &'static [Kind]) {
    use Invariant::{I1, I2, I3, I4, I5, I6, I7, I8, I9, I10, I14};
    match mutant {
        Mutant::EpochUnchecked | Mutant::EpochBySelect => (&[I1, I2, I3, I4], &[Kind::FreezeWorker]),
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
        // With a slot for each worker a few trees are enough to be in their own way.
        Mutant::WaitKeepsSlot => (&[I7, I8], &[]),
    }
}

/// Hunts one mutant.
///
/// # Errors
/// When the build without the guard or the harness itself fails.
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
        let outcome = super::run(&plan).await.with_context(|| format!("hunt {}", mutant.as_str()))?;
        verdict.injections += outcome.history.injections.len().max(1);
        verdict.caught_by = check::count(&outcome.violations).into_keys().collect();
        verdict.is_caught = promises.iter().any(|promise| verdict.caught_by.contains(promise));
        match outcome.directory {
            // What was to be seen is seen; the logs of a broken build teach nothing.
            Some(directory) if verdict.is_caught => {
                std::fs::remove_dir_all(directory).context("remove the logs")?;
            }
            Some(directory) => verdict.odd.push(directory),
            None => {}
        }
    }
    Ok(verdict)
}

/// One line of the table.
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
