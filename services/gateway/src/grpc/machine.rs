//! What clients see of the sandbox machine: terminals and environments.

mod environment;
mod pty;
