//! The messages of the wire, generated from `proto/flotilla/v1`, and conversions that several services need. No network
//! code: PID 1 of a sandbox uses these messages too. Clients and servers are in `rpc`.

/// Messages of `proto/flotilla/v1`.
#[allow(clippy::all, clippy::pedantic, unreachable_pub, rust_2018_idioms)]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/flotilla.v1.rs"));
}

/// The compiled files of `proto/flotilla/v1`, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

mod code;
mod file_diff;
mod prompt_part;
mod push_header;
mod secret_value;
mod settings;
mod workspace_header;
