//! Which layers the machine has, what they take, and who uses them. It only counts; the disk is elsewhere.

use super::{
    layer::{EnvironmentLayerName, LayerName},
    manifest::Manifest,
};
use crate::disk::shared_space::{self, Holding, Newcomer, NoRoom};
use domain::ids::TenantId;
use std::{
    collections::{HashMap, HashSet},
    time::SystemTime,
};

/// The layers of a machine.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    layers: HashMap<LayerName, StoredLayer>,
    /// The images of workspaces, each with the number of its workspaces.
    pins: HashMap<Manifest, usize>,
}

/// A layer on the disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredLayer {
    /// The tenant that brought it, or whose setup made it; `None`: its sender named none, or the tenant is gone.
    pub(super) tenant: Option<TenantId>,
    /// What it takes on the disk.
    pub(super) bytes: u64,
    /// When somebody last wanted it.
    pub(super) used_at: SystemTime,
}

impl Ledger {
    /// Adds a layer that is on the disk now.
    pub(super) fn add(&mut self, layer: LayerName, stored: StoredLayer) {
        self.layers.insert(layer, stored);
    }

    /// Whether the machine has a layer. It counts as used if so.
    pub(super) fn touch(&mut self, layer: &LayerName, now: SystemTime) -> bool {
        self.layers.get_mut(layer).map(|stored| stored.used_at = now).is_some()
    }

    /// Lists the layers of an image that the machine does not have. The others count as used.
    pub(super) fn missing(&mut self, image: &Manifest, now: SystemTime) -> Vec<LayerName> {
        image.layers().iter().filter(|layer| !self.touch(layer, now)).cloned().collect()
    }

    /// Keeps the layers of an image for one workspace more, whether or not the machine has them.
    pub(super) fn pin(&mut self, image: &Manifest) {
        *self.pins.entry(image.clone()).or_default() += 1;
    }

