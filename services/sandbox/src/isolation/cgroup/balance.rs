//! The weights of tenants. The kernel gives each slice its part by weight, but a tenant that runs one command in many small steps loses time at
//! each step against a tenant that always has something to run. So a tenant that lately used less than its part gets more weight, and one that
//! used more gets less. Tenants that use the same have the same weight.

use super::{
    counters,
    slices::{self, NEW_WEIGHT, Version},
};
use std::{collections::HashMap, ffi::OsString, fs, path::PathBuf, time::Duration};

/// Pause between two looks.
pub(crate) const PAUSE: Duration = Duration::from_millis(250);
/// What a tenant used this long ago counts a third of what it uses now.
const MEMORY: Duration = Duration::from_secs(5);
/// The weight of a tenant that uses its part exactly.
const EVEN: f64 = 100.0;
/// The bounds of a weight, in multiples of [`EVEN`].
const LEAST_FACTOR: f64 = 0.1;
const GREATEST_FACTOR: f64 = NEW_WEIGHT as f64 / EVEN;
/// A change below this part of the weight is not worth a write.
const CHANGE_MIN: f64 = 0.1;

/// Sets the weights of the tenants of this service.
#[derive(Debug)]
pub(crate) struct Balancer {
    /// The slice of all tenants, where the kernel counts what each used.
    counters: PathBuf,
    /// The slice of all tenants, where the weights are.
    weights: PathBuf,
    version: Version,
    tenants: HashMap<OsString, Usage>,
}

/// What a tenant used.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    /// Since its slice was made; µs.
    total_us: u64,
    /// Lately, with less weight the longer ago; µs.
    recent_us: f64,
    /// The weight that was written last; 0: none.
    weight: u64,
}

impl Balancer {
    /// The balancer of the slices in these directories, which may be the same one.
    pub(super) fn new(counters: PathBuf, weights: PathBuf, version: Version) -> Self {
        Self { counters, weights, version, tenants: HashMap::new() }
    }

    /// Sets the weights by what the tenants used since the last call, `elapsed` ago. Blocks.
    pub(crate) fn balance(&mut self, elapsed: Duration) {
        let kept = (-elapsed.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        let mut tenants = HashMap::new();
        // Without a running sandbox there is no slice.
        for entry in fs::read_dir(&self.counters).into_iter().flatten().flatten() {
            let Ok(total_us) = counters::processor_time_us(&entry.path()) else { continue };
            let before = self.tenants.get(&entry.file_name()).copied();
            let before = before.unwrap_or(Usage { total_us, ..Usage::default() });
            // A slice that was made again counts from 0, and has the weight of a new one.
            let (new_us, weight) =
                total_us.checked_sub(before.total_us).map_or((total_us, 0), |new_us| (new_us, before.weight));
            let recent_us = before.recent_us * kept + new_us as f64;
            tenants.insert(entry.file_name(), Usage { total_us, recent_us, weight });
        }
        self.tenants = tenants;
        let sum_us: f64 = self.tenants.values().map(|usage| usage.recent_us).sum();
        let part_us = sum_us / self.tenants.len().max(1) as f64;
        for (name, usage) in &mut self.tenants {
            let weight = weight(usage.recent_us, part_us);
            if (weight as f64 - usage.weight as f64).abs() > usage.weight as f64 * CHANGE_MIN {
                // The last sandbox of a tenant may have ended meanwhile.
                slices::set_weight(&self.weights.join(name), self.version, weight);
                usage.weight = weight;
            }
        }
    }
}

/// The weight of a tenant that used `recent_us`, where `part_us` is what each would have used if they were equal.
fn weight(recent_us: f64, part_us: f64) -> u64 {
    let factor = if part_us > 0.0 { part_us / recent_us.max(1.0) } else { 1.0 };
    (EVEN * (factor * factor).clamp(LEAST_FACTOR, GREATEST_FACTOR)).round() as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;

    #[test]
    fn whoever_used_less_gets_more_weight() {
        let weights = |recent: &[f64]| -> Vec<u64> {
            let part = recent.iter().sum::<f64>() / recent.len() as f64;
            recent.iter().map(|recent| weight(*recent, part)).collect()
        };
        assert_eq!(weights(&[5e6]), [100], "a tenant alone");
        assert_eq!(weights(&[5e6, 5e6, 5e6]), [100, 100, 100]);
        assert_eq!(weights(&[0.0, 0.0]), [100, 100]);
        assert_eq!(weights(&[8e6, 2e6]), [39, 625]);
        assert_eq!(weights(&[9.9e6, 0.1e6]), [26, 1_000]);
        let crowd = weights(&[1e6, 1e6, 1e6, 1e6, 16e6]);
        assert_eq!((crowd[0], crowd[4]), (1_000, 10));
    }

    #[test]
    fn use_is_forgotten_and_a_new_slice_counts_from_zero() {
        let all = tempfile::tempdir().unwrap();
        let mut balancer = Balancer::new(all.path().to_owned(), all.path().to_owned(), Version::V2);
        let set = |tenant: &str, used_us: u64| {
            fs::create_dir_all(all.path().join(tenant)).unwrap();
            fs::write(all.path().join(tenant).join("cpu.stat"), format!("usage_usec {used_us}\n")).unwrap();
        };
        let read = |tenant: &str| -> u64 {
            fs::read_to_string(all.path().join(tenant).join("cpu.weight")).unwrap().parse().unwrap()
        };
        set("busy", 1_000_000);
        set("calm", 0);
        balancer.balance(PAUSE);
        assert_eq!(
            [read("busy"), read("calm")],
            [100, 100],
            "what it used before this service looked does not count"
        );
        set("busy", 2_000_000);
        set("calm", 10_000);
        balancer.balance(PAUSE);
        assert!(read("busy") < 30 && read("calm") == 1_000);
        balancer.balance(MEMORY * 20);
        set("busy", 300_000);
        set("calm", 310_000);
        balancer.balance(PAUSE);
        assert_eq!([read("busy"), read("calm")], [100, 100]);
    }

    #[test]
    fn a_slice_that_was_made_again_loses_the_weight_of_a_new_one() {
        let all = tempfile::tempdir().unwrap();
        let mut balancer = Balancer::new(all.path().to_owned(), all.path().to_owned(), Version::V2);
        let file = |tenant: &str, name: &str| all.path().join(tenant).join(name);
        for tenant in ["busy", "calm"] {
            fs::create_dir(all.path().join(tenant)).unwrap();
        }
        for used_us in [0, 2_000_000, 1_500_000] {
            fs::write(file("busy", "cpu.stat"), format!("usage_usec {used_us}\n")).unwrap();
            fs::write(file("calm", "cpu.stat"), "usage_usec 0\n").unwrap();
            fs::write(file("busy", "cpu.weight"), NEW_WEIGHT.to_string()).unwrap();
            balancer.balance(PAUSE);
        }
        assert_eq!(fs::read_to_string(file("busy", "cpu.weight")).unwrap(), "25");
    }
}
