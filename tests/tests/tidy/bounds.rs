//! `docs/limits.md` lists every bound of the programs, from their sources. To write it again:
//! `FLOTILLA_WRITE_DOCUMENTS=1 cargo nextest run -E 'test(the_document_of_bounds)'`.

use crate::{File, files, root};
use std::{fmt::Write as _, fs};

const DOCUMENT: &str = "docs/limits.md";
const INTRODUCTION: &str = "# Limits

Every bound of the programs, from their sources: a test fails if this page is out of date. A setting can be changed for a deployment, by its
variable or its flag; `flotilla gateway --help` and so on say more about each. A constant is the same everywhere; to change one is to build
another Flotilla. Reaching a bound is an error with a stable code, or the text says what happens instead.
";

/// A bound in the sources.
#[derive(Debug, PartialEq, Eq)]
struct Bound {
    name: String,
    value: String,
    /// Its documentation, in one line.
    meaning: String,
}

/// Parses the documented constants of a file whose names say that they are bounds.
fn constants(text: &str) -> Vec<Bound> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let declared = lines.iter().enumerate().filter_map(|(at, line)| {
        let rest = ["const ", "pub const ", "pub(crate) const ", "pub(super) const "]
            .into_iter()
            .find_map(|start| line.strip_prefix(start))?;
        let (name, rest) = rest.split_once(": ")?;
        let (_, value) = rest.split_once(" = ")?;
        let is_bound = name.split('_').any(|word| ["MAX", "MOST", "KEPT"].contains(&word));
        let is_number = value.starts_with(|c: char| c.is_ascii_digit()) || value.starts_with("Duration::");
        let value = value.strip_suffix(';').filter(|_| is_bound && is_number)?;
        Some(Bound { name: name.to_owned(), value: value.to_owned(), meaning: documentation(&lines[..at]) })
    });
    declared.collect()
}

/// Parses the settings of a service: fields with a variable and a default that is a number.
fn settings(text: &str) -> Vec<Bound> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let declared = lines.iter().enumerate().filter_map(|(at, line)| {
        let (_, rest) = line.strip_prefix("#[arg(")?.split_once("env = \"")?;
        let (name, rest) = rest.split_once('"')?;
        let (_, value) = rest.split_once("default_value_t = ")?;
        let value = value.split([',', ')']).next()?;
        let is_number = value.starts_with(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase());
        let meaning = documentation(&lines[..at]);
        is_number.then(|| Bound { name: name.to_owned(), value: value.to_owned(), meaning })
    });
    declared.collect()
}

/// Joins the comment at the end of `lines`.
fn documentation(lines: &[&str]) -> String {
    let is_above = |line: &&&str| line.starts_with("///") || line.starts_with("#[");
    let above = lines.iter().rev().take_while(is_above).filter_map(|line| line.strip_prefix("///"));
    let mut above: Vec<&str> = above.map(str::trim).collect();
    above.reverse();
    above.join(" ").replace('|', "\\|").replace("[`", "`").replace("`]", "`")
}

fn table(document: &mut String, title: &str, bounds: &[Bound]) {
    if bounds.is_empty() {
        return;
    }
    write!(document, "\n{title}\n\n| name | value | meaning |\n|---|---|---|\n").unwrap();
    for Bound { name, value, meaning } in bounds {
        writeln!(document, "| `{name}` | {value} | {meaning} |").unwrap();
    }
}

fn document(files: &[File]) -> String {
    let is_source = |file: &&File| {
        let is_of_a_program = ["crates", "services"].iter().any(|dir| file.is_in(dir));
        let is_for_tests = file.path.contains("/tests") || file.is_in("crates/testkit");
        file.has_extension("rs") && is_of_a_program && file.path.contains("/src/") && !is_for_tests
    };
    let sources: Vec<&File> = files.iter().filter(is_source).collect();
    let mut text = INTRODUCTION.to_owned();
    for file in sources.iter().filter(|file| file.name() == "config.rs" && file.is_in("services")) {
        let service = file.path.split('/').nth(1).unwrap();
        table(&mut text, &format!("## Settings of the {service}"), &settings(&file.text));
    }
    text.push_str("\n## Constants\n");
    for file in sources {
        table(&mut text, &format!("### {}", file.path), &constants(&file.text));
    }
    text
}

#[test]
fn the_document_of_bounds_is_up_to_date() {
    let (path, text) = (root().join(DOCUMENT), document(&files()));
    if std::env::var_os("FLOTILLA_WRITE_DOCUMENTS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let is_current = fs::read_to_string(&path).is_ok_and(|stored| stored == text);
    assert!(is_current, "{DOCUMENT} is out of date; the head of {} says how to write it", file!());
    assert!(text.lines().count() > 200, "the sources have more bounds than the document");
}

#[test]
fn bounds_are_read_with_their_documentation() {
    let text = "/// Bytes of one\n/// thing | other.\npub(crate) const THING_BYTES_MAX: usize = 4 * 1024;\nconst NAME: &str = \"x\";\n\
                const OTHER_MAX: u32 = limits::X;";
    let (name, value) = ("THING_BYTES_MAX".to_owned(), "4 * 1024".to_owned());
    assert_eq!(constants(text), [Bound { name, value, meaning: "Bytes of one thing \\| other.".to_owned() }]);
    let text = "/// Slots.\n#[arg(long, env = \"FLOTILLA_SLOTS\", default_value_t = 64, value_name = \"COUNT\")]\npub slots: u32,";
    let (name, value) = ("FLOTILLA_SLOTS".to_owned(), "64".to_owned());
    assert_eq!(settings(text), [Bound { name, value, meaning: "Slots.".to_owned() }]);
}
