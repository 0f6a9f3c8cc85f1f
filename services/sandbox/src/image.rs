//! The layers of images on this machine. `digest` names a layer and `manifest` the layers of an image; `blob` is a layer as it arrives,
//! `arrival` unpacks it, `ledger` knows which layers there are and who uses them, `owner` is their user, `skeletons` makes the layer of ours that lies on top, and
//! `store` is all of it on the disk. The sandbox calls no other service: a caller that needs a layer sends it.

pub mod arrival;
pub mod blob;
pub mod digest;
mod ledger;
pub mod manifest;
pub mod owner;
mod skeletons;
pub mod store;
