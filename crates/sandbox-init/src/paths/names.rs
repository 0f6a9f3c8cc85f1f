//! Names that a person takes for the same, or nearly so.

use unicode_normalization::UnicodeNormalization as _;

/// The names that look like `wanted`; without any, those that contain it or are contained in it. At most `count`.
pub(super) fn similar(wanted: &str, names: impl Iterator<Item = String>, count: usize) -> Vec<String> {
    let wanted = looks(wanted);
    let (mut alike, mut near) = (vec![], vec![]);
    for name in names {
        let look = looks(&name);
        if look == wanted {
            alike.push(name);
        } else if near.len() < count && (look.contains(&wanted) || wanted.contains(&look)) {
            near.push(name);
        }
    }
    let mut names = if alike.is_empty() { near } else { alike };
    names.truncate(count);
    names
}

/// How a name looks: without the difference between letters with marks and letters followed by marks, kinds of blanks, and upper and lower case.
fn looks(name: &str) -> String {
    name.nfkc().flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn check(wanted: &str, names: &[&str], want: &[&str]) {
        assert_eq!(similar(wanted, names.iter().map(ToString::to_string), 3), want, "{wanted}");
    }

    #[test]
    fn names_that_look_alike_come_before_those_that_are_near() {
        check("Shot at 9.41 AM.txt", &["Shot at 9.41\u{202f}AM.txt", "x"], &["Shot at 9.41\u{202f}AM.txt"]);
        check(
            "r\u{e9}sum\u{e9}.md",
            &["re\u{301}sume\u{301}.md", "r\u{e9}sum\u{e9}.md.bak"],
            &["re\u{301}sume\u{301}.md"],
        );
        check("A.TS", &["a.ts", "b.ts"], &["a.ts"]);
        check("main", &["main.rs", "domain", "b"], &["main.rs", "domain"]);
        check("x", &["y"], &[]);
    }
}
