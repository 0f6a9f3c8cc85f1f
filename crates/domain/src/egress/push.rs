//! Where people may push what a session has made, and what such a push must not touch.

pub mod branch;
pub mod paths;

/// Prefixes of URLs with a rule for pushes. Beyond it: `settings_invalid` or `config_invalid`.
pub const PUSH_RULES_MAX: usize = 32;
/// Bytes of the commits of a push, packed by git: as many as an export has at most. Beyond it: `push_too_large`.
pub const PUSH_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Bytes of one file of a push: servers such as GitHub refuse larger ones. Beyond it: `push_file_too_large`.
pub const PUSH_FILE_BYTES_MAX: u64 = 100 * 1024 * 1024;
/// Bytes of one file of Git LFS of a push: as many as a push has at most, because the content comes with the commits. Beyond it: `push_file_too_large`.
pub const PUSH_LFS_FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Bytes of all contents of Git LFS that a push sends. The broker unpacks them to its disk. Beyond it: `push_too_large`.
pub const PUSH_LFS_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Contents of Git LFS that a push sends: the broker needs two gits and three requests for each. Beyond it: `push_too_large`.
pub const PUSH_LFS_OBJECTS_MAX: usize = 1_000;
/// Commits of a push. A session makes one. Beyond it: `push_too_large`.
pub const PUSH_COMMITS_MAX: usize = 100;
/// Changes of files in all commits of a push. A person reads no more of them. Beyond it: `push_too_large`.
pub const PUSH_CHANGES_MAX: usize = 20_000;
/// Files that a preview of a push lists: a person reads no more. Further files are counted.
pub const PUSH_LISTED_FILES_MAX: usize = 1_000;
/// Bytes of the message of a commit that a person writes. Beyond it: `text_too_long`.
pub const PUSH_MESSAGE_BYTES_MAX: usize = 16 * 1024;
/// The line at the end of a commit's message that names the session. A later push goes on only from such commits.
pub const SESSION_TRAILER: &str = "Flotilla-Session: ";
/// The address of the author of the commits of sessions.
pub const AGENT_EMAIL: &str = "agent@flotilla.invalid";
