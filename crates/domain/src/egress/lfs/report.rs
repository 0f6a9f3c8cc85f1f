//! The report of a helper about the objects of Git LFS that it has put into the files of a session. The helper has read foreign content, so the service
//! checks the objects before it keeps them for other sessions.

use super::pointer::LfsPointer;

/// Bytes of a report: a helper brings 5,000 objects at most, with some 90 bytes each. The helper is killed when it prints more.
pub const LFS_REPORT_BYTES_MAX: usize = 1024 * 1024;

/// Before an object that a mirror had.
const MIRROR: &str = "mirror ";
/// Before an object that the server has sent.
const SERVER: &str = "server ";

/// Where the objects of a session come from.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LfsReport {
    /// The objects that a mirror had.
    pub mirrored: Vec<LfsPointer>,
    /// The objects that the server has sent.
    pub transferred: Vec<LfsPointer>,
}

impl LfsReport {
    /// Reads what [`Self::to_text`] wrote. `None`: it is no report.
    pub fn parse(text: &str) -> Option<Self> {
        let mut report = Self::default();
        for line in text.lines() {
            if let Some(object) = line.strip_prefix(MIRROR) {
                report.mirrored.push(LfsPointer::parse_line(object)?);
            } else {
                report.transferred.push(LfsPointer::parse_line(line.strip_prefix(SERVER)?)?);
            }
        }
        Some(report)
    }

    /// A line for each object: `mirror <oid> <size>` or `server <oid> <size>`.
    pub fn to_text(&self) -> String {
        let lines = |origin: &'static str, pointers: &[LfsPointer]| -> String {
            pointers.iter().map(|pointer| format!("{origin}{}\n", pointer.to_line())).collect()
        };
        lines(MIRROR, &self.mirrored) + &lines(SERVER, &self.transferred)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let pointer = |letter: &str, size| LfsPointer::new(&letter.repeat(64), size).unwrap();
        let report = LfsReport {
            mirrored: vec![pointer("b", 7)],
            transferred: vec![pointer("a", 0), pointer("c", u64::MAX)],
        };
        assert_eq!(LfsReport::parse(&report.to_text()), Some(report));
        assert_eq!(LfsReport::parse(""), Some(LfsReport::default()));
        let oid = "a".repeat(64);
        for wrong in [
            format!("{oid} 7"),
            format!("mirror {oid}"),
            format!("mirror {oid} 07"),
            format!("server {oid} -7"),
            format!("server {oid} 7 8"),
            format!("server {} 7", &oid[1..]),
            format!("server ../{} 7", &oid[3..]),
            format!("disk {oid} 7"),
            format!("mirror {oid} 7\n\n"),
        ] {
            assert_eq!(LfsReport::parse(&wrong), None, "{wrong}");
        }
    }
}
