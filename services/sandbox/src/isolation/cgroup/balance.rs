//! The weights of tenants. Each service has 100, and the tenants that use the processors share 100 between them. With more they would slow
//! the services down, and all tenants wait for the services. The kernel gives each slice its part by weight, but a tenant that runs one command in many
//! small steps loses time at each step against a tenant or a service that always has something to run. So a tenant that lately used less than
//! its part gets more weight, and one that used more gets less. Tenants that use the same have the same weight.

use super::{
    counters,
    slices::{self, NEW_WEIGHT, Version},
};
use std::{collections::HashMap, ffi::OsString, fs, path::PathBuf, time::Duration};

/// Pause between two looks.
pub(crate) const PAUSE: Duration = Duration::from_millis(250);
/// What a tenant used this long ago counts a third of what it uses now.
const MEMORY: Duration = Duration::from_secs(5);
/// The weight of all tenants that use the processors: that of one service.
const SUM: f64 = 100.0;
/// The bounds of a weight.
const LEAST: f64 = 3.0;
const GREATEST: f64 = NEW_WEIGHT as f64;
/// A tenant that lately used less does not use the processors; µs.
const USE_MIN_US: f64 = 1_000.0;
/// A change below this part of the weight is not worth a write.
const CHANGE_MIN: f64 = 0.1;

/// Sets the weights of the tenants of this service.
#[derive(Debug)]
pub(crate) struct Balancer {
    /// The directory of the slices in which the kernel counts what each tenant used.
    counters: PathBuf,
    /// The directory of the slices that have weights.
    weights: PathBuf,
    version: Version,
    tenants: HashMap<OsString, Usage>,
}

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
        let prefix = slices::prefix();
        // Without a running sandbox there is no slice.
        for entry in fs::read_dir(&self.counters).into_iter().flatten().flatten() {
            if !entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()) {
                continue;
            }
            let used = counters::processor_time_us(&entry.path(), self.version);
            let Ok(total_us) = used else { continue };
            let before = self.tenants.get(&entry.file_name()).copied();
            let before = before.unwrap_or(Usage { total_us, ..Usage::default() });
            // A slice that was made again counts from 0, and has the weight of a new one.
            let (new_us, weight) =
                total_us.checked_sub(before.total_us).map_or((total_us, 0), |new_us| (new_us, before.weight));
            let recent_us = before.recent_us * kept + new_us as f64;
            tenants.insert(entry.file_name(), Usage { total_us, recent_us, weight });
        }
        self.tenants = tenants;
        let users = Users::of(self.tenants.values());
        for (name, usage) in &mut self.tenants {
            let weight = users.weight(usage.recent_us);
            if (weight as f64 - usage.weight as f64).abs() > usage.weight as f64 * CHANGE_MIN {
                // The last sandbox of a tenant may have ended meanwhile.
                slices::set_weight(&self.weights.join(name), self.version, weight);
                usage.weight = weight;
            }
        }
    }
}

/// The tenants that lately used the processors.
#[derive(Debug, Clone, Copy)]
struct Users {
    /// What each would have used if they were equal; µs.
    part_us: f64,
    /// The weight of one that used its part. It is smaller the more equal they are.
    even: f64,
}

impl Users {
    fn of<'a>(usages: impl Iterator<Item = &'a Usage>) -> Self {
        let used: Vec<f64> = usages.map(|usage| usage.recent_us).filter(|used| *used >= USE_MIN_US).collect();
        let sum: f64 = used.iter().sum();
        if used.is_empty() {
            return Self { part_us: 0.0, even: SUM };
        }
        // One that uses nearly everything counts as one, however many others use a little.
        let even = SUM * used.iter().map(|used| (used / sum).powi(2)).sum::<f64>();
        Self { part_us: sum / used.len() as f64, even }
    }

    /// The weight of a tenant that used `recent_us`.
    fn weight(&self, recent_us: f64) -> u64 {
        if recent_us < USE_MIN_US {
            return NEW_WEIGHT;
        }
        (self.even * (self.part_us / recent_us).powi(2)).clamp(LEAST, GREATEST).round() as u64
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_tenant_that_used_less_gets_more_weight() {
        let weights = |recent: &[f64]| -> Vec<u64> {
            let usages: Vec<_> =
                recent.iter().map(|recent_us| Usage { recent_us: *recent_us, ..Usage::default() }).collect();
            let users = Users::of(usages.iter());
            recent.iter().map(|recent| users.weight(*recent)).collect()
        };
        assert_eq!(weights(&[5e6]), [100], "a tenant alone");
        assert_eq!(weights(&[5e6, 0.0, 0.0]), [100, 1_000, 1_000], "the others only have sandboxes");
        assert_eq!(weights(&[5e6, 5e6]), [50, 50]);
        assert_eq!(weights(&[5e6; 5]), [20; 5]);
        assert_eq!(weights(&[0.0, 0.0]), [1_000, 1_000]);
        assert_eq!(weights(&[8e6, 2e6]), [27, 425]);
        assert_eq!(weights(&[9.9e6, 0.1e6]), [25, 1_000]);
        let crowd = weights(&[1e6, 1e6, 1e6, 1e6, 16e6]);
        assert_eq!((crowd[0], crowd[4]), (1_000, 4));
    }

    #[test]
    fn use_is_forgotten_and_a_new_slice_counts_from_zero() {
        let all = tempfile::tempdir().unwrap();
        let mut balancer = Balancer::new(all.path().to_owned(), all.path().to_owned(), Version::V2);
        let slice = |tenant: &str| all.path().join(format!("{}{tenant}", slices::prefix()));
        let set = |tenant: &str, used_us: u64| {
            fs::create_dir_all(slice(tenant)).unwrap();
            fs::write(slice(tenant).join("cpu.stat"), format!("usage_usec {used_us}\n")).unwrap();
        };
        let read = |tenant: &str| -> u64 {
            fs::read_to_string(slice(tenant).join("cpu.weight")).unwrap().parse().unwrap()
        };
        set("busy", 1_000_000);
        set("calm", 0);
        balancer.balance(PAUSE);
        assert_eq!(
            [read("busy"), read("calm")],
            [1_000, 1_000],
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
        assert_eq!([read("busy"), read("calm")], [50, 50]);
    }

    #[test]
    fn a_slice_that_was_made_again_loses_the_weight_of_a_new_one() {
        let all = tempfile::tempdir().unwrap();
        let mut balancer = Balancer::new(all.path().to_owned(), all.path().to_owned(), Version::V2);
        let slice = |tenant: &str| all.path().join(format!("{}{tenant}", slices::prefix()));
        let file = |tenant: &str, name: &str| slice(tenant).join(name);
        for tenant in ["busy", "calm"] {
            fs::create_dir(slice(tenant)).unwrap();
        }
        for (used_us, calm_us) in [(0, 0), (2_000_000, 2_000), (1_500_000, 4_000)] {
            fs::write(file("busy", "cpu.stat"), format!("usage_usec {used_us}\n")).unwrap();
            fs::write(file("calm", "cpu.stat"), format!("usage_usec {calm_us}\n")).unwrap();
            fs::write(file("busy", "cpu.weight"), NEW_WEIGHT.to_string()).unwrap();
            balancer.balance(PAUSE);
        }
        assert_eq!(fs::read_to_string(file("busy", "cpu.weight")).unwrap(), "25");
    }
}
