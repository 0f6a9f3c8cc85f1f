//! The mistakes that a call can have. The check that finds the mistake writes its message.

use rpc::v1::ErrorCode;

/// Declares the mistakes of a caller, each with its stable code.
macro_rules! mistakes {
    ($($(#[$documentation:meta])* $mistake:ident = $code:ident,)*) => {
        /// A mistake of a caller.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Invalid {
            $($(#[$documentation])* $mistake,)*
        }

        impl Invalid {
            /// The stable code.
            pub(crate) const fn code(self) -> ErrorCode {
                match self {
                    $(Self::$mistake => ErrorCode::$code,)*
                }
            }
        }
    };
}

mistakes! {
    AgentUnknown = AgentUnknown,
    AnswerMissing = AnswerMissing,
    AnswerTooLong = AnswerTooLong,
    Budget = BudgetInvalid,
    Bundle = BundleInvalid,
    BundleTooLarge = BundleTooLarge,
    Command = CommandInvalid,
    Cursor = CursorInvalid,
    DeliveryUnknown = DeliveryUnknown,
    Directory = DirectoryInvalid,
    DirectoryUnknown = DirectoryUnknown,
    FieldUnknown = FieldUnknown,
    FileData = FileDataInvalid,
    FileUrl = FileUrlInvalid,
    FilesKept = FilesKept,
    FilesTooLarge = FilesTooLarge,
    IdempotencyKey = IdempotencyKeyInvalid,
    IdempotencyKeyTooLong = IdempotencyKeyTooLong,
    LimitTooHigh = LimitTooHigh,
    MaskEmpty = MaskEmpty,
    MessageId = MessageIdInvalid,
    MimeNotAllowed = MimeNotAllowed,
    ModelUnknown = ModelUnknown,
    Name = NameInvalid,
    NameEmpty = NameEmpty,
    ParentUnsupported = ParentUnsupported,
    NameTooLong = NameTooLong,
    NoReplyTask = NoReplyTask,
    OrderUnknown = OrderUnknown,
    PageTooLarge = PageTooLarge,
    Part = PartInvalid,
    PartEmpty = PartEmpty,
    PartId = PartIdInvalid,
    PartIdDuplicate = PartIdDuplicate,
    PartUnchangeable = PartUnchangeable,
    PartsTooMany = PartsTooMany,
    /// A patch that does not fit the files.
    PatchRefused = PatchRefused,
    /// A patch to files that may not be changed.
    PatchNotPermitted = FileNotPermitted,
    PromptEmpty = PromptEmpty,
    PromptTooLong = PromptTooLong,
    PushBranch = PushBranchInvalid,
    TerminalNamedTwice = PtyNamedTwice,
    RetriesTooMany = RetriesTooMany,
    Revision = RevisionInvalid,
    Role = RoleMissing,
    Rule = RuleInvalid,
    RulesTooMany = RulesTooMany,
    Schema = SchemaInvalid,
    SchemaTooLarge = SchemaTooLarge,
    SecretEmpty = SecretEmpty,
    SecretName = SecretNameInvalid,
    SecretTooLarge = SecretTooLarge,
    SecretUrl = SecretUrlInvalid,
    /// Several tenants have a session with this id.
    SessionAmbiguous = SessionAmbiguous,
    SessionId = SessionIdInvalid,
    Settings = SettingsInvalid,
    Source = SourceInvalid,
    StartCommand = StartCommandUnsupported,
    State = StateInvalid,
    TaskEmpty = TaskEmpty,
    Tenant = TenantInvalid,
    TenantMissing = TenantMissing,
    TenantName = TenantNameWrong,
    TextTooLong = TextTooLong,
    ToolName = ToolNameInvalid,
    ToolsTooMany = ToolsTooMany,
    UrlNotAllowed = UrlNotAllowed,
    VariantUnknown = VariantUnknown,
    /// A change to the files of a session without files.
    WorkspaceMissing = WorkspaceMissing,
    WorkspaceNotLost = WorkspaceNotLost,
    WorktreeSource = WorktreeSourceMissing,
    WorktreeUnknown = WorktreeUnknown,
    WorktreesTooMany = WorktreesTooMany,
}
