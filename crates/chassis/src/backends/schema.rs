//! Which versions of the database a service works with.

/// What a service does with a database that a newer version has migrated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::Args)]
pub struct SchemaConfig {
    /// Start although a newer version has migrated the database: for the version before it, while an upgrade is taken back.
    #[arg(long, env = "FLOTILLA_ACCEPT_NEWER_SCHEMA")]
    pub accept_newer_schema: bool,
}
