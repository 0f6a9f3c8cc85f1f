//! Files that models can read directly: their media types, and what makes a provider refuse one.

pub mod size;

use crate::limits::TOOL_MEDIA_BYTES_MAX;
use size::Size;

/// Pixels of a side of a picture. A larger picture is refused before it is stored: Anthropic refuses each request that has it.
const PICTURE_SIDE_PIXELS_MAX: u32 = 8_000;

/// The media types, each with its file name extensions.
const KNOWN: [(&str, &[&str]); 5] = [
    ("image/png", &["png"]),
    ("image/jpeg", &["jpg", "jpeg"]),
    ("image/gif", &["gif"]),
    ("image/webp", &["webp"]),
    ("application/pdf", &["pdf"]),
];

pub const TYPES: [&str; 5] = [KNOWN[0].0, KNOWN[1].0, KNOWN[2].0, KNOWN[3].0, KNOWN[4].0];

/// Returns the media type for the extension of a file name or path, in any letter case.
pub fn of_name(name: &str) -> Option<&'static str> {
    let ending = name.rsplit_once('.')?.1.to_ascii_lowercase();
    KNOWN.into_iter().find(|(_, endings)| endings.contains(&ending.as_str())).map(|(mime, _)| mime)
}

/// Returns the media type for the first bytes of a file, whatever its name; `None` for other content.
pub fn of_bytes(head: &[u8]) -> Option<&'static str> {
    let is_webp = head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP");
    match head {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some("application/pdf"),
        _ if is_webp => Some("image/webp"),
        _ => None,
    }
}

/// Why providers refuse a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// Its bytes are those of something else.
    #[error("it is neither a picture (PNG, JPEG, GIF, WebP) nor a PDF document")]
    Foreign,
    /// It is cut off, or has no picture.
    #[error("it is damaged or incomplete")]
    Damaged,
    /// A side of the picture has too many pixels.
    #[error("it is {} × {} pixels, and the limit of a side is {PICTURE_SIDE_PIXELS_MAX}; make it smaller", .0.width, .0.height)]
    Dimensions(Size),
    /// The picture has too many bytes.
    #[error("it is {0} bytes, and the limit of a picture is {TOOL_MEDIA_BYTES_MAX}; make it smaller")]
    Bytes(usize),
}

