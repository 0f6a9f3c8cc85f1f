//! Calls that the loop performs itself because they wait: for a person's permission or answer, or for a child session.

pub(super) mod calls;
pub(super) mod changes;
pub(super) mod children;
mod copies;
pub(super) mod doubt;
mod quotas;
pub(super) mod requests;
pub(super) mod settling;
