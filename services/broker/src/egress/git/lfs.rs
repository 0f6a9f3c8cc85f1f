//! Objects of Git LFS, read through the door of a session: `POST …/info/lfs/objects/batch` says which of them the server gives, and
//! `GET …/info/lfs/objects/<oid>?size=<bytes>` reads one. The server names other places for the objects, with headers or signatures that open them. These are
//! credentials, so they stay here: a client gets links to this door in their place. The door keeps nothing between two requests, so it asks for each
//! object once more before it reads the object. `upload` is for pushes alone.

pub(crate) mod batch;
pub(super) mod exchange;
pub(super) mod request;
pub(crate) mod upload;

mod object;
mod place;
