//! Latencies of one kind, and their percentiles.

use std::time::Duration;

#[derive(Debug, Default)]
pub struct Samples(Vec<Duration>);

impl FromIterator<Duration> for Samples {
    fn from_iter<T: IntoIterator<Item = Duration>>(samples: T) -> Self {
        Self(samples.into_iter().collect())
    }
}

impl Samples {
    pub fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// Adds the samples of another set.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Returns a percentile; zero without samples.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
        sorted.get(rank).copied().unwrap_or_default()
    }

    /// Returns the longest sample; zero without samples.
    pub fn max(&self) -> Duration {
        self.percentile(100)
    }

    /// Returns each sample, in their order.
    pub fn iter(&self) -> impl Iterator<Item = Duration> {
        self.0.iter().copied()
    }

    /// Returns the number of samples.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Divides the median of these samples by the median of others.
    pub fn median_ratio(&self, others: &Self) -> f64 {
        self.percentile(50).as_secs_f64() / others.percentile(50).as_secs_f64()
    }
}
