//! Queries that cross tenants.

mod operator;
mod queue;
mod upkeep;
mod workers;
