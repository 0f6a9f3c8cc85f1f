//! A measured figure and what it is held against.

use crate::bench::Samples;
use std::fmt;

/// What was measured.
#[derive(Debug)]
pub enum Measured {
    /// Times; the target is for the 99th percentile.
    Times(Samples),
    /// One number.
    Number {
        /// The number.
        value: f64,
        /// Its unit.
        unit: &'static str,
        /// Of how many things.
        count: usize,
    },
}

/// What a figure should be, in milliseconds or in the unit of its number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// No more.
    AtMost(f64),
    /// No less.
    AtLeast(f64),
    /// It only explains another figure.
    None,
}

/// One line of the report.
#[derive(Debug)]
pub struct Figure {
    /// What it says.
    pub name: String,
    /// The measurement.
    pub measured: Measured,
    /// What it should be.
    pub target: Target,
}

impl Figure {
    /// A figure of times.
    pub fn times(name: impl Into<String>, samples: Samples, target: Target) -> Self {
        Self { name: name.into(), measured: Measured::Times(samples), target }
    }

    /// A figure that is one number, of `count` things.
    pub fn number(
        name: impl Into<String>,
        (value, unit): (f64, &'static str),
        count: usize,
        target: Target,
    ) -> Self {
        Self { name: name.into(), measured: Measured::Number { value, unit, count }, target }
    }

    /// How many things were measured.
    pub fn count(&self) -> usize {
        match &self.measured {
            Measured::Times(samples) => samples.count(),
            Measured::Number { count, .. } => *count,
        }
    }

    /// What the target is held against.
    fn judged(&self) -> (f64, &'static str) {
        match &self.measured {
            Measured::Times(samples) => (milliseconds(samples.percentile(99)), "ms"),
            Measured::Number { value, unit, .. } => (*value, unit),
        }
    }
}

fn milliseconds(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.measured {
            Measured::Times(samples) => write!(
                f,
                "{:<64} p50 {:9.2} ms  p99 {:9.2} ms  max {:9.2} ms  ({} samples)",
                self.name,
                milliseconds(samples.percentile(50)),
                milliseconds(samples.percentile(99)),
                milliseconds(samples.max()),
                samples.count()
            )?,
            Measured::Number { value, unit, count } => {
                write!(f, "{:<64} {value:.2} {unit} (of {count})", self.name)?;
            }
        }
        let (value, unit) = self.judged();
        let (word, bound, is_met) = match self.target {
            Target::AtMost(bound) => ("at most", bound, value <= bound),
            Target::AtLeast(bound) => ("at least", bound, value >= bound),
            Target::None => return Ok(()),
        };
        write!(f, "  target {word} {bound:.2} {unit}: {}", if is_met { "met" } else { "MISSED" })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

    use super::{Figure, Target};
    use crate::bench::Samples;
    use std::time::Duration;

    #[test]
    fn a_figure_says_whether_its_target_is_met() {
        let samples = || (1..=100).map(Duration::from_millis).collect::<Samples>();
        let line = |target| Figure::times("wait", samples(), target).to_string();
        assert!(line(Target::AtMost(99.0)).ends_with("target at most 99.00 ms: met"));
        assert!(line(Target::AtMost(98.0)).ends_with("MISSED"));
        assert!(line(Target::None).ends_with("max    100.00 ms  (100 samples)"));
        let rate = Figure::number("rate", (999.0, "/s"), 10, Target::AtLeast(1_000.0));
        assert!(rate.to_string().ends_with("999.00 /s (of 10)  target at least 1000.00 /s: MISSED"));
    }
}
