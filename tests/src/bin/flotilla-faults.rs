//! `flotilla-faults`: injects faults while the real processes work, and reports broken promises. The exit code is 1 if a
//! promise was broken, or if the harness did not notice the removal of a guard.
#![allow(clippy::print_stdout, reason = "its output is the report")]

use anyhow::Context as _;
use clap::Parser as _;
use e2e::faults::{
    cluster,
    inject::{fault::EVERYTHING, injector::Limit},
    mutants::{self, guard::Mutant, tree::Tree},
    report,
    run::{self, Plan},
};
use std::{path::PathBuf, process::ExitCode, time::Duration};

/// Injects faults and checks that the system loses, duplicates and mixes up nothing.
#[derive(Debug, clap::Parser)]
struct Arguments {
    /// Minutes of faults; the start and the end take about one more.
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// The seed of the run. Every run prints its seed, so that it can be replayed.
    #[arg(long)]
    seed: Option<u64>,
    /// Largest number of faults.
    #[arg(long, default_value_t = usize::MAX)]
    injections: usize,
    /// The `flotilla` program; default: next to this one.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Number of loops of each worker. With one slot, a parent that kept its slot while waiting would block its children.
    #[arg(long, default_value_t = cluster::SLOTS)]
    slots: u32,
    /// Remove each guard once from a copy of the sources, build the copy, and check that the harness notices.
    #[arg(long)]
    mutants: bool,
    /// Remove only these guards, by name.
    #[arg(long, value_delimiter = ',', requires = "mutants")]
    only: Vec<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    chassis::install_crypto();
    let seed = arguments.seed.unwrap_or_else(rand::random);
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => cluster::sibling("flotilla")?,
    };
    if arguments.mutants {
        return hunt(&arguments, seed).await;
    }
    let time = Duration::try_from_secs_f64(arguments.minutes * 60.0).context("--minutes")?;
    let limit = Limit { time, count: arguments.injections };
    let slots = arguments.slots;
    let plan = Plan { seed, limit, mix: EVERYTHING.to_vec(), program, slots };
    println!("seed {seed}, {} minutes of faults", arguments.minutes);
    let outcome = run::run(&plan).await.with_context(|| format!("the harness failed with seed {seed}"))?;
    let replay = format!("./dev faults --minutes {} --seed {seed} --slots {slots}", arguments.minutes);
    print!("{}", report::text(&outcome, seed, &replay));
    Ok(code(outcome.violations.is_empty()))
}

async fn hunt(arguments: &Arguments, seed: u64) -> anyhow::Result<ExitCode> {
    let is_selected = |mutant: &Mutant| {
        arguments.only.is_empty() || arguments.only.iter().any(|name| name == mutant.as_str())
    };
    let tree = Tree::copy()?;
    let mut all_caught = true;
    for mutant in Mutant::ALL.into_iter().filter(is_selected) {
        let verdict = mutants::hunt(mutant, &tree, seed).await?;
        println!("{}", mutants::row(&verdict));
        all_caught &= verdict.is_caught;
    }
    Ok(code(all_caught))
}

fn code(is_success: bool) -> ExitCode {
    if is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
