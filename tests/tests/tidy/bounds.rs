//! The list of every bound of the programs, from their sources. `./dev limits` prints it; git does not keep it.

use crate::{File, conclude, files, root};
use rpc::v1::ErrorCode;
use std::{fmt::Write as _, fs};

const LIST: &str = ".flotilla/limits.md";
const INTRODUCTION: &str = "# Limits

Every bound of the programs, from their sources.

How to change one: a setting by its variable or its flag, for one deployment; `flotilla gateway --help` and so on say more about each. A
constant is the same in every deployment. To change one, edit it in the file that the heading names, and build and deploy every program.

The column `code` has the stable code of the error that a caller gets beyond the bound. Where it shows –, the text says what happens instead.
Settings beyond a bound are refused with `settings_invalid` if somebody stores them. In a repository, they give the session the error `config_invalid`.
";

/// Settings that two services share.
const SHARED_SETTINGS: &str = "crates/chassis/src/quotas.rs";
/// The beginning of the sentence that ends the documentation of a bound with an error: "Beyond it: `code_a` or `code_b`.".
const SENTENCE: &str = "Beyond it: `";

/// A bound in the sources.
#[derive(Debug, Default, PartialEq, Eq)]
struct Bound {
    name: String,
    /// The flag that sets it, for a setting.
    flag: Option<String>,
    value: String,
    /// The stable codes of the errors beyond it.
    codes: Vec<String>,
    /// Its documentation without the codes, in one line.
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
        let (meaning, codes) = part_codes(&documentation(&lines[..at]));
        Some(Bound { name: name.to_owned(), flag: None, value: value.to_owned(), codes, meaning })
    });
    declared.collect()
}

/// Parses the settings of a service: fields with a variable and a default that is a number or a constant.
fn settings(text: &str) -> Vec<Bound> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let declared = lines.iter().enumerate().filter_map(|(at, line)| {
        let arguments = line.strip_prefix("#[arg(")?;
        let (_, rest) = arguments.split_once("env = \"")?;
        let (name, rest) = rest.split_once('"')?;
        let (_, value) = rest.split_once("default_value_t = ")?;
        let value = value.split([',', ')']).next()?;
        let is_number = value.starts_with(|c: char| c.is_ascii_digit());
        // A default with small letters at its end is a variant of an enum.
        let is_constant = !value.ends_with(|c: char| c.is_ascii_lowercase());
        let flag = flag(arguments, lines.get(at + 1)?);
        let (meaning, codes) = part_codes(&documentation(&lines[..at]));
        let bound = Bound { name: name.to_owned(), flag, value: value.to_owned(), codes, meaning };
        (is_number || is_constant).then_some(bound)
    });
    declared.collect()
}

/// Finds the flag of a setting, from the arguments of its attribute and the line of its field: as clap, by the name of the field unless the
/// attribute has another one.
fn flag(arguments: &str, field: &str) -> Option<String> {
    let long = arguments.split(", ").find_map(|argument| argument.strip_prefix("long"))?;
    let given = long.split('"').nth(1).map(str::to_owned);
    let name = given.or_else(|| {
        let (field, _) = field.split_once(':')?;
        Some(field.rsplit(' ').next()?.replace('_', "-"))
    });
    Some(format!("--{}", name?))
}

/// Cuts the sentence with the codes from the end of a documentation.
fn part_codes(documentation: &str) -> (String, Vec<String>) {
    let parts = documentation.rsplit_once(SENTENCE).and_then(|(meaning, rest)| {
        let list = rest.strip_suffix("`.")?.replace("`, `", "` or `");
        let codes: Vec<String> = list.split("` or `").map(str::to_owned).collect();
        let is_code = |code: &String| {
            !code.is_empty()
                && code.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        };
        codes.iter().all(is_code).then(|| (meaning.trim_end().to_owned(), codes))
    });
    parts.unwrap_or_else(|| (documentation.to_owned(), vec![]))
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
    write!(document, "\n{title}\n\n| name | value | code | meaning |\n|---|---|---|---|\n").unwrap();
    for Bound { name, flag, value, codes, meaning } in bounds {
        let flag = flag.as_ref().map(|flag| format!(", `{flag}`")).unwrap_or_default();
        let codes: Vec<String> = codes.iter().map(|code| format!("`{code}`")).collect();
        let codes = if codes.is_empty() { "–".to_owned() } else { codes.join(", ") };
        writeln!(document, "| `{name}`{flag} | {value} | {codes} | {meaning} |").unwrap();
    }
}

/// Lists the sources of the programs.
fn sources(files: &[File]) -> Vec<&File> {
    let is_source = |file: &&File| {
        let is_of_a_program = ["cli", "crates", "services"].iter().any(|dir| file.is_in(dir));
        let is_for_tests = file.path.contains("/tests") || file.is_in("crates/testkit");
        file.has_extension("rs") && is_of_a_program && file.path.contains("/src/") && !is_for_tests
    };
    files.iter().filter(is_source).collect()
}

