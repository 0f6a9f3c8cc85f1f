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
    /// An object of Git LFS has other bytes than its pointer names.
    LfsObjectInvalid,
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
    /// The caller's token is not for this call.
    CallerNotAllowed,
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
    /// A merge failed, and not every file that it wrote could be restored.
    MergeIncomplete,
    /// The machine cannot run images.
    ImagesUnsupported,
    /// The operator does not offer an option that the settings ask for.
    OptionsUnsupported,
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
    /// The source has another commit than the one that the caller saw.
    SourceChanged,
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
        CODES[self as usize].1
    }

    /// The gRPC code, for callers that do not know these codes.
    pub fn grpc(self) -> Grpc {
        CODES[self as usize].2
    }
}

/// Each code with its name and its gRPC code, in the order of [`Code`].
const CODES: [(Code, &str, Grpc); Code::EnvironmentInUse as usize + 1] = [
    (Code::Internal, "internal", Grpc::Internal),
    (Code::EpochStale, "epoch_stale", Grpc::FailedPrecondition),
    (Code::ArgumentInvalid, "argument_invalid", Grpc::InvalidArgument),
    (Code::WorkspaceMissing, "workspace_missing", Grpc::FailedPrecondition),
    (Code::TenantClosed, "tenant_closed", Grpc::FailedPrecondition),
    (Code::BaseCommitMissing, "base_commit_missing", Grpc::FailedPrecondition),
    (Code::RepositoryNotFound, "repository_not_found", Grpc::NotFound),
    (Code::RepositoryNeedsCredentials, "repository_needs_credentials", Grpc::FailedPrecondition),
    (Code::RepositoryUnauthorized, "repository_unauthorized", Grpc::FailedPrecondition),
    (Code::SecretNotFound, "secret_not_found", Grpc::NotFound),
    (Code::GitUnavailable, "git_unavailable", Grpc::Unavailable),
    (Code::RepositoryUnreachable, "repository_unreachable", Grpc::Unavailable),
    (Code::LfsObjectInvalid, "lfs_object_invalid", Grpc::FailedPrecondition),
    (Code::UrlNotAllowed, "url_not_allowed", Grpc::InvalidArgument),
    (Code::RevisionNotFound, "revision_not_found", Grpc::NotFound),
    (Code::BundleInvalid, "bundle_invalid", Grpc::InvalidArgument),
    (Code::BundleTooLarge, "bundle_too_large", Grpc::ResourceExhausted),
    (Code::DiffTooLarge, "diff_too_large", Grpc::ResourceExhausted),
    (Code::PathOutsideWorkspace, "path_outside_workspace", Grpc::InvalidArgument),
    (Code::PathInvalid, "path_invalid", Grpc::InvalidArgument),
    (Code::FileNotFound, "file_not_found", Grpc::NotFound),
    (Code::FileTooLarge, "file_too_large", Grpc::FailedPrecondition),
    (Code::FileIsBinary, "file_is_binary", Grpc::FailedPrecondition),
    (Code::FileIsDirectory, "file_is_directory", Grpc::FailedPrecondition),
    (Code::FileNotRegular, "file_not_regular", Grpc::FailedPrecondition),
    (Code::FileNotPermitted, "file_not_permitted", Grpc::FailedPrecondition),
    (Code::FileChanged, "file_changed", Grpc::FailedPrecondition),
    (Code::PatternInvalid, "pattern_invalid", Grpc::InvalidArgument),
    (Code::DiskFull, "disk_full", Grpc::ResourceExhausted),
    (Code::LimitDisk, "limit_disk", Grpc::ResourceExhausted),
    (Code::ExecUnknown, "exec_unknown", Grpc::NotFound),
    (Code::ExecsTooMany, "execs_too_many", Grpc::ResourceExhausted),
    (Code::ProcessLimit, "process_limit", Grpc::ResourceExhausted),
    (Code::SandboxUnavailable, "sandbox_unavailable", Grpc::Unavailable),
    (Code::SandboxBusy, "sandbox_busy", Grpc::Unavailable),
    (Code::HelpersBusy, "helpers_busy", Grpc::Unavailable),
    (Code::CallerLeft, "caller_left", Grpc::Cancelled),
    (Code::TokenInvalid, "token_invalid", Grpc::Unauthenticated),
    (Code::CallerNotAllowed, "caller_not_allowed", Grpc::PermissionDenied),
    (Code::SnapshotUnknown, "snapshot_unknown", Grpc::NotFound),
    (Code::SnapshotsFull, "snapshots_full", Grpc::ResourceExhausted),
    (Code::TerminalUnknown, "terminal_unknown", Grpc::NotFound),
    (Code::TerminalsTooMany, "terminals_too_many", Grpc::ResourceExhausted),
    (Code::TerminalInputFull, "terminal_input_full", Grpc::ResourceExhausted),
    (Code::PatchRefused, "patch_refused", Grpc::FailedPrecondition),
    (Code::MergeIncomplete, "merge_incomplete", Grpc::FailedPrecondition),
    (Code::ImagesUnsupported, "images_unsupported", Grpc::FailedPrecondition),
    (Code::OptionsUnsupported, "options_unsupported", Grpc::FailedPrecondition),
    (Code::ImagesFull, "images_full", Grpc::ResourceExhausted),
    (Code::LayersMissing, "layers_missing", Grpc::FailedPrecondition),
    (Code::LayerTooSlow, "layer_too_slow", Grpc::Unavailable),
    (Code::LayerDigestWrong, "layer_digest_wrong", Grpc::InvalidArgument),
    (Code::LayerTooManyEntries, "layer_too_many_entries", Grpc::InvalidArgument),
    (Code::LayerTooLarge, "layer_too_large", Grpc::InvalidArgument),
    (Code::LayerBomb, "layer_bomb", Grpc::InvalidArgument),
    (Code::LayerTooDeep, "layer_too_deep", Grpc::InvalidArgument),
    (Code::LayerPathInvalid, "layer_path_invalid", Grpc::InvalidArgument),
    (Code::LayerEntryInvalid, "layer_entry_invalid", Grpc::InvalidArgument),
    (Code::LayerUnreadable, "layer_unreadable", Grpc::InvalidArgument),
    (Code::LayerWriteFailed, "layer_write_failed", Grpc::ResourceExhausted),
    (Code::SetupFailed, "setup_failed", Grpc::FailedPrecondition),
    (Code::SetupTimeout, "setup_timeout", Grpc::Unavailable),
    (Code::SetupDiskFull, "setup_disk_full", Grpc::ResourceExhausted),
    (Code::SetupInterrupted, "setup_interrupted", Grpc::Unavailable),
    (Code::InstallFailed, "install_failed", Grpc::FailedPrecondition),
    (Code::InstallTimeout, "install_timeout", Grpc::Unavailable),
    (Code::InstallDiskFull, "install_disk_full", Grpc::ResourceExhausted),
    (Code::InstallInterrupted, "install_interrupted", Grpc::Unavailable),
    (Code::InstallMissing, "install_missing", Grpc::FailedPrecondition),
    (Code::SourceChanged, "source_changed", Grpc::FailedPrecondition),
    (Code::EnvironmentMissing, "environment_missing", Grpc::FailedPrecondition),
    (Code::EnvironmentUnknown, "environment_unknown", Grpc::NotFound),
    (Code::EnvironmentInUse, "environment_in_use", Grpc::FailedPrecondition),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_row() {
        CODES.iter().enumerate().for_each(|(at, (code, ..))| assert_eq!(*code as usize, at, "{code:?}"));
        let names: std::collections::BTreeSet<_> = CODES.iter().map(|(_, name, _)| name).collect();
        assert_eq!(names.len(), CODES.len());
    }

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
