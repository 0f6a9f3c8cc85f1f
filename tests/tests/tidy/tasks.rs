//! Tasks and threads start in few places, so that every panic is counted and logged, and what a process depends on runs again.

use crate::{conclude, files, modules};
use syn::{
    Path,
    visit::{self, Visit},
};

/// The files and folders that start tasks or threads themselves, and why. All others use `chassis::tasks`.
const OWNERS: [(&str, &str); 15] = [
    ("crates/chassis/src/tasks.rs", "the tasks of all services"),
    ("crates/chassis/src/port.rs", "the connections of a port"),
    ("crates/bus/src/outgoing.rs", "the bus knows no chassis; its queues survive panics of the client"),
    ("crates/store/src/pool/loan.rs", "the rollback of a transaction whose caller is gone"),
    ("cli/src/commands/session/pty.rs", "a thread for the keyboard, which nothing can interrupt"),
    ("crates/local/src/process.rs", "a thread that lives as long as its child processes, which end with it"),
    ("crates/sandbox-init/src", "no async runtime; its threads end the sandbox when they fail"),
    (
        "services/sandbox/src/isolation/launch.rs",
        "a thread that lives as long as the sandboxes, which end with it",
    ),
    (
        "services/sandbox/src/disk/workspace.rs",
        "the thread of a walk, which yields; its panic is the error of the walk",
    ),
    (
        "services/sandbox/src/disk/mapped.rs",
        "the thread that reads the maps of one workspace; its end is noted also after a panic",
    ),
    ("services/worker/src/calls/run.rs", "the calls of a loop, which answers for their panics"),
    ("services/worker/src/claim/lease.rs", "a thread that no busy loop delays"),
    ("services/gateway/src/streams/subscription.rs", "the stream of one client over a session"),
    ("services/gateway/src/streams/tenant_subscription.rs", "the stream of one client over a tenant"),
    ("services/gateway/src/http/v1/stream/live.rs", "the stream of one of OpenCode's clients"),
];

/// What starts a task or a thread.
const STARTS: [[&str; 2]; 7] = [
    ["tokio", "spawn"],
    ["task", "spawn"],
    ["task", "spawn_local"],
    ["thread", "spawn"],
    ["thread", "Builder"],
    ["JoinSet", "new"],
    ["TaskTracker", "new"],
];

#[derive(Default)]
struct Starts(Vec<String>);

impl<'ast> Visit<'ast> for Starts {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let is_test = matches!(item, syn::Item::Mod(item) if modules::is_for_tests(&item.attrs));
        if !is_test {
            visit::visit_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.windows(2).any(|pair| STARTS.iter().any(|start| pair == start)) {
            self.0.push(names.join("::"));
        }
        visit::visit_path(self, path);
    }
}

fn starts(path: &str, text: &str) -> Vec<String> {
    let mut starts = Starts::default();
    starts.visit_file(&modules::parse(path, text));
    starts.0
}

#[test]
fn tasks_and_threads_start_at_their_owners() {
    let (mut checked, mut complaints) = (0, vec![]);
    let mut unused: Vec<&str> = OWNERS.iter().map(|(owner, _)| *owner).collect();
    for file in &files() {
        let is_source = file.has_extension("rs")
            && file.path.contains("/src/")
            && ["cli", "crates", "services"].iter().any(|dir| file.is_in(dir));
        let is_for_tests = file.is_in("crates/testkit")
            || file.path.split('/').any(|name| ["tests", "tests.rs"].contains(&name));
        if !is_source || is_for_tests {
            continue;
        }
        checked += 1;
        let found = starts(&file.path, &file.text);
        let owner = OWNERS.iter().find(|(owner, _)| file.path == *owner || file.is_in(owner));
        match owner {
            Some((owner, _)) if !found.is_empty() => unused.retain(|other| other != owner),
            Some(_) => {}
            None => complaints
                .extend(found.iter().map(|start| format!("{}: {start}; use chassis::tasks", file.path))),
        }
    }
    complaints.extend(unused.iter().map(|owner| format!("{owner} starts nothing; remove it from OWNERS")));
    conclude(checked, &complaints);
}

#[test]
fn starts_are_found() {
    let text = "fn f() { tokio::spawn(x); std::thread::Builder::new(); tasks.spawn(x); spawn_blocking(x); }
                #[cfg(test)] mod tests { fn g() { tokio::spawn(x); } }";
    assert_eq!(starts("a.rs", text), ["tokio::spawn", "std::thread::Builder::new"]);
}
