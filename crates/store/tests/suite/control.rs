//! Queries that cross tenants.

mod operator;
mod queue;
mod retention;
mod row_removals;
mod sandbox_service;
mod upkeep;
mod usage;
mod workers;
