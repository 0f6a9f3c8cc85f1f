//! The gateway's types for terminals.

use bytes::Bytes;
use rpc::v1::{self, attach_terminal_response};
use std::collections::HashMap;

/// A program in a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terminal {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    /// A path in the sandbox.
    pub(crate) directory: String,
    pub(crate) pid: u32,
    /// Set when the program has ended.
    pub(crate) exit_code: Option<u32>,
}

/// The size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminalSize {
    pub(crate) rows: u32,
    pub(crate) columns: u32,
}

/// A client's request for a terminal. An empty text leaves the choice to the sandbox.
#[derive(Debug, Clone, Default)]
pub(crate) struct TerminalRequest {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) directory: String,
    pub(crate) env: HashMap<String, String>,
    pub(crate) title: String,
    pub(crate) size: Option<TerminalSize>,
}

/// A client's change of a terminal.
#[derive(Debug, Clone, Default)]
pub(crate) struct TerminalChange {
    /// Empty: unchanged.
    pub(crate) title: String,
    /// `None`: unchanged.
    pub(crate) size: Option<TerminalSize>,
}

/// An item for a client that is attached to a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TerminalItem {
    /// The first item: the output before the client attached.
    Replay {
        from_offset_bytes: u64,
        to_offset_bytes: u64,
        /// Requested bytes that are no longer kept.
        lost_bytes: u64,
    },
    Output {
        offset_bytes: u64,
        data: Bytes,
    },
    /// The last item.
    Exit {
        code: u32,
    },
}

impl From<v1::Terminal> for Terminal {
    fn from(terminal: v1::Terminal) -> Self {
        let v1::Terminal { id, title, command, args, directory, pid, exit_code } = terminal;
        Self { id, title, command, args, directory, pid, exit_code }
    }
}

impl From<TerminalSize> for v1::TerminalSize {
    fn from(size: TerminalSize) -> Self {
        Self { rows: size.rows, columns: size.columns }
    }
}

impl From<attach_terminal_response::Item> for TerminalItem {
    fn from(item: attach_terminal_response::Item) -> Self {
        use attach_terminal_response::Item;
        match item {
            Item::Replay(v1::TerminalReplay { from_offset_bytes, to_offset_bytes, lost_bytes }) => {
                Self::Replay { from_offset_bytes, to_offset_bytes, lost_bytes }
            }
            Item::Output(v1::TerminalOutput { offset_bytes, data }) => Self::Output { offset_bytes, data },
            Item::Exit(v1::TerminalExit { code }) => Self::Exit { code },
        }
    }
}
