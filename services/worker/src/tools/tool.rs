//! The names and properties of the tools, without their implementation.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    ApplyPatch,
    Bash,
    Batch,
    Edit,
    Glob,
    Grep,
    List,
    MultiEdit,
    Network,
    PlanExit,
    Question,
    Read,
    Skill,
    Task,
    TodoRead,
    TodoWrite,
    WebFetch,
    Write,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Performer {
    /// A separate task that uses the sandbox.
    Task,
    /// The loop itself: it asks a person or a child session, and parks.
    Loop,
}

/// The effect of a second run of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// No second effect: the call changes nothing, or the sandbox runs it once and later attempts attach to it.
    Safe,
    /// The effect of the first run is unknown; the model is informed.
    Unknown,
}

impl Tool {
    /// Every tool, sorted by name: a stable list keeps the provider's cache warm.
    pub(crate) const ALL: [Self; 18] = [
        Self::ApplyPatch,
        Self::Bash,
        Self::Batch,
        Self::Edit,
        Self::Glob,
        Self::Grep,
        Self::List,
        Self::MultiEdit,
        Self::Network,
        Self::PlanExit,
        Self::Question,
        Self::Read,
        Self::Skill,
        Self::Task,
        Self::TodoRead,
        Self::TodoWrite,
        Self::WebFetch,
        Self::Write,
    ];

    /// Finds a tool by a model's name for it, ignoring case.
    pub(crate) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name().eq_ignore_ascii_case(name))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ApplyPatch => "apply_patch",
            Self::Bash => "bash",
            Self::Batch => "batch",
            Self::Edit => "edit",
            Self::Glob => "glob",
            Self::Grep => "grep",
            Self::List => "list",
            Self::MultiEdit => "multiedit",
            Self::Network => "network",
            Self::PlanExit => "plan_exit",
            Self::Question => "question",
            Self::Read => "read",
            Self::Skill => "skill",
            Self::Task => "task",
            Self::TodoRead => "todoread",
            Self::TodoWrite => "todowrite",
            Self::WebFetch => "webfetch",
            Self::Write => "write",
        }
    }

    /// Its name in permission rules: a rule about editing also covers writing.
    pub(crate) fn permission(self) -> &'static str {
        match self {
            Self::ApplyPatch | Self::Edit | Self::MultiEdit | Self::Write => "edit",
            Self::Bash
            | Self::Batch
            | Self::Glob
            | Self::Grep
            | Self::List
            | Self::Network
            | Self::PlanExit
            | Self::Question
            | Self::Read
            | Self::Skill
            | Self::Task
            | Self::TodoRead
            | Self::TodoWrite
            | Self::WebFetch => self.name(),
        }
    }

    pub(crate) fn performer(self) -> Performer {
        match self {
            Self::Network | Self::PlanExit | Self::Question | Self::Task => Performer::Loop,
            Self::ApplyPatch
            | Self::Bash
            | Self::Batch
            | Self::Edit
            | Self::Glob
            | Self::Grep
            | Self::List
            | Self::MultiEdit
            | Self::Read
            | Self::Skill
            | Self::TodoRead
            | Self::TodoWrite
            | Self::WebFetch
            | Self::Write => Performer::Task,
        }
    }

    /// Whether a call runs in the process of the sandbox.
    pub(crate) fn uses_sandbox(self) -> bool {
        match self {
            Self::ApplyPatch | Self::Bash | Self::Batch | Self::Edit | Self::Glob | Self::Grep => true,
            Self::List | Self::MultiEdit | Self::Read | Self::Write => true,
            Self::Network | Self::PlanExit | Self::Question | Self::Skill | Self::Task => false,
            Self::TodoRead | Self::TodoWrite | Self::WebFetch => false,
        }
    }

    /// Whether a call needs the files of the session, or its door to the network, which leads there only when the files are open. Subtasks find the files
    /// open, so that they do not take the door from each other.
    pub(crate) fn needs_files(self) -> bool {
        match self {
            Self::ApplyPatch | Self::Bash | Self::Batch | Self::Edit | Self::Glob | Self::Grep => true,
            Self::List | Self::MultiEdit | Self::Read | Self::Skill | Self::Write => true,
            Self::Network | Self::Task | Self::WebFetch => true,
            Self::PlanExit | Self::Question | Self::TodoRead | Self::TodoWrite => false,
        }
    }

    /// Whether a call may change files, directly or through a subtask.
    pub(crate) fn changes_files(self) -> bool {
        match self {
            Self::ApplyPatch | Self::Bash | Self::Batch | Self::Edit | Self::MultiEdit => true,
            Self::Task | Self::Write => true,
            Self::Glob | Self::Grep | Self::List | Self::Question | Self::Read | Self::Skill => false,
            Self::Network | Self::PlanExit | Self::TodoRead | Self::TodoWrite | Self::WebFetch => false,
        }
    }
}