    /// Keeps them for one workspace less. Returns whether no workspace has the image any more.
    pub(super) fn unpin(&mut self, image: &Manifest) -> bool {
        let Some(count) = self.pins.get_mut(image) else { return false };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.pins.remove(image);
        }
        is_last
    }

    /// What all layers take; bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.layers.values().map(|layer| layer.bytes).sum()
    }

    /// Takes out layers that no workspace uses until `new` fits into `bytes_max`.
    ///
    /// # Errors
    /// It never fits, and nothing is taken out.
    pub(super) fn make_room(&mut self, new: Newcomer, bytes_max: u64) -> Result<Vec<LayerName>, NoRoom> {
        let used = self.used();
        let holding = |(layer, stored): (&LayerName, &StoredLayer)| Holding {
            key: layer.clone(),
            tenant: stored.tenant,
            bytes: stored.bytes,
            used_at: stored.used_at,
            is_used: used.contains(layer),
        };
        let leaving = shared_space::make_room(self.layers.iter().map(holding).collect(), new, bytes_max)?;
        leaving.iter().for_each(|layer| self.take_out(layer));
        Ok(leaving)
    }

    /// Leaves the layers of images that a tenant brought to all others.
    pub(super) fn release(&mut self, tenant: TenantId) {
        for stored in self.layers.values_mut().filter(|stored| stored.tenant == Some(tenant)) {
            stored.tenant = None;
        }
    }

    pub(super) fn environment_layers(&self, tenant: TenantId) -> HashMap<EnvironmentLayerName, StoredLayer> {
        let all = self.layers.iter().filter_map(|(layer, stored)| match layer {
            LayerName::Environment(name) if name.tenant == tenant => Some((name.clone(), *stored)),
            LayerName::Environment(_) | LayerName::Image(_) => None,
        });
        all.collect()
    }

    /// Whether a workspace or a build uses a layer.
    pub(super) fn is_used(&self, layer: &LayerName) -> bool {
        self.used().contains(layer)
    }

    pub(super) fn take_out(&mut self, layer: &LayerName) {
        self.layers.remove(layer);
    }

    /// Lists the environment layers that no workspace uses, and that none has used since `since`.
    pub(super) fn unused_environment_layers(&self, since: SystemTime) -> Vec<LayerName> {
        let used = self.used();
        let all = self.layers.iter().filter(|(layer, stored)| {
            matches!(layer, LayerName::Environment(_)) && stored.used_at < since && !used.contains(layer)
        });
        all.map(|(layer, _)| layer.clone()).collect()
    }

    fn used(&self) -> HashSet<&LayerName> {
        self.pins.keys().flat_map(Manifest::layers).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::image::digest::Digest;
    use std::time::Duration;

    #[test]
    fn the_layer_that_was_unused_for_longest_leaves_first_and_a_used_one_stays() {
        let digest = |digit: char| format!("sha256:{}", digit.to_string().repeat(64));
        let layer = |digit| digest(digit).parse::<LayerName>().unwrap();
        let at = |second| SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        let mut ledger = Ledger::default();
        for (digit, second) in [('a', 1), ('b', 2), ('c', 3)] {
            ledger.add(layer(digit), StoredLayer { tenant: None, bytes: 10, used_at: at(second) });
        }
        let new = |bytes| Newcomer { tenant: None, bytes };
        let image = Manifest::parse(&[digest('a')]).unwrap();
        ledger.pin(&image);
        ledger.pin(&image);
        assert!(ledger.touch(&layer('b'), at(9)) && !ledger.touch(&layer('d'), at(9)));
        assert_eq!(ledger.make_room(new(25), 30), Err(NoRoom::All));
        assert_eq!(ledger.make_room(new(10), 30), Ok(vec![layer('c')]));
        assert_eq!(ledger.make_room(new(20), 30), Ok(vec![layer('b')]));
        assert!(!ledger.unpin(&image));
        assert_eq!(ledger.make_room(new(30), 30), Err(NoRoom::All));
        assert!(ledger.unpin(&image));
        assert_eq!(ledger.make_room(new(30), 30), Ok(vec![layer('a')]));
    }

    #[test]
    fn the_layers_of_a_tenant_that_is_gone_take_no_share() {
        let layer = format!("sha256:{}", "a".repeat(64)).parse::<LayerName>().unwrap();
        let tenant = TenantId(uuid::Uuid::now_v7());
        let stored = StoredLayer { tenant: Some(tenant), bytes: 10, used_at: SystemTime::UNIX_EPOCH };
        for (is_gone, leaving) in [(false, vec![layer.clone()]), (true, vec![])] {
            let mut ledger = Ledger::default();
            ledger.add(layer.clone(), stored);
            if is_gone {
                ledger.release(tenant);
            }
            let new = Newcomer { tenant: Some(tenant), bytes: 10 };
            assert_eq!(ledger.make_room(new, 20), Ok(leaving));
        }
    }

    #[test]
    fn an_environment_is_listed_for_its_tenant_and_expires_without_use() {
        let at = |second| SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        let [one, other] = [(); 2].map(|()| TenantId(uuid::Uuid::now_v7()));
        let name = |tenant, digit: &str| EnvironmentLayerName {
            tenant,
            key: format!("sha256:{}", digit.repeat(64)).parse::<Digest>().unwrap(),
        };
        let mut ledger = Ledger::default();
        let image: LayerName = format!("sha256:{}", "f".repeat(64)).parse().unwrap();
        ledger.add(image.clone(), StoredLayer { tenant: None, bytes: 10, used_at: at(0) });
        for (name, second) in [(name(one, "a"), 1), (name(one, "b"), 5), (name(other, "a"), 1)] {
            let stored = StoredLayer { tenant: Some(name.tenant), bytes: 10, used_at: at(second) };
            ledger.add(LayerName::Environment(name), stored);
        }
        assert_eq!(ledger.environment_layers(other).into_keys().collect::<Vec<_>>(), [name(other, "a")]);
        let used = Manifest::default().with(name(other, "a"));
        ledger.pin(&used);
        assert!(ledger.is_used(&LayerName::Environment(name(other, "a"))));
        assert_eq!(ledger.unused_environment_layers(at(5)), [LayerName::Environment(name(one, "a"))]);
        ledger.take_out(&LayerName::Environment(name(one, "a")));
        assert_eq!(
            (ledger.unused_environment_layers(at(9)).len(), ledger.environment_layers(one).len()),
            (1, 1)
        );
        assert!(ledger.unpin(&used));
        assert_eq!(ledger.unused_environment_layers(at(9)).len(), 2, "an image stays");
    }
}
