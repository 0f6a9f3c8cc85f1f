//! Queries that cross tenants.

mod operator;
mod queue;
mod retention;
mod upkeep;
mod usage;
mod workers;
