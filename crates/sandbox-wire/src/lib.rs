//! The protocol between the sandbox service and `flotilla-init`: messages generated from `proto/flotilla/sandbox_init/v1`,
//! and their frames. Only these two programs use it. Both ends are built from the same tree, so the protocol has no
//! version. File operations carry the messages of the public API, without their tenant, session and fence.

pub mod frame;

/// Messages of `proto/flotilla/sandbox_init/v1`.
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/flotilla.sandbox_init.v1.rs"));
}
