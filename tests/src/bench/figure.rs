//! A measured figure and its target.

use crate::bench::samples::Samples;
use std::fmt;

#[derive(Debug)]
pub enum Measurement {
    /// Times; the target is for the 99th percentile.
    Times(Samples),
    Number {
        quantity: Quantity,
        /// The number of things that it was measured on.
        count: usize,
    },
}

/// A number and its unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantity {
    pub value: f64,
    pub unit: &'static str,
}

/// The target of a figure, in milliseconds or in the unit of its number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// An upper limit.
    AtMost(f64),
    /// A lower limit.
    AtLeast(f64),
    /// No target: the figure only explains another.
    None,
}

/// One line of the report.
#[derive(Debug)]
pub struct Figure {
    pub name: String,
    pub measured: Measurement,
    pub target: Target,
}

impl Figure {
    /// Creates a figure of times.
    pub fn times(name: impl Into<String>, samples: Samples, target: Target) -> Self {
        Self { name: name.into(), measured: Measurement::Times(samples), target }
    }

    /// Creates a figure of one number, measured on `count` things.
    pub fn number(name: impl Into<String>, quantity: Quantity, count: usize, target: Target) -> Self {
        Self { name: name.into(), measured: Measurement::Number { quantity, count }, target }
    }

    /// Creates a figure of how much longer `more` takes than `less` at a percentile.
    pub fn difference(
        name: impl Into<String>,
        more: &Samples,
        less: &Samples,
        percent: usize,
        target: Target,
    ) -> Self {
        let seconds = more.percentile(percent).as_secs_f64() - less.percentile(percent).as_secs_f64();
        let quantity = Quantity { value: seconds * 1_000.0, unit: "ms" };
        Self::number(name, quantity, more.count(), target)
    }

    /// Returns the number of things that were measured.
    pub fn count(&self) -> usize {
        match &self.measured {
            Measurement::Times(samples) => samples.count(),
            Measurement::Number { count, .. } => *count,
        }
    }

    /// Returns whether the target is met; true without one.
    pub fn is_met(&self) -> bool {
        let value = self.compared().value;
        match self.target {
            Target::AtMost(bound) => value <= bound,
            Target::AtLeast(bound) => value >= bound,
            Target::None => true,
        }
    }

    /// Returns the number that is compared with the target.
    fn compared(&self) -> Quantity {
        match &self.measured {
            Measurement::Times(samples) => {
                Quantity { value: milliseconds(samples.percentile(99)), unit: "ms" }
            }
            Measurement::Number { quantity, .. } => *quantity,
        }
    }
}

fn milliseconds(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.measured {
            Measurement::Times(samples) => write!(
                f,
                "{:<64} p50 {:9.2} ms  p99 {:9.2} ms  max {:9.2} ms  ({} samples)",
                self.name,
                milliseconds(samples.percentile(50)),
                milliseconds(samples.percentile(99)),
                milliseconds(samples.max()),
                samples.count()
            )?,
            Measurement::Number { quantity: Quantity { value, unit }, count } => {
                write!(f, "{:<64} {value:.2} {unit} (of {count})", self.name)?;
            }
        }
        let Quantity { unit, .. } = self.compared();
        let (word, bound) = match self.target {
            Target::AtMost(bound) => ("at most", bound),
            Target::AtLeast(bound) => ("at least", bound),
            Target::None => return Ok(()),
        };
        write!(f, "  target {word} {bound:.2} {unit}: {}", if self.is_met() { "met" } else { "MISSED" })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::{Figure, Quantity, Target};
    use crate::bench::samples::Samples;
    use std::time::Duration;

    #[test]
    fn a_figure_shows_whether_its_target_is_met() {
        let samples = || (1..=100).map(Duration::from_millis).collect::<Samples>();
        let line = |target| Figure::times("wait", samples(), target).to_string();
        assert!(line(Target::AtMost(99.0)).ends_with("target at most 99.00 ms: met"));
        assert!(line(Target::AtMost(98.0)).ends_with("MISSED"));
        assert!(line(Target::None).ends_with("max    100.00 ms  (100 samples)"));
        let rate =
            Figure::number("rate", Quantity { value: 999.0, unit: "/s" }, 10, Target::AtLeast(1_000.0));
        assert!(rate.to_string().ends_with("999.00 /s (of 10)  target at least 1000.00 /s: MISSED"));
    }
}
