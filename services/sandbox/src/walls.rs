//! The walls that not every machine can build. Without the consent of the operator the service does not start if one is missing.

use std::fmt;

/// A wall that an operator may do without, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Wall {
    /// The kernel limits the memory of a sandbox. Otherwise a watchdog inside counts it.
    Memory,
    /// The kernel limits the processes of a sandbox.
    Processes,
    /// The kernel limits the CPU of a sandbox. Otherwise one sandbox can slow all others down.
    Cpu,
    /// The service sees everything that a workspace takes on the disk. Otherwise programs can hide files from the limit.
    Disk,
    /// Each session has a user of its own. Otherwise an escape from one sandbox reaches the service and all sessions.
    Users,
    /// Landlock restricts writes, in case that a mount is wrong.
    Landlock,
    /// The terminals of a sandbox are bounded. Otherwise one sandbox can take all that the machine has.
    Terminals,
}

/// A wall that this machine lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    pub wall: Wall,
    /// Why, and what takes its place.
    pub cause: String,
}

impl fmt::Display for Wall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::Cpu => "cpu",
            Self::Disk => "disk",
            Self::Users => "users",
            Self::Landlock => "landlock",
            Self::Terminals => "terminals",
        })
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.wall, self.cause)
    }
}

/// The text about gaps that the operator has not accepted; `None` if there is none.
pub fn refusal(gaps: &[Gap], accepted: &[Wall]) -> Option<String> {
    let open: Vec<&Gap> = gaps.iter().filter(|gap| !accepted.contains(&gap.wall)).collect();
    if open.is_empty() {
        return None;
    }
    let causes: Vec<String> = open.iter().map(ToString::to_string).collect();
    // The setting replaces an earlier one, so it names what was accepted before as well.
    let mut names: Vec<Wall> = accepted.iter().copied().chain(open.iter().map(|gap| gap.wall)).collect();
    names.sort_unstable();
    names.dedup();
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    Some(format!(
        "{}\nmend this, or accept it with FLOTILLA_SANDBOX_WITHOUT={}",
        causes.join("\n"),
        names.join(",")
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn every_gap_is_named_with_the_setting_that_accepts_it() {
        let gap = |wall| Gap { wall, cause: "why".to_owned() };
        let gaps = [gap(Wall::Memory), gap(Wall::Cpu), gap(Wall::Users)];
        let text =
            "memory: why\nusers: why\nmend this, or accept it with FLOTILLA_SANDBOX_WITHOUT=memory,cpu,users";
        assert_eq!(refusal(&gaps, &[Wall::Cpu]).as_deref(), Some(text));
        assert_eq!(refusal(&gaps, &[Wall::Users, Wall::Cpu, Wall::Memory]), None);
    }

    #[test]
    fn a_wall_is_accepted_by_the_name_that_is_shown() {
        for wall in Wall::value_variants() {
            assert_eq!(Wall::from_str(&wall.to_string(), false).as_ref(), Ok(wall));
        }
    }
}
