//! The stable codes of this service's errors.

use sandbox_wire::v1::FailureCode;
use tonic::Code as Grpc;

/// What went wrong, for programs. Callers get its name, which is stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    /// A bug or a failure of the service; the log has the cause.
    Internal,
    /// The session has a higher epoch: the caller must stop writing.
    EpochStale,
    /// A field of the call is wrong.
    ArgumentInvalid,
    /// The session has no workspace.
    WorkspaceMissing,
    /// The tenant was deleted.
    TenantClosed,
    /// The workspace's .git does not have the commit that the workspace started from.
    BaseCommitMissing,
    /// The URL leads to no repository.
    RepositoryNotFound,
    /// The server asks for credentials, and a sandbox has none.
    RepositoryNeedsCredentials,
    /// The server refuses the credential that the settings name.
    RepositoryUnauthorized,
    /// The settings name a secret that does not exist.
    SecretNotFound,
    /// The door to the servers of git is closed.
    GitUnavailable,
    /// The repository could not be reached or read.
    RepositoryUnreachable,
    /// The URL is not one that this service may clone.
    UrlNotAllowed,
    /// The repository has no branch, tag or commit of that name.
    RevisionNotFound,
    /// The uploaded bytes are not a git bundle that stands alone.
    BundleInvalid,
    /// The upload is larger than allowed.
    BundleTooLarge,
    /// More files changed than a diff can list.
    DiffTooLarge,
    /// The path is not below /workspace (for reading: nor below /tmp).
    PathOutsideWorkspace,
    /// The path is invalid: empty, too long, or a loop of links.
    PathInvalid,
    /// No such file.
    FileNotFound,
    /// Larger than a call can transfer.
    FileTooLarge,
    /// Not text.
    FileIsBinary,
    /// A directory where a file is expected.
    FileIsDirectory,
    /// A FIFO, socket or device.
    FileNotRegular,
    /// The file's mode forbids it.
    FileNotPermitted,
    /// The file's content is not what the caller expects.
    FileChanged,
    /// An invalid glob or regular expression.
    PatternInvalid,
    /// No space left on the machine, or no space for one file.
    DiskFull,
    /// The workspace has reached its disk limit.
    LimitDisk,
    /// No exec of that id in the session.
    ExecUnknown,
    /// The session runs too many execs.
    ExecsTooMany,
    /// The sandbox reached its process limit.
    ProcessLimit,
    /// No sandbox could be started, or it ended during the call.
    SandboxUnavailable,
    /// Too many file operations wait.
    SandboxBusy,
    /// The helpers (clone, diff, snapshot) of the tenant or of the machine were busy all the time.
    HelpersBusy,
    /// The caller left before its call was over.
    CallerLeft,
    /// The caller's token is missing or wrong.
    TokenInvalid,
    /// The workspace has no snapshot of that name; it may have expired.
    SnapshotUnknown,
    /// The snapshots of the workspace have reached their disk limit.
    SnapshotsFull,
    /// No terminal of that id in the session, or its program has ended.
    TerminalUnknown,
    /// Too many terminals of the session, or too many readers of one.
    TerminalsTooMany,
    /// The program at the terminal does not read its input.
    TerminalInputFull,
    /// The patch is malformed, or it does not apply to the files.
    PatchRefused,
    /// The machine cannot run images.
    ImagesUnsupported,
    /// The layers that workspaces use leave no space for another one.
    ImagesFull,
    /// The machine lacks layers of an image.
    LayersMissing,
    /// The layer did not arrive in time.
    LayerTooSlow,
    /// The bytes of the layer are not those that its digests name.
    LayerDigestWrong,
    /// The archive of the layer has too many entries.
    LayerTooManyEntries,
    /// The files of the layer have too many bytes.
    LayerTooLarge,
    /// The layer is larger than an honest one of its blob would be.
    LayerBomb,
    /// A path of the layer has too many components.
    LayerTooDeep,
    /// A path of the layer leads out of it, goes through a link, or is no path.
    LayerPathInvalid,
    /// An entry of the layer contradicts another one.
    LayerEntryInvalid,
    /// The layer is no archive, or it is cut.
    LayerUnreadable,
    /// The layer could not be written.
    LayerWriteFailed,
    /// The script of a setup failed.
    SetupFailed,
    /// The script of a setup took too long.
    SetupTimeout,
    /// The script of a setup wrote more than a layer may have.
    SetupDiskFull,
    /// A build ended before its script did.
    SetupInterrupted,
    /// The script of an install failed.
    InstallFailed,
    /// The script of an install took too long.
    InstallTimeout,
    /// The script of an install wrote more than a workspace may have.
    InstallDiskFull,
    /// An install ended before its script did.
    InstallInterrupted,
    /// The machine has not installed what the workspace needs.
    InstallMissing,
    /// The machine has no environment of that key that a workspace could use.
    EnvironmentMissing,
    /// The tenant has no environment of that key.
    EnvironmentUnknown,
    /// A workspace uses the environment, or it is being built.
    EnvironmentInUse,
}

