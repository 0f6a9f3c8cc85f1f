//! The broker through its public API, with real connections, a real Postgres and registries in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[path = "suite/callers.rs"]
mod callers;
#[path = "suite/credentials.rs"]
mod credentials;
#[path = "suite/doors.rs"]
mod doors;
#[path = "suite/egress.rs"]
mod egress;
#[path = "suite/git.rs"]
mod git;
#[path = "suite/harness.rs"]
mod harness;
#[path = "suite/images.rs"]
mod images;
#[path = "suite/images_hostile.rs"]
mod images_hostile;
#[path = "suite/images_waits.rs"]
mod images_waits;
#[path = "suite/kms.rs"]
mod kms;
#[path = "suite/pages.rs"]
mod pages;
#[path = "suite/push.rs"]
mod push;
#[path = "suite/secrets.rs"]
mod secrets;
#[path = "suite/tls.rs"]
mod tls;
#[path = "suite/upstream.rs"]
mod upstream;
