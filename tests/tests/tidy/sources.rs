//! Files: short, with a header, where the next reader looks for them.

use crate::{File, conclude, files};

const LINES_MAX: usize = 500;

fn rust_files() -> Vec<File> {
    files().into_iter().filter(|file| file.has_extension("rs")).collect()
}

/// Tests beside the code need no header of their own.
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
fn files_begin_with_what_they_are() {
    let files: Vec<_> = rust_files().into_iter().filter(|file| needs_header(&file.path)).collect();
    let bare = files.iter().filter(|file| !file.text.starts_with("//! "));
    let complaints: Vec<_> = bare.map(|file| format!("{} does not begin with //!", file.path)).collect();
    conclude(files.len(), &complaints);
}

/// A worker's machine may have any time: what it waits for, it counts by Postgres' clock.
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
fn no_module_is_called_after_nothing() {
    let (files, mut complaints) = (rust_files(), vec![]);
    let banned = ["mod", "util", "utils", "helper", "helpers", "misc"];
    for file in &files {
        // A noun of the sandbox's own: the processes that clone, diff and export.
        if file.path == "services/sandbox/src/workspace/helper.rs" {
            continue;
        }
        if banned.iter().any(|name| file.name() == format!("{name}.rs")) {
            complaints.push(format!("{} says nothing by its name", file.path));
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

/// Every service, rpc, message and enum says what it is, directly above. What goes into a call and what comes out are
/// named after it, and its comment speaks for both.
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

/// What a proto file declares: the kind, the name, and whether a comment stands directly above.
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
fn a_bare_declaration_is_noticed() {
    let text = "// A thing.\nmessage Thing {\n  string message = 1;\n}\n\nmessage Bare {}\nrpc Call(Thing) returns (Bare);";
    let want = [("message", "Thing", true), ("message", "Bare", false), ("rpc", "Call", false)];
    assert_eq!(declarations(text), want);
}
