//! What a sandbox sees at `/`: `host` shows the machine's /usr, `image` the layers of an image. `skeleton` is the layer that lies on top of
//! every image, `accounts` are the users in it, `loader` lets our init run in any image,
//! `copies` keeps tenants apart that map the same files, and a `mount` is one file or directory of the machine.

pub mod accounts;
pub(super) mod copies;
pub(super) mod host;
pub mod image;
pub(super) mod loader;
pub mod mount;
pub(crate) mod namespace;
pub mod skeleton;
