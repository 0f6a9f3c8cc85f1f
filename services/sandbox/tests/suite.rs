//! The sandbox service through its public API, with real bubblewrap. Where the machine forbids user namespaces these
//! tests fail: a sandbox that was not tested must not look tested. All attacks are commands that run *inside*.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[path = "suite/attacks.rs"]
mod attacks;
#[path = "suite/callers.rs"]
mod callers;
#[path = "suite/changes.rs"]
mod changes;
#[path = "suite/copies.rs"]
mod copies;
#[path = "suite/disk.rs"]
mod disk;
#[path = "suite/drafts.rs"]
mod drafts;
#[path = "suite/environments.rs"]
mod environments;
#[path = "suite/environments_hostile.rs"]
mod environments_hostile;
#[path = "suite/execs.rs"]
mod execs;
#[path = "suite/fairness.rs"]
mod fairness;
#[path = "suite/files.rs"]
mod files;
#[path = "suite/guidance.rs"]
mod guidance;
#[path = "suite/gvisor.rs"]
mod gvisor;
#[path = "suite/harness.rs"]
mod harness;
#[path = "suite/images.rs"]
mod images;
#[path = "suite/images_hostile.rs"]
mod images_hostile;
#[path = "suite/installs.rs"]
mod installs;
#[path = "suite/layers.rs"]
mod layers;
#[path = "suite/lfs.rs"]
mod lfs;
#[path = "suite/lifecycle.rs"]
mod lifecycle;
#[path = "suite/memory.rs"]
mod memory;
#[path = "suite/merges.rs"]
mod merges;
#[path = "suite/mounts.rs"]
mod mounts;
#[path = "suite/options.rs"]
mod options;
#[path = "suite/outputs.rs"]
mod outputs;
#[path = "suite/proxies.rs"]
mod proxies;
#[path = "suite/readings.rs"]
mod readings;
#[path = "suite/secrets.rs"]
mod secrets;
#[path = "suite/shared.rs"]
mod shared;
#[path = "suite/snapshots.rs"]
mod snapshots;
#[path = "suite/snapshots_hostile.rs"]
mod snapshots_hostile;
#[path = "suite/starts.rs"]
mod starts;
#[path = "suite/terminals.rs"]
mod terminals;
#[path = "suite/tls.rs"]
mod tls;
#[path = "suite/toolchains.rs"]
mod toolchains;
#[path = "suite/workspaces.rs"]
mod workspaces;