fn has_settings(file: &File) -> bool {
    file.name() == "config.rs" && file.is_in("services") || file.path == SHARED_SETTINGS
}

fn document(files: &[File]) -> String {
    let (sources, mut text) = (sources(files), INTRODUCTION.to_owned());
    for file in sources.iter().filter(|file| has_settings(file)) {
        let service = match file.path.as_str() {
            SHARED_SETTINGS => "gateway and of the worker",
            path => path.split('/').nth(1).unwrap(),
        };
        table(&mut text, &format!("## Settings of the {service}"), &settings(&file.text));
    }
    text.push_str("\n## Constants\n");
    for file in sources {
        table(&mut text, &format!("### {}", file.path), &constants(&file.text));
    }
    text
}

#[test]
fn every_bound_is_listed() {
    let text = document(&files());
    assert!(text.lines().count() > 200, "the sources have more bounds than the list");
    if std::env::var_os("FLOTILLA_WRITE_DOCUMENTS").is_some() {
        let path = root().join(LIST);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &text).unwrap();
    }
}

/// A reader of the document looks for the code in the answer of a call. A bound without a code says in words what happens.
#[test]
fn the_codes_of_bounds_are_codes_of_errors() {
    let files = files();
    let sources = sources(&files);
    let (mut checked, mut complaints) = (0, vec![]);
    for file in &sources {
        let settings = if has_settings(file) { settings(&file.text) } else { vec![] };
        for Bound { name, codes, meaning, .. } in settings.into_iter().chain(constants(&file.text)) {
            checked += codes.len();
            let missing = codes.iter().filter(|code| ErrorCode::parse(code).is_none());
            complaints.extend(missing.map(|code| {
                format!("{}: {name} has the code `{code}`, which error.proto does not have", file.path)
            }));
            if meaning.contains("Beyond it:") {
                complaints.push(format!("{}: {name} has codes that are not at the end", file.path));
            }
            if meaning.is_empty() {
                complaints.push(format!("{}: {name} does not say what it bounds", file.path));
            }
        }
    }
    conclude(checked, &complaints);
}

#[test]
fn bounds_are_read_with_their_documentation() {
    let text = "/// Bytes of one\n/// thing | other.\npub(crate) const THING_BYTES_MAX: usize = 4 * 1024;\nconst NAME: &str = \"x\";\n\
                const OTHER_MAX: u32 = limits::X;";
    let thing = Bound {
        name: "THING_BYTES_MAX".to_owned(),
        value: "4 * 1024".to_owned(),
        meaning: "Bytes of one thing \\| other.".to_owned(),
        ..Bound::default()
    };
    assert_eq!(constants(text), [thing]);
    let text = "/// Slots. Beyond it: `slots_full`.\n#[arg(long, env = \"FLOTILLA_SLOTS\", default_value_t = 64, value_name = \"COUNT\")]\n\
                pub slots_most: u32,\n#[arg(long, env = \"FLOTILLA_KIND\", value_enum, default_value_t = Kind::Small)]\npub kind: Kind,";
    let slots = Bound {
        name: "FLOTILLA_SLOTS".to_owned(),
        flag: Some("--slots-most".to_owned()),
        value: "64".to_owned(),
        codes: vec!["slots_full".to_owned()],
        meaning: "Slots.".to_owned(),
    };
    assert_eq!(settings(text), [slots]);
}

#[test]
fn a_flag_has_the_name_that_clap_gives_it() {
    for (arguments, want) in [
        ("long, env = \"A\"", Some("--slots-most")),
        ("long = \"slots\", env = \"A\"", Some("--slots")),
        ("env = \"A\", long)]", Some("--slots-most")),
        ("env = \"A\"", None),
    ] {
        assert_eq!(flag(arguments, "pub(crate) slots_most: u32,").as_deref(), want, "{arguments}");
    }
}

#[test]
fn codes_are_cut_from_the_end_of_a_documentation() {
    for (text, meaning, codes) in [
        ("Bytes. Beyond it: `too_long`.", "Bytes.", "too_long"),
        ("Bytes. Beyond it: `too_long` or `full`.", "Bytes.", "too_long full"),
        ("Bytes. Beyond it: `too_long`, `full` or `busy`.", "Bytes.", "too_long full busy"),
        ("Beyond it: `too_long`.", "", "too_long"),
        ("Bytes. Beyond it the oldest is dropped.", "Bytes. Beyond it the oldest is dropped.", ""),
        ("Beyond it: `too_long`. Bytes.", "Beyond it: `too_long`. Bytes.", ""),
        ("Beyond it: `Too long`.", "Beyond it: `Too long`.", ""),
    ] {
        let (parted, found) = part_codes(text);
        assert_eq!((parted.as_str(), found.join(" ").as_str()), (meaning, codes), "{text}");
    }
}
