//! What a request says: its body, its query and the ids in its path.

pub(super) mod extractors;
pub(super) mod ids;
pub(super) mod prompt;
pub(super) mod query;
pub(super) mod read;
