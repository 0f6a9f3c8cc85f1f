//! How the service builds a sandbox: `policy` says what a sandbox may use, `facts` what the machine offers, `launch`
//! starts it, in the kernel of `gvisor` if the operator wants that, `process` owns it until its end, and `priority` makes it yield the processors. The code that runs
//! inside a sandbox is the crate `sandbox-init`.
//!
//! `root` is what a sandbox sees at `/`, `stage` assembles it, and `unpack` starts the program that unpacks layers.
//!
//! One sandbox is one bubblewrap process with its own namespaces, its own user if the service runs as root, two
//! seccomp filters, a read-only /usr, an empty environment, and `flotilla-init` as PID 1. The service never mounts
//! anything below a directory that a tenant writes: bubblewrap before 0.12 follows links there (CVE-2026-87766).

pub mod cgroup;
mod child;
pub mod facts;
pub mod gvisor;
pub mod launch;
pub mod policy;
pub mod priority;
pub mod process;
pub(crate) mod processes;
pub mod root;
mod stage;
pub mod terminals;
pub mod unpack;
