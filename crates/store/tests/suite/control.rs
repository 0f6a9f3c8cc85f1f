//! Queries that cross tenants.

mod operator;
mod queue;
mod workers;
