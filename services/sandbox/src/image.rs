//! The layers of images on this machine. `digest` names the bytes of a layer, `layer` any layer, and `manifest` the layers of an image; `blob` is a
//! layer as it arrives, `arrival` unpacks it, `ledger` knows which layers there are and who uses them, `owner` is their user, `skeletons` makes the
//! layer of ours that lies on top, and `store` is all of it on the disk. The sandbox calls no other service: a caller that needs a layer sends it.
//!
//! The setup of a project makes a further layer: `environment_layer` is what it depends on, `build` has its script run
//! (`script`), `cleaning` makes a layer of what is left, `builds` has each key built once, and `records` remembers how it ended.

pub mod arrival;
pub mod blob;
pub mod build;
pub mod builds;
mod cleaning;
pub mod digest;
pub mod environment_layer;
pub mod layer;
mod ledger;
pub mod manifest;
pub mod owner;
pub mod records;
pub mod script;
mod skeletons;
pub mod store;
