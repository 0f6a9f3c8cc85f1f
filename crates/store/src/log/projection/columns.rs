//! The columns of a session's row that events set, for the statement that writes the other rows of a projection.

use crate::pool::Statement;

/// What events set: for each column, the newest of them.
#[derive(Debug, Default)]
pub(super) struct SessionColumns {
    /// `Some(None)`: the files are on no branch.
    pub(super) branch: Option<Option<String>>,
    /// JSON.
    pub(super) todos: Option<String>,
}

/// The assignments that set them in the row `s`. The parameters are those of [`SessionColumns::bind`].
pub(super) fn set_columns(has_branch: &str, branch: &str, todos: &str) -> String {
    format!(
        "branch = case when {has_branch}::boolean then {branch}::text else s.branch end, todos = coalesce({todos}::text::json, s.todos)"
    )
}

impl SessionColumns {
    /// Whether no event has set any.
    pub(super) fn is_empty(&self) -> bool {
        self.branch.is_none() && self.todos.is_none()
    }

    /// Binds the three parameters of [`set_columns`].
    pub(super) fn bind<'q>(&'q self, statement: Statement<'q>) -> Statement<'q> {
        let branch = self.branch.as_ref();
        statement.bind(branch.is_some()).bind(branch.and_then(Option::as_deref)).bind(self.todos.as_deref())
    }
}
