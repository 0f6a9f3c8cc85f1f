//! What a session reaches of the network, and how. A sandbox has no network of its own: its init forwards connections to a socket of its
//! session, and behind that socket stands this proxy. The socket is the identity.
//!
//! The order of the checks is the wall: the request, the name, the list of names, and only then the look-up, so that nothing about a name that
//! is not allowed leaves the machine; then the addresses, and the connection goes to exactly these; then the name that TLS asks for. Behind an upstream proxy
//! the look-up and the addresses are the proxy's affair: it gets the name.
//!
//! A second door, for `git`, reads the repositories for which settings name a credential. It adds the credential itself. A third one gives the script of a
//! setup or an install its secrets. And the broker itself reads pages of the web for the models of sessions, under the rules of their doors.

pub mod access;
pub mod doors;
pub mod error;
pub mod git;
pub mod key;
pub mod page_error;
pub mod pages;
pub mod proxy;
pub mod refusal;
pub mod rules;
pub mod secrets;

mod clock;
mod door;
mod head;
mod hello;
mod journal;
mod relay;
