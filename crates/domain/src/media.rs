//! Media types of files that models understand as they are.

/// The media types, each with the endings of file names that mean it.
const KNOWN: [(&str, &[&str]); 5] = [
    ("image/png", &["png"]),
    ("image/jpeg", &["jpg", "jpeg"]),
    ("image/gif", &["gif"]),
    ("image/webp", &["webp"]),
    ("application/pdf", &["pdf"]),
];

/// All of them.
pub const TYPES: [&str; 5] = [KNOWN[0].0, KNOWN[1].0, KNOWN[2].0, KNOWN[3].0, KNOWN[4].0];

/// Gives the media type that the ending of a file's name or path means, in any case of letters.
pub fn of_name(name: &str) -> Option<&'static str> {
    let ending = name.rsplit_once('.')?.1.to_ascii_lowercase();
    KNOWN.into_iter().find(|(_, endings)| endings.contains(&ending.as_str())).map(|(mime, _)| mime)
}

#[cfg(test)]
mod tests {
    use super::*;

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
