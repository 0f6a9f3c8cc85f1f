//! The layers of images that were resolved or pulled from a moment ago. Registries count the manifests that somebody loads, so the layers of one
//! image must not load its manifest again and again. The key is the digest of the manifest, so an entry is never wrong.

use super::content::{digest::Digest, manifest::Layer};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

/// Images of which the layers are kept. Beyond it the oldest is dropped.
const IMAGES_KEPT: usize = 256;

/// The layers of images by the digest of their manifest, oldest first.
#[derive(Debug, Default)]
pub(super) struct KnownLayers(Mutex<VecDeque<(Digest, Arc<[Layer]>)>>);

impl KnownLayers {
    pub(super) fn find(&self, image: &Digest) -> Option<Arc<[Layer]>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|(digest, _)| digest == image).map(|(_, layers)| Arc::clone(layers))
    }

    pub(super) fn insert(&self, image: Digest, layers: &[Layer]) -> Arc<[Layer]> {
        let layers: Arc<[Layer]> = layers.into();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(digest, _)| *digest != image);
        if known.len() == IMAGES_KEPT {
            known.pop_front();
        }
        known.push_back((image, Arc::clone(&layers)));
        layers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_image_is_forgotten() {
        let known = KnownLayers::default();
        let image = |number: usize| Digest::of(&number.to_be_bytes());
        for number in 0..=IMAGES_KEPT {
            known.insert(image(number), &[]);
        }
        assert!(known.find(&image(0)).is_none());
        known.insert(image(1), &[]);
        known.insert(image(IMAGES_KEPT + 1), &[]);
        assert!(known.find(&image(1)).is_some(), "it was inserted again");
        assert!(known.find(&image(2)).is_none());
    }
}
