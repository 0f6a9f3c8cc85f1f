//! How a command shows the stream of a session.

use crate::stream::follow::Until;

/// How to show a stream.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ShowArgs {
    /// Also show the output of tools.
    #[arg(long, conflicts_with = "json")]
    pub outputs: bool,
    /// Stop watching after this many seconds (exit code 5); the turn continues.
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// What the turn is for.
    #[arg(skip)]
    pub purpose: Purpose,
}

/// What a shown turn is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A prompt for an agent.
    #[default]
    Prompt,
    /// A command of a person: only its output is shown. No model runs, so the turn has no usage.
    Shell {
        /// Whether its changes are shown too.
        with_patch: bool,
    },
    /// The build of an environment, or a command in it. The command deletes the session afterwards, so its output does not name the session.
    Trial,
}

impl Purpose {
    pub(crate) fn is_shell(self) -> bool {
        matches!(self, Self::Shell { .. })
    }
}

/// How far and how to show a stream.
#[derive(Clone, Copy)]
pub(crate) struct Show<'a> {
    pub(crate) until: Until,
    /// The prompt whose turn it is; `None`: the whole session is shown.
    pub(crate) prompt: Option<&'a str>,
    pub(crate) arguments: &'a ShowArgs,
}
