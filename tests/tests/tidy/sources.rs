//! Files: short, with a header, and with a meaningful name.

use crate::{File, conclude, files};

const LINES_MAX: usize = 500;

fn rust_files() -> Vec<File> {
    files().into_iter().filter(|file| file.has_extension("rs")).collect()
}

/// Returns whether a file needs a header. Tests next to the code do not.
fn needs_header(path: &str) -> bool {
    !path.ends_with("/tests.rs") && !path.contains("/tests/") && !path.starts_with("tests/tests/")
}

#[test]
fn files_are_short() {
    let files = rust_files();
    let long =
        files.iter().map(|file| (file, file.text.lines().count())).filter(|(_, lines)| *lines > LINES_MAX);
    let complaints: Vec<_> = long.map(|(file, lines)| format!("{} has {lines} lines", file.path)).collect();
    conclude(files.len(), &complaints);
}

#[test]
fn files_start_with_a_description() {
    let files: Vec<_> = rust_files().into_iter().filter(|file| needs_header(&file.path)).collect();
    let bare = files.iter().filter(|file| !file.text.starts_with("//! "));
    let complaints: Vec<_> = bare.map(|file| format!("{} does not start with //!", file.path)).collect();
    conclude(files.len(), &complaints);
}

/// The clock of a worker's machine may be wrong, so workers use the clock of Postgres.
#[test]
fn no_worker_reads_the_wall_clock() {
    let files: Vec<_> = rust_files().into_iter().filter(|file| file.is_in("services/worker/src")).collect();
    let clocks = ["SystemTime::now", "OffsetDateTime::now", "CLOCK_REALTIME"];
    let readers = files.iter().filter(|file| clocks.iter().any(|clock| file.text.contains(clock)));
    let complaints: Vec<_> = readers
        .filter(|file| file.path != "services/worker/src/process/clock.rs")
        .map(|file| format!("{} reads the wall clock", file.path))
        .collect();
    conclude(files.len(), &complaints);
}

#[test]
fn modules_have_meaningful_names() {
    let (files, mut complaints) = (rust_files(), vec![]);
    let banned = ["mod", "util", "utils", "helper", "helpers", "misc"];
    for file in &files {
        // In the sandbox, a helper is a process that clones, diffs or exports.
        if file.path == "services/sandbox/src/helper.rs" {
            continue;
        }
        if banned.iter().any(|name| file.name() == format!("{name}.rs")) {
            complaints.push(format!("{} has a meaningless name", file.path));
        }
        for name in &banned[1..] {
            if file
                .text
                .lines()
                .any(|line| line.trim_start_matches("pub ").starts_with(&format!("mod {name} {{")))
            {
                complaints.push(format!("{} has a module {name}", file.path));
            }
        }
    }
    conclude(files.len(), &complaints);
}

/// Every service, rpc, message and enum has a comment directly above it. The request and the response of a call are covered
/// by the comment of the call.
#[test]
fn the_wire_is_commented() {
    let (mut checked, mut complaints) = (0, vec![]);
    for file in files().iter().filter(|file| file.is_in("proto") && file.has_extension("proto")) {
        let declared = declarations(&file.text);
        for (kind, name, is_commented) in &declared {
            let call = name.strip_suffix("Request").or_else(|| name.strip_suffix("Response"));
            let is_of_a_call = call
                .is_some_and(|call| declared.iter().any(|(kind, name, _)| (*kind, *name) == ("rpc", call)));
            checked += 1;
            if !is_commented && !is_of_a_call {
                complaints.push(format!("{}: {kind} {name} has no comment above it", file.path));
            }
        }
    }
    conclude(checked, &complaints);
}

/// Lists the declarations of a proto file: the kind, the name, and whether a comment stands directly above.
fn declarations(text: &str) -> Vec<(&str, &str, bool)> {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let above = |at: usize| at.checked_sub(1).is_some_and(|above| lines[above].starts_with("//"));
    let declared = lines.iter().enumerate().filter_map(|(at, line)| {
        let (kind, rest) = line.split_once(' ')?;
        let name = rest.split(|c: char| !c.is_ascii_alphanumeric()).next()?;
        ["service", "rpc", "message", "enum"].contains(&kind).then(|| (kind, name, above(at)))
    });
    declared.collect()
}

#[test]
fn an_undocumented_declaration_is_reported() {
    let text = "// A thing.\nmessage Thing {\n  string message = 1;\n}\n\nmessage Bare {}\nrpc Call(Thing) returns (Bare);";
    let want = [("message", "Thing", true), ("message", "Bare", false), ("rpc", "Call", false)];
    assert_eq!(declarations(text), want);
}
