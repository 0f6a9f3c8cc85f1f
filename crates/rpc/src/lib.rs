//! The wire: code generated from `proto/`, errors with stable codes, and trace context in metadata.
//! It makes no decisions. Conversions between wire and domain types live in the services that need them.

/// Messages, clients and servers generated from `proto/flotilla/v1`.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub, rust_2018_idioms)]
pub mod v1 {
    tonic::include_proto!("flotilla.v1");
}

pub mod client;
pub mod codec;
mod file_diff;
mod prompt_part;
mod settings;
pub mod status;
pub mod trace;

/// The compiled `proto/` files, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptor.bin"));

/// Bytes of one message of a byte stream (bundle upload, export): small enough to interleave with other streams.
pub const CHUNK_BYTES: usize = 256 * 1024;

/// Largest gRPC message that our servers and clients accept: a 10 MiB file and its frame.
pub const MESSAGE_BYTES_MAX: usize = 12 * 1024 * 1024;
