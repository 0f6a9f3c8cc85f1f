//! The proof by faults. Real processes do real work while every part is broken in turn. Independent observers record
//! what happens, and a checker compares the record with the promises.
//!
//! One run: [`cluster`] starts the processes, [`workload`] gives them work, [`inject`] injects faults, [`observe`]
//! watches, [`check`] judges, [`report`] reports, and [`run`] puts these together. The seed decides the actions and their
//! order, but the machine decides their exact timing. A replay therefore probably finds the same violation, but not
//! certainly.

pub mod check;
pub mod cluster;
pub mod history;
pub mod inject;
pub mod mutants;
pub mod observe;
pub mod recovery;
pub mod report;
pub mod run;
pub mod workload;
