//! The size of a picture, from the headers of its file. Each reader looks at every byte at most once.

/// Width and height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Pixels of a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Size {
    /// A size, unless there is no pixel.
    fn of(width: u32, height: u32) -> Option<Self> {
        (width > 0 && height > 0).then_some(Self { width, height })
    }
}

/// The size of a PNG whose chunks are complete.
pub(super) fn png(file: &[u8]) -> Option<Size> {
    let (mut size, mut rest) = (None, file.get(8..)?);
    loop {
        let length = usize::try_from(big(rest.get(..4)?)).ok()?;
        let (kind, body) = (rest.get(4..8)?, rest.get(8..)?);
        let content = body.get(..length)?;
        match kind {
            b"IHDR" => size = Size::of(big(content.get(..4)?), big(content.get(4..8)?)),
            b"IEND" => return size,
            _ => {}
        }
        // A checksum follows.
        rest = body.get(length + 4..)?;
    }
}

/// The size of a JPEG: that of its frame.
pub(super) fn jpeg(file: &[u8]) -> Option<Size> {
    let mut rest = file.get(2..)?;
    loop {
        // Any number of 0xff may stand before a marker.
        let at = rest.iter().position(|byte| *byte != 0xff).filter(|at| *at > 0)?;
        let (marker, body) = (rest[at], &rest[at + 1..]);
        if let 0x01 | 0xd0..=0xd8 = marker {
            rest = body;
            continue;
        }
        let length = usize::try_from(big(body.get(..2)?)).ok().filter(|length| *length >= 2)?;
        if let 0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf = marker {
            return Size::of(big(body.get(5..7)?), big(body.get(3..5)?));
        }
        rest = body.get(length..)?;
    }
}

pub(super) fn gif(file: &[u8]) -> Option<Size> {
    // A file without a block has no picture.
    file.get(13)?;
    Size::of(little(file.get(6..8)?), little(file.get(8..10)?))
}

/// The size of a WebP whose bytes are all there.
pub(super) fn webp(file: &[u8]) -> Option<Size> {
    let length = usize::try_from(little(file.get(4..8)?)).ok()?;
    file.get(..length.checked_add(8)?)?;
    let body = file.get(20..)?;
    match file.get(12..16)? {
        b"VP8 " if body.get(3..6)? == [0x9d, 0x01, 0x2a] => {
            Size::of(little(body.get(6..8)?) & 0x3fff, little(body.get(8..10)?) & 0x3fff)
        }
        b"VP8L" if body.first() == Some(&0x2f) => {
            let bits = little(body.get(1..5)?);
            Size::of((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1)
        }
        b"VP8X" => Size::of(little(body.get(4..7)?) + 1, little(body.get(7..10)?) + 1),
        _ => None,
    }
}

/// Up to four bytes, the most significant first.
fn big(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| (number << 8) | u32::from(*byte))
}

/// Up to four bytes, the least significant first.
fn little(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| (number << 8) | u32::from(*byte))
}
