//! Every query that crosses tenants, and no others. They log in as `flotilla_system`, which sees all tenants, and return
//! ids and numbers, never contents.

pub mod aborts;
pub mod bundles;
pub mod candidate;
pub mod chores;
pub mod compaction;
pub mod deliveries;
pub mod jobs;
pub mod operator;
pub mod queue;
pub mod removals;
pub mod retention;
pub mod sweep;
pub mod tenant_deletion;
pub mod tenants;
pub mod usage;
pub mod workers;
pub mod workspaces;
