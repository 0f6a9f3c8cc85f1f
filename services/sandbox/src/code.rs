//! The stable codes of this service's errors. They cross two walls: from `flotilla-init` to the service as numbers,
//! and from the service to its callers as names.

use tonic::Code as Grpc;

/// What went wrong, for programs. The name is stable; the number is between one service and its own init.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Code {
    /// A bug or a failure of the service; the log has the cause.
    Internal = 0,
    /// The session has a higher epoch: the caller must stop writing.
    EpochStale = 1,
    /// A field of the call is wrong.
    ArgumentInvalid = 2,
    /// The session has no workspace.
    WorkspaceMissing = 3,
    /// The commit that the workspace started from is no longer in it.
    BaseCommitMissing = 4,
    /// There is no repository at the URL.
    RepositoryNotFound = 5,
    /// The server asks for credentials, and a sandbox has none.
    RepositoryNeedsCredentials = 6,
    /// The repository could not be reached or read.
    RepositoryUnreachable = 7,
    /// The URL is not one that this service may clone.
    UrlNotAllowed = 8,
    /// No branch, tag or commit of that name.
    RevisionNotFound = 9,
    /// The uploaded bytes are not a git bundle that stands alone.
    BundleInvalid = 10,
    /// The upload is larger than allowed.
    BundleTooLarge = 11,
    /// The path is not below /workspace (for reading: nor below /tmp).
    PathOutsideWorkspace = 12,
    /// The path is invalid: empty, too long, or a loop of links.
    PathInvalid = 13,
    /// No such file.
    FileNotFound = 14,
    /// Larger than a call can transfer.
    FileTooLarge = 15,
    /// Not text.
    FileIsBinary = 16,
    /// A directory where a file is expected.
    FileIsDirectory = 17,
    /// A FIFO, socket or device.
    FileNotRegular = 18,
    /// The file's mode forbids it.
    FileNotPermitted = 19,
    /// The file's content is not what the caller expects.
    FileChanged = 20,
    /// An invalid glob or regular expression.
    PatternInvalid = 21,
    /// No space left in the workspace.
    DiskFull = 22,
    /// No exec of that id in the session.
    ExecUnknown = 23,
    /// Too many execs of the session run.
    ExecsTooMany = 24,
    /// The sandbox reached its process limit.
    ProcessLimit = 25,
    /// No sandbox could be started, or it ended during the call.
    SandboxUnavailable = 26,
    /// Too many file operations wait.
    SandboxBusy = 27,
    /// The caller's token is missing or wrong.
    TokenInvalid = 28,
    /// The workspace has no snapshot of that name, or has it no longer.
    SnapshotUnknown = 29,
    /// The snapshots of the workspace have reached their disk limit.
    SnapshotsFull = 30,
    /// No terminal of that id in the session, or its program has ended.
    TerminalUnknown = 31,
    /// Too many terminals of the session, or too many readers of one.
    TerminalsTooMany = 32,
    /// The program at the terminal does not read its input.
    TerminalInputFull = 33,
    /// The patch is malformed, or it does not apply to the files.
    PatchRefused = 34,
}

impl Code {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::EpochStale => "epoch_stale",
            Self::ArgumentInvalid => "argument_invalid",
            Self::WorkspaceMissing => "workspace_missing",
            Self::BaseCommitMissing => "base_commit_missing",
            Self::RepositoryNotFound => "repository_not_found",
            Self::RepositoryNeedsCredentials => "repository_needs_credentials",
            Self::RepositoryUnreachable => "repository_unreachable",
            Self::UrlNotAllowed => "url_not_allowed",
            Self::RevisionNotFound => "revision_not_found",
            Self::BundleInvalid => "bundle_invalid",
            Self::BundleTooLarge => "bundle_too_large",
            Self::PathOutsideWorkspace => "path_outside_workspace",
            Self::PathInvalid => "path_invalid",
            Self::FileNotFound => "file_not_found",
            Self::FileTooLarge => "file_too_large",
            Self::FileIsBinary => "file_is_binary",
            Self::FileIsDirectory => "file_is_directory",
            Self::FileNotRegular => "file_not_regular",
            Self::FileNotPermitted => "file_not_permitted",
            Self::FileChanged => "file_changed",
            Self::PatternInvalid => "pattern_invalid",
            Self::DiskFull => "disk_full",
            Self::ExecUnknown => "exec_unknown",
            Self::ExecsTooMany => "execs_too_many",
            Self::ProcessLimit => "process_limit",
            Self::SandboxUnavailable => "sandbox_unavailable",
            Self::SandboxBusy => "sandbox_busy",
            Self::TokenInvalid => "token_invalid",
            Self::SnapshotUnknown => "snapshot_unknown",
            Self::SnapshotsFull => "snapshots_full",
            Self::TerminalUnknown => "terminal_unknown",
            Self::TerminalsTooMany => "terminals_too_many",
            Self::TerminalInputFull => "terminal_input_full",
            Self::PatchRefused => "patch_refused",
        }
    }

    /// The gRPC code, for callers that do not know these codes.
    pub fn grpc(self) -> Grpc {
        match self {
            Self::Internal => Grpc::Internal,
            Self::ArgumentInvalid
            | Self::UrlNotAllowed
            | Self::BundleInvalid
            | Self::PathOutsideWorkspace
            | Self::PathInvalid
            | Self::PatternInvalid => Grpc::InvalidArgument,
            Self::RepositoryNotFound
            | Self::RevisionNotFound
            | Self::FileNotFound
            | Self::ExecUnknown
            | Self::SnapshotUnknown
            | Self::TerminalUnknown => Grpc::NotFound,
            Self::EpochStale
            | Self::WorkspaceMissing
            | Self::BaseCommitMissing
            | Self::RepositoryNeedsCredentials
            | Self::FileTooLarge
            | Self::FileIsBinary
            | Self::FileIsDirectory
            | Self::FileNotRegular
            | Self::FileNotPermitted
            | Self::FileChanged
            | Self::PatchRefused => Grpc::FailedPrecondition,
            Self::BundleTooLarge
            | Self::DiskFull
            | Self::ExecsTooMany
            | Self::ProcessLimit
            | Self::SnapshotsFull
            | Self::TerminalsTooMany
            | Self::TerminalInputFull => Grpc::ResourceExhausted,
            Self::RepositoryUnreachable | Self::SandboxUnavailable | Self::SandboxBusy => Grpc::Unavailable,
            Self::TokenInvalid => Grpc::Unauthenticated,
        }
    }
}
