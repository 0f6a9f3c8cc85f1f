//! The services end to end, in one binary, because linking takes longer than compiling.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod answers;
mod bad_input;
mod budget;
mod cli;
mod commands;
mod context;
mod durability;
mod egress;
mod environments;
mod follow;
mod guidance;
mod history;
mod images;
mod jobs;
mod leftovers;
mod main_job;
mod opencode;
mod projects;
mod prompts;
mod protocols;
mod provider_faults;
mod ptys;
mod quotas;
mod repositories;
mod requests;
mod restores;
mod sandbox_faults;
mod scenarios;
mod scheduling;
mod secrets;
mod settings;
mod telemetry;
mod tenants;
mod titles;
mod tools;
