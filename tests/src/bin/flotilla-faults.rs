//! `flotilla-faults`: breaks everything that can break while the real processes work, and says whether a promise was
//! broken. Exit code 1 if one was.
#![allow(clippy::print_stdout, reason = "its output is the report")]

use anyhow::Context as _;
use clap::Parser as _;
use e2e::faults::{self, Plan, cluster, fault::EVERYTHING, inject::Limit, report};
use std::{path::PathBuf, process::ExitCode, time::Duration};

/// Proves by faults that nothing is lost, doubled or mixed up.
#[derive(Debug, clap::Parser)]
struct Arguments {
    /// Minutes of faults; the start and the end take about another one.
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// Decides what is done. A run prints its own, to be repeated with.
    #[arg(long)]
    seed: Option<u64>,
    /// End after so many faults.
    #[arg(long, default_value_t = usize::MAX)]
    injections: usize,
    /// The `flotilla` program; default: beside this one.
    #[arg(long)]
    program: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    chassis::install_crypto();
    let seed = arguments.seed.unwrap_or_else(rand::random);
    let time = Duration::try_from_secs_f64(arguments.minutes * 60.0).context("--minutes")?;
    let program = match arguments.program {
        Some(program) => program,
        None => cluster::sibling("flotilla")?,
    };
    let limit = Limit { time, count: arguments.injections };
    let plan = Plan { seed, limit, mix: EVERYTHING.to_vec(), program, mutant: None };
    println!("seed {seed}, {} minutes of faults", arguments.minutes);
    let outcome = faults::run(&plan).await.with_context(|| format!("the harness failed with seed {seed}"))?;
    let replay = format!("./dev faults --minutes {} --seed {seed}", arguments.minutes);
    print!("{}", report::text(&outcome, seed, &replay));
    Ok(if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
