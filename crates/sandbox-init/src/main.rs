//! `flotilla-init <fd> <processes> <memory bytes, 0: not watched> <nice value of sessions, 0: the kernel's> <1: programs may mount> <user that it
//! becomes, 0: none> [<fd of a list of tasks>…]`: PID 1 of a sandbox. The sandbox service starts it and talks to it over the socket `fd`. First of all it enters the control groups whose lists of
//! tasks are open. It starts commands, kills them with everything they started, and does
//! file operations on paths that cannot lead out of the workspace. It uses no async runtime, so it
//! stays small: each sandbox has one.
//!
//! Threads: the main thread (`pid1`) reads requests. `starter` forks commands; only this thread is under Landlock, so all
//! commands share its domain. `pump` moves output, reaps processes and keeps time. Four `files` threads do file
//! operations. `memory` counts memory if no control group does, and two `forward` threads carry connections to the door of the session. All threads
//! start before the first command, so a fork bomb cannot prevent them. When the service closes the socket, the sandbox ends.
//!
//! `flotilla-init forward`: carries connections of git to the door while the script of a helper runs, and does nothing else.
//!
//! `flotilla-init lfs <repository> <directory> <own, other or none> <mirror> <report> <arrivals> <lock> <kept> [optional]`: a command of the script of a helper that fills files of Git LFS.
//!
//! `flotilla-init guidance [<instructions>…]`: a command of the script of a helper that prints the guidance of the files at /workspace, as the frame of a reply.
//!
//! `flotilla-init lines <request>…`: the same for lines of files. Each request is a frame as hexadecimal digits, and its reply has its id.
//!
//! `flotilla-init script <tree> <script>`: a command of a sandbox that runs the script of a setup or an install with its secrets.

mod door;
mod files;
mod memory;
mod paths;
mod pid1;
mod pump;
mod script;
mod service;
mod session;
mod starter;
mod stop;
mod terminal;
mod thread;
mod tree;

fn main() -> std::process::ExitCode {
    pid1::run()
}
