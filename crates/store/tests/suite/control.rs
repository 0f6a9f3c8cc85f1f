//! Queries that cross tenants.

mod deliveries;
mod operator;
mod queue;
mod retention;
mod row_removals;
mod sandbox_service;
mod upkeep;
mod usage;
mod workers;
