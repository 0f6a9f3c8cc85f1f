//! What a shell command would run, for rules of permission: one pattern for each simple command in it, wherever it
//! stands. Read by a real parser of bash; what that cannot tell is said to be unclear, never guessed.
//!
//! This is about consent, not about containment: a program may start whatever it likes, and the sandbox is what holds it.

mod arity;

use tree_sitter::{Node, Parser};

/// What a command line would run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Commands {
    /// Each simple command: its words with one space between them.
    pub(crate) patterns: Vec<String>,
    /// What an answer "always" would allow: for each command its name, with sub-commands, and ` *`.
    pub(crate) always: Vec<String>,
    /// Paths that commands which change or show files are given.
    pub(crate) paths: Vec<String>,
    /// Whether something in it runs what only the shell itself will know, or it cannot be parsed.
    pub(crate) is_unclear: bool,
}

/// Longest command that is parsed; a longer one is unclear. Parsing is linear, and it runs beside all other loops.
const PARSED_BYTES_MAX: usize = 64 * 1024;
/// Commands in commands: `bash -c "xargs sh -c …"`.
const DEPTH_MAX: usize = 5;
/// Deepest nesting of the syntax tree.
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

/// Reads what `text` would run.
pub(crate) fn commands(text: &str) -> Commands {
    let mut found = Commands::default();
    read(text, 0, &mut found);
    // The grammar ends a word where a line is continued; bash joins it. Both readings count, so that none hides a command.
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
    walk(root, text, (depth, 0), &mut own);
    // Of a text with an error, what was understood is only a part.
    if root.has_error() || own.patterns.is_empty() && !is_harmless(root) {
        unclear(text, &mut own);
    }
    own.patterns.into_iter().for_each(|pattern| push(&mut found.patterns, pattern));
    own.always.into_iter().for_each(|pattern| push(&mut found.always, pattern));
    found.paths.extend(own.paths);
    found.is_unclear |= own.is_unclear;
}

/// The text with a sign of ASCII for each byte of other characters, so that places stay the same. The grammar's scanner, which
/// is written in C, reads beyond its memory at some of them: a model must not end a worker by a letter. To bash they are parts
/// of words, and of no name, as this sign is.
fn masked(text: &str) -> String {
    text.bytes().map(|byte| if byte.is_ascii() { char::from(byte) } else { '+' }).collect()
}

/// `None` when the grammar and the parser are of different versions, which a test would tell.
fn parser() -> Option<Parser> {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).ok().map(|()| parser)
}

fn unclear(text: &str, found: &mut Commands) {
    found.is_unclear = true;
    push(&mut found.patterns, domain::text::head(text.trim(), PATTERN_BYTES_MAX).to_owned());
}

/// Longest pattern that people are shown.
const PATTERN_BYTES_MAX: usize = 4 * 1024;

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

fn walk(node: Node<'_>, text: &str, (depth, level): (usize, usize), found: &mut Commands) {
    if level > TREE_DEPTH_MAX {
        found.is_unclear = true;
        return;
    }
    if text.get(node.byte_range()).is_none() {
        // It begins or ends inside a character, which is part of a word: it was not understood.
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
        walk(child, text, (depth, level + 1), found);
    }
}

fn source<'a>(node: Node<'_>, text: &'a str) -> &'a str {
    text.get(node.byte_range()).unwrap_or_default()
}

/// One word of a command: as written, and what the shell makes of it if that can be known.
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

/// What the shell makes of a word without expansions.
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

/// Takes a command of the given words, and what it runs in turn.
fn simple(words: &[Word], depth: usize, found: &mut Commands) {
    let Some(first) = words.first() else { return };
    // A name with a wildcard is what the shell finds.
    let is_plain = |name: &&str| !name.contains(['*', '?', '[']);
    let Some(name) = first.literal.as_deref().filter(is_plain) else {
        // The name itself is made by the shell.
        let written: Vec<&str> = words.iter().map(|word| word.written.as_str()).collect();
        return unclear(&written.join(" "), found);
    };
    // A path to a program is that program, for rules.
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

/// The command inside a command.
fn inner(name: &str, arguments: &[Word], depth: usize, found: &mut Commands) {
    if depth >= DEPTH_MAX {
        found.is_unclear = true;
        return;
    }
    if WRAPPERS.contains(&name) {
        let is_option = |word: &&Word| {
            let text = word.literal.as_deref().unwrap_or(&word.written);
            // Options, their numbers and durations, and variables for the command.
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
