//! An amount of disk space: what something takes, or may take.

use std::fmt;

const MIB: u64 = 1024 * 1024;

/// An amount of disk space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// The size of the blocks, not of the content; bytes.
    pub bytes: u64,
    /// Files, directories and links; a file with several names counts for each of them.
    pub inodes: u64,
}

impl Space {
    pub fn saturating_add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }

    /// What is left of it without `other`; never less than nothing.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            inodes: self.inodes.saturating_sub(other.inodes),
        }
    }

    /// Whether it is more than `limit` of either kind.
    pub fn exceeds(self, limit: Self) -> bool {
        self.bytes > limit.bytes || self.inodes > limit.inodes
    }

    /// Whether something that exceeds `limit` has become larger than it was `before`. What shrinks is being cleaned.
    pub fn outgrows(self, before: Self, limit: Self) -> bool {
        let bytes = self.bytes > limit.bytes && self.bytes > before.bytes;
        bytes || (self.inodes > limit.inodes && self.inodes > before.inodes)
    }
}

impl fmt::Display for Space {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} MiB in {} files", self.bytes.div_ceil(MIB), self.inodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shrinks_does_not_outgrow_its_limit() {
        let space = |bytes, inodes| Space { bytes, inodes };
        let limit = space(10, 10);
        for (before, now, exceeds, outgrows) in [
            (space(0, 0), space(10, 10), false, false),
            (space(10, 0), space(11, 0), true, true),
            (space(20, 5), space(19, 6), true, false),
            (space(5, 20), space(6, 20), true, false),
            (space(5, 20), space(5, 21), true, true),
        ] {
            assert_eq!(
                (now.exceeds(limit), now.outgrows(before, limit)),
                (exceeds, outgrows),
                "{before} {now}"
            );
        }
    }
}
