//! The protocol between the service and `flotilla-init`: four bytes of length (little endian), then one protobuf
//! message. Both ends are built from the same tree, so the protocol has no version. File operations carry the messages
//! of the public API, without their tenant, session and fence.

use prost::Message;
use rpc::v1;
use std::io::{self, Read, Write};

/// Largest frame: a 10 MiB file and its envelope.
pub const FRAME_BYTES_MAX: usize = rpc::MESSAGE_BYTES_MAX;

/// From the service.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Request {
    /// Repeated in every reply to it; for an exec its number as long as the sandbox lives.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The operation.
    #[prost(oneof = "request::Body", tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13")]
    pub body: Option<request::Body>,
}

/// Parts of [`Request`].
pub mod request {
    use rpc::v1;

    /// The operation.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Body {
        /// Start a command. Answered by `Process` or `Failure`, then `Output`s and one `Exit`.
        #[prost(message, tag = "2")]
        Exec(crate::wire::Exec),
        /// End the exec whose number is the request's id, with its tree. Not answered: the exec's `Exit` follows.
        #[prost(message, tag = "3")]
        Kill(crate::wire::Kill),
        /// Answered by `ReadFile`.
        #[prost(message, tag = "4")]
        ReadFile(v1::ReadFileRequest),
        /// Answered by `ReadLines`.
        #[prost(message, tag = "5")]
        ReadLines(v1::ReadLinesRequest),
        /// Answered by `WriteFile`.
        #[prost(message, tag = "6")]
        WriteFile(v1::WriteFileRequest),
        /// Answered by `ListFiles`.
        #[prost(message, tag = "7")]
        ListFiles(v1::ListFilesRequest),
        /// Answered by `GlobFiles`.
        #[prost(message, tag = "8")]
        GlobFiles(v1::GlobFilesRequest),
        /// Answered by `GrepFiles`.
        #[prost(message, tag = "9")]
        GrepFiles(v1::GrepFilesRequest),
        /// Answered by `RemoveFile`.
        #[prost(message, tag = "10")]
        RemoveFile(v1::RemoveFileRequest),
        /// Answered by `ReadGuidance`, without the configuration.
        #[prost(message, tag = "11")]
        ReadGuidance(v1::ReadGuidanceRequest),
        /// Type into a terminal. Answered by `Ack`.
        #[prost(message, tag = "12")]
        Keystrokes(crate::wire::Keystrokes),
        /// Answered by `Ack`.
        #[prost(message, tag = "13")]
        Resize(crate::wire::Resize),
    }
}

/// One command.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Exec {
    /// Run by `bash -c`.
    #[prost(string, tag = "1")]
    pub command: String,
    /// `$0` and what follows it.
    #[prost(string, repeated, tag = "6")]
    pub arguments: Vec<String>,
    /// It runs at a terminal of this size; without one its input is empty and its output a pipe.
    #[prost(message, optional, tag = "7")]
    pub terminal: Option<v1::TerminalSize>,
    /// Where; empty: /workspace.
    #[prost(string, tag = "2")]
    pub directory: String,
    /// The whole environment, as `NAME=value`.
    #[prost(string, repeated, tag = "3")]
    pub env: Vec<String>,
    /// From the start; milliseconds.
    #[prost(uint64, tag = "4")]
    pub timeout_ms: u64,
    /// Output beyond this is counted and dropped.
    #[prost(uint64, tag = "5")]
    pub output_bytes_max: u64,
}

/// Keys that a person types.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Keystrokes {
    /// The number of the exec at the terminal.
    #[prost(uint64, tag = "1")]
    pub exec: u64,
    /// The keys, as the terminal sends them.
    #[prost(bytes = "vec", tag = "2")]
    pub data: Vec<u8>,
}

/// A new size.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Resize {
    /// The number of the exec at the terminal.
    #[prost(uint64, tag = "1")]
    pub exec: u64,
    /// In characters.
    #[prost(message, optional, tag = "2")]
    pub size: Option<v1::TerminalSize>,
}

/// Ends a command with its process tree.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Kill {}

/// From the init.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Reply {
    /// The request's.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The result.
    #[prost(oneof = "reply::Body", tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15")]
    pub body: Option<reply::Body>,
}

