//! The commands that a shell command line would run, for permission rules: one pattern for each simple command in it,
//! at any depth. A real bash parser reads the line. Whatever the parser cannot determine is reported as unclear, never
//! guessed.
//!
//! The result is used to ask for consent, not to contain the program: a program may start others, and the sandbox
//! contains them all.

mod arity;

use convert_client::{bounds::PATTERN_BYTES_MAX, reply::Commands};
use tree_sitter::{Node, Parser};

/// Longest command that is parsed; a longer one is unclear: nobody reads it before it is allowed.
const PARSED_BYTES_MAX: usize = 64 * 1024;
/// Maximum nesting of commands in commands: `bash -c "xargs sh -c …"`. A command with deeper ones is unclear.
const DEPTH_MAX: usize = 5;
/// Deepest nesting of the syntax tree. A command with a deeper one is unclear.
const TREE_DEPTH_MAX: usize = 200;

/// Commands whose arguments are paths.
const ON_PATHS: [&str; 9] = ["cd", "rm", "cp", "mv", "mkdir", "touch", "chmod", "chown", "cat"];
/// Commands that run the command after them.
const WRAPPERS: [&str; 15] = [
    "builtin", "command", "doas", "env", "exec", "ionice", "nice", "nohup", "setsid", "stdbuf", "sudo",
    "time", "timeout", "watch", "xargs",
];
/// Shells, which run the text after `-c`.
const SHELLS: [&str; 6] = ["ash", "bash", "dash", "ksh", "sh", "zsh"];

/// Determines the commands that `text` would run.
pub(crate) fn commands(text: &str) -> Commands {
    let mut found = Commands::default();
    read(text, 0, &mut found);
    // The grammar ends a word at a line continuation, but bash joins the lines. Both readings count, so that neither
    // hides a command.
    if text.contains("\\\n") {
        read(&text.replace("\\\n", ""), 0, &mut found);
    }
    found
}

fn read(text: &str, depth: usize, found: &mut Commands) {
    if text.trim().is_empty() {
        return;
    }
    let tree = parser().filter(|_| text.len() <= PARSED_BYTES_MAX && depth < DEPTH_MAX);
    let Some(tree) = tree.and_then(|mut parser| parser.parse(masked(text), None)) else {
        return unclear(text, found);
    };
    let root = tree.root_node();
    let mut own = Commands::default();
    walk(root, text, Nesting { depth, level: 0 }, &mut own);
    // If the text has a syntax error, the parser understood only a part of it.
    if root.has_error() || own.patterns.is_empty() && !is_harmless(root) {
        unclear(text, &mut own);
    }
    own.patterns.into_iter().for_each(|pattern| push(&mut found.patterns, pattern));
    own.always.into_iter().for_each(|pattern| push(&mut found.always, pattern));
    found.paths.extend(own.paths);
    found.is_unclear |= own.is_unclear;
}

/// Replaces each byte of a non-ASCII character by an ASCII character, so that positions stay the same. The grammar's
/// scanner, written in C, reads out of bounds at some of these characters, and a crash would leave the command unclear.
/// For bash such characters are parts of words but never of names, and so is the replacement.
fn masked(text: &str) -> String {
    text.bytes().map(|byte| if byte.is_ascii() { char::from(byte) } else { '+' }).collect()
}

/// `None` if the versions of grammar and parser differ, which a test would detect.
fn parser() -> Option<Parser> {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).ok().map(|()| parser)
}

fn unclear(text: &str, found: &mut Commands) {
    found.is_unclear = true;
    push(&mut found.patterns, domain::text::head(text.trim(), PATTERN_BYTES_MAX).to_owned());
}

fn push(list: &mut Vec<String>, text: String) {
    if !list.contains(&text) {
        list.push(text);
    }
}

/// Whether a text without any command only sets variables or compares.
fn is_harmless(root: Node<'_>) -> bool {
    let mut cursor = root.walk();
    root.named_children(&mut cursor).all(|node| {
        matches!(node.kind(), "variable_assignment" | "variable_assignments" | "comment" | "test_command")
    })
}

/// The current depth of the parser.
#[derive(Clone, Copy)]
struct Nesting {
    /// Commands inside commands.
    depth: usize,
    /// Nodes of the syntax tree below the command.
    level: usize,
}

fn walk(node: Node<'_>, text: &str, nesting: Nesting, found: &mut Commands) {
    let Nesting { depth, level } = nesting;
    if level > TREE_DEPTH_MAX {
        found.is_unclear = true;
        return;
    }
    if text.get(node.byte_range()).is_none() {
        // The node begins or ends inside a character, so the parser misread a word.
        unclear(text, found);
    }
    match node.kind() {
        "command" => command(node, text, depth, found),
        "declaration_command" | "unset_command" => {
            let words: Vec<&str> = source(node, text).split_whitespace().collect();
            push(&mut found.patterns, words.join(" "));
            found.always.extend(words.first().map(|name| format!("{name} *")));
        }
        _ => {}
    }
    let mut cursor = node.walk();
    for child in node.children(&mut cursor) {
        walk(child, text, Nesting { depth, level: level + 1 }, found);
    }
}