/// Returns the media type of a whole file.
///
/// # Errors
/// Why a provider would refuse the file.
pub fn check(file: &[u8]) -> Result<&'static str, Defect> {
    let mime = of_bytes(file).ok_or(Defect::Foreign)?;
    let size = match mime {
        "image/png" => size::png(file),
        "image/jpeg" => size::jpeg(file),
        "image/gif" => size::gif(file),
        "image/webp" => size::webp(file),
        // A document; each one has an object.
        _ => {
            return if file.windows(4).any(|bytes| bytes == b" obj") {
                Ok(mime)
            } else {
                Err(Defect::Damaged)
            };
        }
    };
    match size {
        None => Err(Defect::Damaged),
        Some(size) if size.width.max(size.height) > PICTURE_SIDE_PIXELS_MAX => Err(Defect::Dimensions(size)),
        Some(_) if file.len() > TOOL_MEDIA_BYTES_MAX => Err(Defect::Bytes(file.len())),
        Some(_) => Ok(mime),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    /// A PNG of this size with one chunk of data.
    fn png(width: u32, height: u32, data: usize) -> Vec<u8> {
        let chunk = |kind: &[u8], content: &[u8]| {
            let length = u32::try_from(content.len()).unwrap().to_be_bytes();
            [&length[..], kind, content, &[0; 4]].concat()
        };
        let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 6, 0, 0, 0]].concat();
        let chunks = [chunk(b"IHDR", &header), chunk(b"IDAT", &vec![0; data]), chunk(b"IEND", b"")];
        [&b"\x89PNG\r\n\x1a\n"[..], &chunks.concat()].concat()
    }

    fn jpeg(width: u16, height: u16) -> Vec<u8> {
        let [w, h] = [width, height].map(u16::to_be_bytes);
        let frame = [&[0xff, 0xff, 0xc2, 0, 17, 8][..], &h, &w, &[3; 10]].concat();
        [&b"\xff\xd8\xff\xe0\x00\x04ab\xff\xd0"[..], &frame, b"\xff\xd9"].concat()
    }

    fn webp(kind: &[u8], body: &[u8]) -> Vec<u8> {
        let chunk = [kind, &u32::try_from(body.len()).unwrap().to_le_bytes(), body].concat();
        let length = u32::try_from(chunk.len() + 4).unwrap().to_le_bytes();
        [b"RIFF", &length[..], b"WEBP", &chunk].concat()
    }

    #[test]
    fn what_a_provider_would_refuse_is_found() {
        let size = |width, height| Err(Defect::Dimensions(Size { width, height }));
        let large = png(10, 10, TOOL_MEDIA_BYTES_MAX);
        let cut = png(10, 10, 100);
        for (file, want) in [
            (png(1, 1, 10), Ok("image/png")),
            (png(8_000, 8_000, 10), Ok("image/png")),
            (png(9_000, 20, 10), size(9_000, 20)),
            (png(20, u32::MAX, 10), size(20, u32::MAX)),
            (png(0, 1, 10), Err(Defect::Damaged)),
            (cut[..cut.len() - 1].to_vec(), Ok("image/png")),
            (cut[..cut.len() - 40].to_vec(), Err(Defect::Damaged)),
            (png(1, 1, 1)[..8].to_vec(), Err(Defect::Damaged)),
            (large.clone(), Err(Defect::Bytes(large.len()))),
            (jpeg(20, 30), Ok("image/jpeg")),
            (jpeg(20, 8_001), size(20, 8_001)),
            (b"\xff\xd8\xff\xe0\x00\x04ab".to_vec(), Err(Defect::Damaged)),
            (b"GIF89a\x01\0\x01\0\0\0\0;".to_vec(), Ok("image/gif")),
            (b"GIF89a\x41\x1f\x01\0\0\0\0;".to_vec(), size(8_001, 1)),
            (b"GIF89a\x01\0\x01\0".to_vec(), Err(Defect::Damaged)),
            (webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a\x0a\x00\x0b\x00"), Ok("image/webp")),
            (webp(b"VP8L", b"\x2f\xff\xff\xff\xff"), size(16_384, 16_384)),
            (webp(b"VP8X", b"\0\0\0\0\x40\x1f\0\0\0\0"), size(8_001, 1)),
            (webp(b"VP8L", b"\x2f\0\0\0\0")[..24].to_vec(), Err(Defect::Damaged)),
            (b"%PDF-1.4\n1 0 obj\n".to_vec(), Ok("application/pdf")),
            (b"%PDF-1.4".to_vec(), Err(Defect::Damaged)),
            (b"<html>login</html>".to_vec(), Err(Defect::Foreign)),
            (b"".to_vec(), Err(Defect::Foreign)),
        ] {
            let head = String::from_utf8_lossy(&file[..file.len().min(60)]);
            assert_eq!(check(&file), want, "{head:?}, {} bytes", file.len());
        }
    }

    /// Beginnings of each kind of file.
    const HEADS: &[&[u8]] = &[
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff",
        b"GIF89a",
        b"RIFF\x10\0\0\0WEBPVP8L",
        b"RIFF\x10\0\0\0WEBPVP8X",
        b"%PDF-",
        b"",
    ];

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            head in prop::sample::select(HEADS),
            rest in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = check(&[head, &rest].concat());
        }
    }

    #[test]
    fn the_first_bytes_of_a_file_mean_a_type() {
        for (head, mime) in [
            (&b"\x89PNG\r\n\x1a\n\0\0"[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a\x01", Some("image/gif")),
            (b"GIF88a\x01", None),
            (b"RIFF\x24\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"RIFF\x24\0\0\0WAVEfmt ", None),
            (b"RIFF", None),
            (b"%PDF-1.7\n", Some("application/pdf")),
            (b"\x7fELF\x02", None),
            (b"", None),
        ] {
            assert_eq!(of_bytes(head), mime, "{head:?}");
            assert!(mime.is_none_or(|mime| TYPES.contains(&mime)), "{head:?}");
        }
    }

    #[test]
    fn the_ending_of_a_name_means_a_type() {
        for (name, mime) in [
            ("a.png", Some("image/png")),
            ("dir.d/A.JPEG", Some("image/jpeg")),
            ("b.jpg", Some("image/jpeg")),
            ("a.tar.gif", Some("image/gif")),
            ("a.webp", Some("image/webp")),
            ("a.pdf", Some("application/pdf")),
            ("png", None),
            ("a.rs", None),
            ("", None),
        ] {
            assert_eq!(of_name(name), mime, "{name}");
            assert!(mime.is_none_or(|mime| TYPES.contains(&mime)), "{name}");
        }
    }
}
