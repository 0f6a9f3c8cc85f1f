//! The layers of an image, in their order.

use super::{
    digest::Digest,
    layer::{EnvironmentLayerName, LayerName},
};
use crate::error::Error;
use rpc::v1::ErrorCode;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::HashSet;

/// Layers of one image: as many as other tools allow. The options of the mount have room for them. Beyond it: `argument_invalid`.
const LAYERS_MAX: usize = 128;

/// The layers of an image, lowest first, and perhaps what a setup made on top of it; none: the machine's own /usr.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Manifest(Vec<LayerName>);

impl Manifest {
    /// Parses the digests of the unpacked layers, lowest first.
    ///
    /// # Errors
    /// `argument_invalid`.
    pub fn parse(diff_ids: &[String]) -> Result<Self, Error> {
        if diff_ids.len() > LAYERS_MAX {
            let text = format!("the image has {} layers; the limit is {LAYERS_MAX}", diff_ids.len());
            return Err(Error::refused(ErrorCode::ArgumentInvalid, text));
        }
        let layers: Vec<Digest> = diff_ids.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        // Builders repeat empty layers, and the kernel refuses a directory that comes twice. What a layer has is hidden by a second copy above.
        let mut seen = HashSet::new();
        let mut layers: Vec<Digest> =
            layers.into_iter().rev().filter(|layer| seen.insert(layer.clone())).collect();
        layers.reverse();
        Ok(Self(layers.into_iter().map(LayerName::Image).collect()))
    }

    /// The same with what a setup made on top of it.
    pub fn with(mut self, environment: EnvironmentLayerName) -> Self {
        self.0.push(LayerName::Environment(environment));
        self
    }

    /// Whether it names no layer.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The layers, lowest first.
    pub(super) fn layers(&self) -> &[LayerName] {
        &self.0
    }

    /// A name for all of them together.
    pub(super) fn key(&self) -> String {
        let mut hash = Sha256::new();
        for layer in &self.0 {
            hash.update(layer.to_string());
            hash.update("\n");
        }
        domain::text::hex(&hash.finalize())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_layer_that_comes_twice_counts_where_it_is_on_top() {
        let digest = |digit: char| format!("sha256:{}", digit.to_string().repeat(64));
        let manifest = Manifest::parse(&[digest('a'), digest('b'), digest('a'), digest('c')]).unwrap();
        let layers: Vec<String> = manifest.layers().iter().map(ToString::to_string).collect();
        assert_eq!(layers, [digest('b'), digest('a'), digest('c')]);
        for wrong in ["", "sha256:", "sha512:00", &digest('A'), &digest('g'), &format!("{}/..", digest('a'))]
        {
            assert!(Manifest::parse(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
        let many: Vec<String> = (0..=LAYERS_MAX).map(|number| format!("sha256:{number:064x}")).collect();
        assert!(Manifest::parse(&many).is_err());
        assert!(Manifest::parse(&many[1..]).is_ok());
    }
}
