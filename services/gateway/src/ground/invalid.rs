//! The mistakes that a call can have. The check that finds the mistake writes its message.

/// Declares the mistakes of a caller, each with its stable code.
macro_rules! mistakes {
    ($($(#[$documentation:meta])* $mistake:ident = $code:literal,)*) => {
        /// A mistake of a caller.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Invalid {
            $($(#[$documentation])* $mistake,)*
        }

        impl Invalid {
            /// The stable code.
            pub(crate) const fn code(self) -> &'static str {
                match self {
                    $(Self::$mistake => $code,)*
                }
            }
        }
    };
}

mistakes! {
    AgentUnknown = "agent_unknown",
    AnswerMissing = "answer_missing",
    AnswerTooLong = "answer_too_long",
    Budget = "budget_invalid",
    Bundle = "bundle_invalid",
    BundleTooLarge = "bundle_too_large",
    Command = "command_invalid",
    Cursor = "cursor_invalid",
    DeliveryUnknown = "delivery_unknown",
    Directory = "directory_invalid",
    DirectoryUnknown = "directory_unknown",
    FieldUnknown = "field_unknown",
    FileData = "file_data_invalid",
    FileUrl = "file_url_invalid",
    FilesKept = "files_kept",
    FilesTooLarge = "files_too_large",
    IdempotencyKey = "idempotency_key_invalid",
    IdempotencyKeyTooLong = "idempotency_key_too_long",
    LimitTooHigh = "limit_too_high",
    MaskEmpty = "mask_empty",
    MessageId = "message_id_invalid",
    MimeNotAllowed = "mime_not_allowed",
    ModelUnknown = "model_unknown",
    Name = "name_invalid",
    NameEmpty = "name_empty",
    ParentUnsupported = "parent_unsupported",
    NameTooLong = "name_too_long",
    NoReplyTask = "no_reply_task",
    OrderUnknown = "order_unknown",
    PageTooLarge = "page_too_large",
    Part = "part_invalid",
    PartEmpty = "part_empty",
    PartId = "part_id_invalid",
    PartIdDuplicate = "part_id_duplicate",
    PartUnchangeable = "part_unchangeable",
    PartsTooMany = "parts_too_many",
    /// A patch that does not fit the files.
    PatchRefused = "patch_refused",
    /// A patch to files that may not be changed.
    PatchNotPermitted = "file_not_permitted",
    PromptEmpty = "prompt_empty",
    PromptTooLong = "prompt_too_long",
    PushBranch = "push_branch_invalid",
    TerminalNamedTwice = "pty_named_twice",
    RetriesTooMany = "retries_too_many",
    Revision = "revision_invalid",
    Role = "role_missing",
    Rule = "rule_invalid",
    RulesTooMany = "rules_too_many",
    Schema = "schema_invalid",
    SchemaTooLarge = "schema_too_large",
    SecretEmpty = "secret_empty",
    SecretName = "secret_name_invalid",
    SecretTooLarge = "secret_too_large",
    SecretUrl = "secret_url_invalid",
    /// Several tenants have a session with this id.
    SessionAmbiguous = "session_ambiguous",
    SessionId = "session_id_invalid",
    Settings = "settings_invalid",
    Source = "source_invalid",
    StartCommand = "start_command_unsupported",
    State = "state_invalid",
    TaskEmpty = "task_empty",
    Tenant = "tenant_invalid",
    TenantMissing = "tenant_missing",
    TenantName = "tenant_name_wrong",
    TextTooLong = "text_too_long",
    ToolName = "tool_name_invalid",
    ToolsTooMany = "tools_too_many",
    UrlNotAllowed = "url_not_allowed",
    VariantUnknown = "variant_unknown",
    /// A change to the files of a session without files.
    WorkspaceMissing = "workspace_missing",
    WorkspaceNotLost = "workspace_not_lost",
    WorktreeSource = "worktree_source_missing",
    WorktreeUnknown = "worktree_unknown",
    WorktreesTooMany = "worktrees_too_many",
}
