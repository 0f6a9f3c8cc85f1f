//! Media types of files that models can read directly.

/// The media types, each with its file name extensions.
const KNOWN: [(&str, &[&str]); 5] = [
    ("image/png", &["png"]),
    ("image/jpeg", &["jpg", "jpeg"]),
    ("image/gif", &["gif"]),
    ("image/webp", &["webp"]),
    ("application/pdf", &["pdf"]),
];

/// All of them.
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

#[cfg(test)]
mod tests {
    use super::*;

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