fn source<'a>(node: Node<'_>, text: &'a str) -> &'a str {
    text.get(node.byte_range()).unwrap_or_default()
}

/// One word of a command: as written, and its value after shell expansion if that is known.
struct Word {
    written: String,
    literal: Option<String>,
}

fn command(node: Node<'_>, text: &str, depth: usize, found: &mut Commands) {
    let mut cursor = node.walk();
    let words: Vec<Word> = node
        .named_children(&mut cursor)
        .filter(|child| {
            !matches!(
                child.kind(),
                "variable_assignment" | "file_redirect" | "herestring_redirect" | "heredoc_redirect"
            )
        })
        .map(|child| Word { written: source(child, text).to_owned(), literal: literal(child, text) })
        .collect();
    simple(&words, depth, found);
}

/// The value of a word without expansions.
fn literal(node: Node<'_>, text: &str) -> Option<String> {
    let written = source(node, text);
    match node.kind() {
        "word" | "number" => Some(unescaped(written)),
        "raw_string" => Some(written.trim_matches('\'').to_owned()),
        "string" => {
            let mut cursor = node.walk();
            let is_plain = node.named_children(&mut cursor).all(|child| child.kind() == "string_content");
            is_plain.then(|| unescaped(written.strip_prefix('"')?.strip_suffix('"')?).into()).flatten()
        }
        "command_name" => {
            node.named_child(0).map_or_else(|| Some(unescaped(written)), |child| literal(child, text))
        }
        "concatenation" => {
            let mut cursor = node.walk();
            node.named_children(&mut cursor).map(|child| literal(child, text)).collect()
        }
        _ => None,
    }
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => plain.extend(characters.next().filter(|next| *next != '\n')),
            character => plain.push(character),
        }
    }
    plain
}

/// Adds a command with the given words, and the commands that it runs in turn.
fn simple(words: &[Word], depth: usize, found: &mut Commands) {
    let Some(first) = words.first() else { return };
    // The shell expands a name with a wildcard to an unknown one.
    let is_plain = |name: &&str| !name.contains(['*', '?', '[']);
    let Some(name) = first.literal.as_deref().filter(is_plain) else {
        // The shell computes the name itself.
        let written: Vec<&str> = words.iter().map(|word| word.written.as_str()).collect();
        return unclear(&written.join(" "), found);
    };
    // Rules treat a path to a program as the program's name.
    let name = name.rsplit('/').next().unwrap_or(name);
    let rest = words[1..].iter().map(|word| word.literal.as_deref().unwrap_or(&word.written));
    let line: Vec<&str> = std::iter::once(name).chain(rest).collect();
    let pattern = line.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    push(&mut found.patterns, domain::text::head(&pattern, PATTERN_BYTES_MAX).to_owned());
    if let Some(prefix) = arity::prefix(&line) {
        push(&mut found.always, format!("{} *", prefix.join(" ")));
    }
    if ON_PATHS.contains(&name) {
        let paths = line[1..].iter().filter(|word| !word.starts_with('-') && !word.starts_with('+'));
        found.paths.extend(paths.map(|path| (*path).to_owned()));
    }
    inner(name, &words[1..], depth, found);
}

/// Adds the command inside a command.
fn inner(name: &str, arguments: &[Word], depth: usize, found: &mut Commands) {
    if depth >= DEPTH_MAX {
        found.is_unclear = true;
        return;
    }
    if WRAPPERS.contains(&name) {
        let is_option = |word: &&Word| {
            let text = word.literal.as_deref().unwrap_or(&word.written);
            // Skip options, their numbers and durations, and variables for the command.
            text.starts_with('-') || text.contains('=') || text.starts_with(|c: char| c.is_ascii_digit())
        };
        let skipped = arguments.iter().take_while(is_option).count();
        simple(&arguments[skipped..], depth + 1, found);
    } else if SHELLS.contains(&name) {
        let is_c = |word: &Word| {
            word.literal
                .as_deref()
                .is_some_and(|text| text.starts_with('-') && !text.starts_with("--") && text.contains('c'))
        };
        if let Some(at) = arguments.iter().position(is_c) {
            text_of(arguments.get(at + 1), depth, found);
        }
    } else if name == "eval" {
        match arguments.iter().map(|word| word.literal.clone()).collect::<Option<Vec<_>>>() {
            Some(words) => read(&words.join(" "), depth + 1, found),
            None => found.is_unclear = true,
        }
    } else if name == "find" {
        let runs =
            |word: &Word| matches!(word.literal.as_deref(), Some("-exec" | "-execdir" | "-ok" | "-okdir"));
        for (at, _) in arguments.iter().enumerate().filter(|(_, word)| runs(word)) {
            simple(&arguments[at + 1..], depth + 1, found);
        }
    }
}

fn text_of(word: Option<&Word>, depth: usize, found: &mut Commands) {
    match word.and_then(|word| word.literal.as_deref()) {
        Some(text) => read(text, depth + 1, found),
        None => found.is_unclear = true,
    }
}

#[cfg(test)]
mod tests;