impl Code {
    /// The code of a failure that the init reports.
    pub fn from_failure(code: FailureCode) -> Self {
        match code {
            FailureCode::Unspecified | FailureCode::Internal => Self::Internal,
            FailureCode::ArgumentInvalid => Self::ArgumentInvalid,
            FailureCode::PathOutsideWorkspace => Self::PathOutsideWorkspace,
            FailureCode::PathInvalid => Self::PathInvalid,
            FailureCode::FileNotFound => Self::FileNotFound,
            FailureCode::FileTooLarge => Self::FileTooLarge,
            FailureCode::FileIsBinary => Self::FileIsBinary,
            FailureCode::FileIsDirectory => Self::FileIsDirectory,
            FailureCode::FileNotRegular => Self::FileNotRegular,
            FailureCode::FileNotPermitted => Self::FileNotPermitted,
            FailureCode::FileChanged => Self::FileChanged,
            FailureCode::PatternInvalid => Self::PatternInvalid,
            FailureCode::DiskFull => Self::DiskFull,
            FailureCode::ProcessLimit => Self::ProcessLimit,
            FailureCode::SandboxBusy => Self::SandboxBusy,
            FailureCode::TerminalUnknown => Self::TerminalUnknown,
            FailureCode::TerminalInputFull => Self::TerminalInputFull,
        }
    }

