//! Statements that read more the more there is, and why they may.

/// A statement that reads what grows.
pub(super) struct Exception {
    /// Its file and its function.
    pub name: &'static str,
    /// What it may read, as the beginning of complaints: a table, and the index if only that one is allowed. One that no plan reads fails the test.
    pub reads: &'static [&'static str],
    pub reason: &'static str,
}

pub(super) const EXCEPTIONS: [Exception; 20] = [
    Exception {
        name: "audit.rs: list_audit",
        reads: &["audit by audit_pk:"],
        reason: "reads backwards, up to a limit, where most lines are those of one tenant",
    },
    Exception {
        name: "control/bundles.rs: forget_bundles",
        reads: &["bundle by bundle_used:"],
        reason: "upkeep; reads the oldest bundles of all tenants in the order of the index, up to a limit",
    },
    Exception {
        name: "control/compaction.rs: list_compactable",
        reads: &["session by", "session_run by"],
        reason: "upkeep; reads up to a limit, and an index would make every write of a loop dearer",
    },
    Exception {
        name: "control/operator.rs: list_owners",
        reads: &["session by session_pk:"],
        reason: "an operator names a session without its tenant",
    },
    Exception {
        name: "control/retention.rs: forget_old_costs",
        reads: &["ledger by", "session by"],
        reason: "upkeep, once a day: reads the whole ledger",
    },
    Exception {
        name: "control/retention.rs: forget_revoked_keys",
        reads: &["api_key by"],
        reason: "upkeep; there are few keys",
    },
    Exception {
        name: "control/retention.rs: list_empty_projects",
        reads: &["project by"],
        reason: "upkeep; reads the projects of all tenants, and looks up the sessions of each",
    },
    Exception {
        name: "control/retention.rs: list_expired",
        reads: &["session by"],
        reason: "upkeep; reads the sessions of the tenants that do not keep them for ever",
    },
    Exception {
        name: "control/sweep.rs: forget_deleted",
        reads: &["session_tombstone by session_tombstone_age:"],
        reason: "upkeep; reads only what it deletes",
    },
    Exception {
        name: "control/tenant_deletion.rs: delete_tenant_rows",
        reads: &["ledger by", "session_tombstone by"],
        reason: "deletes what it reads, up to a limit",
    },
    Exception {
        name: "control/tenant_deletion.rs: list_roots",
        reads: &["session by session_pk:"],
        reason: "everything of this tenant is deleted",
    },
    Exception {
        name: "control/usage.rs: list_usage",
        reads: &["session by", "session_run by"],
        reason: "an operator asks what tenants store",
    },
    Exception {
        name: "control/usage.rs: list_unmeasured",
        reads: &["session_run by"],
        reason: "upkeep; an index would make every write of a loop dearer",
    },
    Exception {
        name: "control/workspaces.rs: list_opened",
        reads: &["session by session_pk:"],
        reason: "upkeep; pages through all sessions in the order of the index",
    },
    Exception {
        name: "log/feed.rs: find_first_since",
        reads: &["session_event by session_event_feed:"],
        reason: "reads at most what the tenant wrote since the client was connected last",
    },
    Exception {
        name: "log/feed.rs: list_written",
        reads: &["session_event by"],
        reason: "reads what the tenant wrote since the client was connected last; Postgres plans it for that moment, not for all",
    },
    Exception {
        name: "session/deletion.rs: list_deleted",
        reads: &["session_tombstone by session_tombstone_feed:"],
        reason: "reads what the tenant deleted since the client was connected last",
    },
    Exception {
        name: "session/sessions.rs: list_sessions",
        reads: &["session by session_updated:"],
        reason: "a list of the whole tenant with filters, in the order of the index, up to a limit",
    },
    Exception {
        name: "tenant/usage.rs: count_usage",
        reads: &["session by", "session_run by"],
        reason: "counts the rows of a tenant, some 30 ms for 100,000 sessions: in a gateway every ten seconds, in a worker before a subtask",
    },
    Exception {
        name: "schema.rs: find_version",
        reads: &["_sqlx_migrations by"],
        reason: "there are few migrations",
    },
];
