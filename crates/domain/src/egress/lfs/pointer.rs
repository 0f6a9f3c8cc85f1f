//! The pointer of Git LFS: three lines that stand in a repository for the content of a file.

use crate::text;
use std::fmt;

/// Bytes of a pointer: the longest one has 145. A longer file is content, and nothing of it is read.
pub const LFS_POINTER_BYTES_MAX: usize = 160;

/// Each line of a pointer begins with its key. The keys of other lines name extensions, which change the content in a way that only their program knows.
const VERSION: &str = "version https://git-lfs.github.com/spec/v1\n";
const OID: &str = "oid sha256:";
const SIZE: &str = "size ";

/// What a pointer says about the content.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LfsPointer {
    oid: Box<str>,
    size: u64,
}

impl LfsPointer {
    /// The pointer with a SHA-256 in lower-case hexadecimal digits and a number of bytes. `None`: the first is no such name.
    pub fn new(oid: &str, size: u64) -> Option<Self> {
        text::is_sha256(oid).then(|| Self { oid: oid.into(), size })
    }

    /// Reads a file. `None`: it is no pointer, or not spelled in the one way in which Git LFS writes it. With another spelling the same content would be a
    /// change of the file for git.
    pub fn parse(file: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(file).ok().filter(|text| text.len() <= LFS_POINTER_BYTES_MAX)?;
        let (oid, size) = text.strip_prefix(VERSION)?.strip_prefix(OID)?.split_once('\n')?;
        let size = size.strip_prefix(SIZE)?.strip_suffix('\n')?;
        let pointer = Self::new(oid, size.parse().ok()?)?;
        (pointer.to_string() == text).then_some(pointer)
    }

    /// Reads a line of a list: `<oid> <size>`. `None`: it is no such line, or not spelled as [`Self::to_line`] writes it.
    pub fn parse_line(line: &str) -> Option<Self> {
        let (oid, size) = line.split_once(' ')?;
        let pointer = Self::new(oid, size.parse().ok()?)?;
        (pointer.to_line() == line).then_some(pointer)
    }

    /// The line of a list.
    pub fn to_line(&self) -> String {
        format!("{} {}", self.oid, self.size)
    }

    /// The SHA-256 of the content, in lower-case hexadecimal digits.
    pub fn oid(&self) -> &str {
        &self.oid
    }

    /// The bytes of the content.
    pub fn size(&self) -> u64 {
        self.size
    }
}

/// As the file that stands in a repository.
impl fmt::Display for LfsPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION}{OID}{}\n{SIZE}{}\n", self.oid, self.size)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_pointer_has_one_spelling() {
        let text = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{ABC}\nsize 3\n");
        let pointer = LfsPointer::parse(text.as_bytes()).unwrap();
        assert_eq!((pointer.oid(), pointer.size(), pointer.to_string()), (ABC, 3, text.clone()));
        let largest = text.replace("size 3", &format!("size {}", u64::MAX));
        assert_eq!(LfsPointer::parse(largest.as_bytes()).unwrap().size(), u64::MAX);
        assert!(largest.len() < LFS_POINTER_BYTES_MAX);
        let version = "version https://git-lfs.github.com/spec/v1\n";
        for other in [
            String::new(),
            "#!/bin/sh\n".to_owned(),
            text.replace('\n', "\r\n"),
            text.trim_end().to_owned(),
            format!("{text}\n"),
            format!("{text}x 1\n"),
            format!("\u{feff}{text}"),
            text.replace("spec/v1", "spec/v2"),
            text.replace("https://git-lfs.github.com/spec/v1", "https://hawser.github.com/spec/v1"),
            text.replace("sha256", "sha1"),
            text.replace(ABC, &ABC.to_uppercase()),
            text.replace(ABC, &ABC[1..]),
            text.replace(ABC, "../../../../etc/passwd"),
            text.replace(ABC, &format!("{}/..", &ABC[3..])),
            text.replace("size 3", "size -3"),
            text.replace("size 3", "size +3"),
            text.replace("size 3", "size 03"),
            text.replace("size 3", "size 3 "),
            text.replace("size 3", "size 18446744073709551616"),
            text.replace("size 3", &format!("size {}", "9".repeat(1_000))),
            text.replace("size 3", "size 1e3"),
            format!("{version}size 3\noid sha256:{ABC}\n"),
            format!("{version}ext-0-foo sha256:{ABC}\noid sha256:{ABC}\nsize 3\n"),
            format!("oid sha256:{ABC}\nsize 3\n{version}"),
            format!("{version}oid sha256:{ABC}\noid sha256:{ABC}\nsize 3\n"),
        ] {
            assert_eq!(LfsPointer::parse(other.as_bytes()), None, "{other:?}");
        }
        assert_eq!(LfsPointer::parse(b"\xff\xfe"), None);
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_written(bytes in proptest::collection::vec(any::<u8>(), 0..200), size in any::<u64>()) {
            if let Some(pointer) = LfsPointer::parse(&bytes) {
                prop_assert_eq!(pointer.to_string().into_bytes(), bytes);
            }
            let pointer = LfsPointer::new(ABC, size).unwrap();
            prop_assert_eq!(LfsPointer::parse(pointer.to_string().as_bytes()), Some(pointer));
        }
    }
}