/// Parts of [`Reply`].
pub mod reply {
    use rpc::v1;

    /// The result.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Body {
        /// The first frame: requests are taken.
        #[prost(message, tag = "2")]
        Hello(crate::wire::Hello),
        /// The command runs.
        #[prost(message, tag = "3")]
        Process(crate::wire::Process),
        /// The next bytes of an exec.
        #[prost(bytes = "bytes", tag = "4")]
        Output(bytes::Bytes),
        /// The end of an exec; nothing follows for it.
        #[prost(message, tag = "5")]
        Exit(crate::wire::Exit),
        /// The request failed.
        #[prost(message, tag = "6")]
        Failure(crate::wire::Failure),
        /// See the public API.
        #[prost(message, tag = "7")]
        ReadFile(v1::ReadFileResponse),
        /// See the public API.
        #[prost(message, tag = "8")]
        ReadLines(v1::ReadLinesResponse),
        /// See the public API.
        #[prost(message, tag = "9")]
        WriteFile(v1::WriteFileResponse),
        /// See the public API.
        #[prost(message, tag = "10")]
        ListFiles(v1::ListFilesResponse),
        /// See the public API.
        #[prost(message, tag = "11")]
        GlobFiles(v1::GlobFilesResponse),
        /// See the public API.
        #[prost(message, tag = "12")]
        GrepFiles(v1::GrepFilesResponse),
        /// See the public API.
        #[prost(message, tag = "13")]
        RemoveFile(v1::RemoveFileResponse),
        /// See the public API.
        #[prost(message, tag = "14")]
        ReadGuidance(v1::ReadGuidanceResponse),
        /// The request was done.
        #[prost(message, tag = "15")]
        Ack(crate::wire::Ack),
    }
}

/// What the init found when it started.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hello {
    /// What Landlock does for execs: "fully enforced", "partially enforced", "not enforced" or why not.
    #[prost(string, tag = "1")]
    pub landlock: String,
}

/// The command runs.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Process {
    /// The process that all of its processes descend from.
    #[prost(uint32, tag = "1")]
    pub pid: u32,
}

/// The request was done.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Ack {}

/// The end of an exec.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Exit {
    /// Why; never `LOST`, which only the service can find.
    #[prost(enumeration = "v1::ExecEnd", tag = "1")]
    pub end: i32,
    /// Exit code, when there is no signal.
    #[prost(int32, tag = "2")]
    pub code: i32,
    /// The signal that ended the command itself; 0: none.
    #[prost(int32, tag = "3")]
    pub signal: i32,
    /// Output that was sent.
    #[prost(uint64, tag = "4")]
    pub kept_bytes: u64,
    /// Output that was read and not sent.
    #[prost(uint64, tag = "5")]
    pub dropped_bytes: u64,
}

/// A request that failed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Failure {
    /// A [`crate::code::Code`].
    #[prost(enumeration = "crate::code::Code", tag = "1")]
    pub code: i32,
    /// For a person or a model.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// Gives `message` as a frame.
pub fn frame(message: &impl Message) -> Vec<u8> {
    let length = message.encoded_len();
    let mut bytes = Vec::with_capacity(length + 4);
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(&message.encode_to_vec());
    bytes
}

/// Gives the length that four bytes announce.
///
/// # Errors
/// `InvalidData` above [`FRAME_BYTES_MAX`]: the other end does not speak this protocol, or the stream is out of step.
pub fn frame_length(head: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_le_bytes(head) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes")));
    }
    Ok(length)
}

/// Writes one frame. Blocks while the other end does not read.
///
/// # Errors
/// Those of `out`; part of the frame may have been written.
pub fn write(out: &mut impl Write, message: &impl Message) -> io::Result<()> {
    out.write_all(&frame(message))
}

/// Reads one frame; `None` at a clean end. Blocks.
///
/// # Errors
/// Those of `from`; `UnexpectedEof` inside a frame; `InvalidData` for bytes that are not a message.
pub fn read<M: Message + Default>(from: &mut impl Read) -> io::Result<Option<M>> {
    let mut head = [0; 4];
    match from.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let mut body = vec![0; frame_length(head)?];
    from.read_exact(&mut body)?;
    M::decode(body.as_slice()).map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
