//! The calls of clients that read files of sessions take their turn, so that a tenant that reads without end rests between them.

use crate::{conclude, files, modules};
use syn::{
    Block, ExprMethodCall, Ident, ImplItemFn, ItemFn,
    visit::{self, Visit},
};

/// The calls of the sandbox service that read files of a session.
const READS: [&str; 6] =
    ["diff_workspace", "glob_files", "grep_files", "read_file", "read_guidance", "read_lines"];
const TURN: &str = "file_read";
/// The functions that take no turn, and why.
const WITHOUT_TURN: [(&str, &str); 2] = [
    ("skill", "its caller reads all skills in one turn"),
    ("find_repository_files", "its callers take the turn, except prompts, which do not wait for one"),
];

/// The functions that read files of sessions.
#[derive(Default)]
struct Readers {
    count: usize,
    /// The names of those that take no turn.
    without_turn: Vec<String>,
}

impl Readers {
    fn of(path: &str, text: &str) -> Self {
        let mut readers = Self::default();
        readers.visit_file(&modules::parse(path, text));
        readers
    }

    fn add(&mut self, name: &Ident, block: &Block) {
        let mut calls = MethodCalls::default();
        calls.visit_block(block);
        if !calls.0.iter().any(|call| READS.contains(&call.as_str())) {
            return;
        }
        self.count += 1;
        if !calls.0.iter().any(|call| call == TURN) {
            self.without_turn.push(name.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Readers {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.add(&item.sig.ident, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.add(&item.sig.ident, &item.block);
    }
}

/// The names of the methods that a function calls.
#[derive(Default)]
struct MethodCalls(Vec<String>);

impl<'ast> Visit<'ast> for MethodCalls {
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.0.push(call.method.to_string());
        visit::visit_expr_method_call(self, call);
    }
}

#[test]
fn each_call_that_reads_files_takes_its_turn() {
    let (mut checked, mut complaints) = (0, vec![]);
    let mut unused: Vec<&str> = WITHOUT_TURN.iter().map(|(name, _)| *name).collect();
    for file in files().iter().filter(|file| file.is_in("services/gateway/src") && file.has_extension("rs")) {
        let readers = Readers::of(&file.path, &file.text);
        checked += readers.count;
        for name in readers.without_turn {
            if WITHOUT_TURN.iter().any(|(known, _)| *known == name) {
                unused.retain(|known| *known != name);
            } else {
                complaints
                    .push(format!("{}: {name} reads files of a session; call Room::{TURN} first", file.path));
            }
        }
    }
    complaints.extend(unused.iter().map(|name| format!("{name} takes a turn; remove it from WITHOUT_TURN")));
    conclude(checked, &complaints);
}

#[test]
fn readers_without_a_turn_are_found() {
    let text =
        "impl A { async fn a(&self) { let _turn = self.file_read().await; self.files().read_file(x).await } }
                async fn b() { retry(|| async { state.files().grep_files(x).await }).await }
                async fn c() { read_file(x).await }";
    let readers = Readers::of("a.rs", text);
    assert_eq!((readers.count, readers.without_turn), (2, vec!["b".to_owned()]));
}
