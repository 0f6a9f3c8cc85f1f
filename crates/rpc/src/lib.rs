//! gRPC: clients and servers generated from `proto/flotilla/v1`, errors with stable codes, and trace context in metadata.
//! It makes no decisions. Conversions between wire and domain types live in the services that need them.

/// The whole package `flotilla.v1`: its messages, which `wire` generates, and its clients and servers.
#[allow(clippy::all, clippy::pedantic, unreachable_pub, rust_2018_idioms)]
pub mod v1 {
    pub use wire::v1::*;
    tonic::include_proto!("flotilla.v1");
}

pub mod access;
pub mod client;
pub mod codec;
pub mod push;
pub mod status;
pub mod trace;

pub use wire::DESCRIPTORS;

/// Bytes of one message of a byte stream (bundle upload, export): small enough to interleave with other streams.
pub const CHUNK_BYTES: usize = 256 * 1024;

/// Largest gRPC message that our servers and clients accept: a 10 MiB file and its frame. Also the largest body over HTTP.
/// Beyond it: `body_too_large`.
pub const MESSAGE_BYTES_MAX: usize = 12 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reflection_does_not_list_the_protocol_inside_the_sandbox() {
        let lists = |name: &[u8]| DESCRIPTORS.windows(name.len()).any(|part| part == name);
        assert!(lists(b"flotilla.v1") && !lists(b"sandbox_init"));
    }
}