    /// The code of a layer that `flotilla-unpack` refuses.
    pub fn from_layer(name: &str) -> Self {
        let all = [
            Self::LayerDigestWrong,
            Self::LayerTooManyEntries,
            Self::LayerTooLarge,
            Self::LayerBomb,
            Self::LayerTooDeep,
            Self::LayerPathInvalid,
            Self::LayerEntryInvalid,
            Self::LayerUnreadable,
            Self::LayerWriteFailed,
        ];
        all.into_iter().find(|code| code.name() == name).unwrap_or(Self::Internal)
    }

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::EpochStale => "epoch_stale",
            Self::ArgumentInvalid => "argument_invalid",
            Self::WorkspaceMissing => "workspace_missing",
            Self::TenantClosed => "tenant_closed",
            Self::BaseCommitMissing => "base_commit_missing",
            Self::RepositoryNotFound => "repository_not_found",
            Self::RepositoryNeedsCredentials => "repository_needs_credentials",
            Self::RepositoryUnauthorized => "repository_unauthorized",
            Self::SecretNotFound => "secret_not_found",
            Self::GitUnavailable => "git_unavailable",
            Self::RepositoryUnreachable => "repository_unreachable",
            Self::UrlNotAllowed => "url_not_allowed",
            Self::RevisionNotFound => "revision_not_found",
            Self::BundleInvalid => "bundle_invalid",
            Self::BundleTooLarge => "bundle_too_large",
            Self::DiffTooLarge => "diff_too_large",
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
            Self::LimitDisk => "limit_disk",
            Self::ExecUnknown => "exec_unknown",
            Self::ExecsTooMany => "execs_too_many",
            Self::ProcessLimit => "process_limit",
            Self::SandboxUnavailable => "sandbox_unavailable",
            Self::SandboxBusy => "sandbox_busy",
            Self::HelpersBusy => "helpers_busy",
            Self::CallerLeft => "caller_left",
            Self::TokenInvalid => "token_invalid",
            Self::SnapshotUnknown => "snapshot_unknown",
            Self::SnapshotsFull => "snapshots_full",
            Self::TerminalUnknown => "terminal_unknown",
            Self::TerminalsTooMany => "terminals_too_many",
            Self::TerminalInputFull => "terminal_input_full",
            Self::PatchRefused => "patch_refused",
            Self::ImagesUnsupported => "images_unsupported",
            Self::ImagesFull => "images_full",
            Self::LayersMissing => "layers_missing",
            Self::LayerTooSlow => "layer_too_slow",
            Self::LayerDigestWrong => "layer_digest_wrong",
            Self::LayerTooManyEntries => "layer_too_many_entries",
            Self::LayerTooLarge => "layer_too_large",
            Self::LayerBomb => "layer_bomb",
            Self::LayerTooDeep => "layer_too_deep",
            Self::LayerPathInvalid => "layer_path_invalid",
            Self::LayerEntryInvalid => "layer_entry_invalid",
            Self::LayerUnreadable => "layer_unreadable",
            Self::LayerWriteFailed => "layer_write_failed",
            Self::SetupFailed => "setup_failed",
            Self::SetupTimeout => "setup_timeout",
            Self::SetupDiskFull => "setup_disk_full",
            Self::SetupInterrupted => "setup_interrupted",
            Self::InstallFailed => "install_failed",
            Self::InstallTimeout => "install_timeout",
            Self::InstallDiskFull => "install_disk_full",
            Self::InstallInterrupted => "install_interrupted",
            Self::InstallMissing => "install_missing",
            Self::EnvironmentMissing => "environment_missing",
            Self::EnvironmentUnknown => "environment_unknown",
            Self::EnvironmentInUse => "environment_in_use",
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
            | Self::PatternInvalid
            | Self::LayerDigestWrong
            | Self::LayerTooManyEntries
            | Self::LayerTooLarge
            | Self::LayerBomb
            | Self::LayerTooDeep
            | Self::LayerPathInvalid
            | Self::LayerEntryInvalid
            | Self::LayerUnreadable => Grpc::InvalidArgument,
            Self::RepositoryNotFound
            | Self::SecretNotFound
            | Self::RevisionNotFound
            | Self::FileNotFound
            | Self::ExecUnknown
            | Self::SnapshotUnknown
            | Self::EnvironmentUnknown
            | Self::TerminalUnknown => Grpc::NotFound,
            Self::EpochStale
            | Self::WorkspaceMissing
            | Self::TenantClosed
            | Self::BaseCommitMissing
            | Self::RepositoryNeedsCredentials
            | Self::RepositoryUnauthorized
            | Self::FileTooLarge
            | Self::FileIsBinary
            | Self::FileIsDirectory
            | Self::FileNotRegular
            | Self::FileNotPermitted
            | Self::FileChanged
            | Self::PatchRefused
            | Self::ImagesUnsupported
            | Self::SetupFailed
            | Self::InstallFailed
            | Self::InstallMissing
            | Self::EnvironmentMissing
            | Self::EnvironmentInUse
            | Self::LayersMissing => Grpc::FailedPrecondition,
            Self::BundleTooLarge
            | Self::DiffTooLarge
            | Self::DiskFull
            | Self::LimitDisk
            | Self::ExecsTooMany
            | Self::ProcessLimit
            | Self::SnapshotsFull
            | Self::TerminalsTooMany
            | Self::TerminalInputFull
            | Self::ImagesFull
            | Self::SetupDiskFull
            | Self::InstallDiskFull
            | Self::LayerWriteFailed => Grpc::ResourceExhausted,
            Self::RepositoryUnreachable
            | Self::GitUnavailable
            | Self::SandboxUnavailable
            | Self::SandboxBusy
            | Self::HelpersBusy
            | Self::SetupTimeout
            | Self::SetupInterrupted
            | Self::InstallTimeout
            | Self::InstallInterrupted
            | Self::LayerTooSlow => Grpc::Unavailable,
            Self::CallerLeft => Grpc::Cancelled,
            Self::TokenInvalid => Grpc::Unauthenticated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_of_the_init_has_the_stable_name_that_its_code_spells() {
        let codes: Vec<_> = (1..).map_while(|number| FailureCode::try_from(number).ok()).collect();
        let names: Vec<_> = codes.iter().map(|code| Code::from_failure(*code).name()).collect();
        let spelled: Vec<_> = codes
            .iter()
            .map(|code| code.as_str_name().trim_start_matches("FAILURE_CODE_").to_lowercase())
            .collect();
        assert_eq!((names, codes.len()), (spelled.iter().map(String::as_str).collect(), 17));
    }
}
