//! The template of a command: placeholders for the arguments, shell commands whose output replaces them, and names of files and
//! agents.

use crate::text::shell_word;

/// A piece of an expanded template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    /// A shell command, which its output replaces.
    Shell(ShellCommand),
}

/// A shell command of a template. The arguments are values of the shell's parameters: wherever the template uses them, also
/// between quotation marks, they are data and run nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellCommand {
    /// The lines that give the parameters their values; empty if the command uses none.
    pub values: String,
    /// The command, with parameters for placeholders.
    pub command: String,
    /// The command with the arguments in their places, for rules and for people.
    pub shown: String,
}

impl ShellCommand {
    /// The text that the shell runs.
    pub fn line(&self) -> String {
        format!("{}{}", self.values, self.command)
    }
}

/// Fills `arguments` into a template: `$1`, `$2`, … are single words or quoted pieces, the one with the highest number takes all
/// the rest, and `$ARGUMENTS` is all of them. Without a placeholder the arguments come last. ``!`…` `` in the template is a shell
/// command, to which the placeholders are parameters.
pub fn expand(template: &str, arguments: &str) -> Vec<Piece> {
    let added = Added::new(template, arguments.trim());
    let comes_last = added.highest.is_none() && !template.contains(ALL) && !added.all.is_empty();
    let (mut pieces, mut rest) = (vec![], if comes_last { template.trim_end() } else { template });
    while let Some((before, command, after)) = next_shell(rest) {
        push_text(&mut pieces, &added.fill(before));
        pieces.push(Piece::Shell(added.shell(command)));
        rest = after;
    }
    let tail = if comes_last { format!("\n\n{}", added.all) } else { String::new() };
    push_text(&mut pieces, &(added.fill(rest) + &tail));
    pieces
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
}

/// Returns the first shell command in a text, with the text before and after it.
fn next_shell(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let at = from + text[from..].find("!`")?;
        let command_at = at + 2;
        let end = command_at + text[command_at..].find('`')?;
        if end > command_at {
            return Some((&text[..at], &text[command_at..end], &text[end + 1..]));
        }
        from = command_at;
    }
}

/// The placeholder for all arguments.
const ALL: &str = "$ARGUMENTS";

/// The arguments of the caller.
struct Added<'a> {
    all: &'a str,
    words: Vec<&'a str>,
    /// The highest number of a placeholder in the template.
    highest: Option<usize>,
}

impl<'a> Added<'a> {
    fn new(template: &str, all: &'a str) -> Self {
        let highest = placeholders(template).map(|(_, number, _)| number).max();
        Self { all, words: words(all), highest }
    }

    /// The value of a numbered placeholder.
    fn value(&self, number: usize) -> String {
        let from = self.words.get(number - 1..).unwrap_or_default();
        let take = if Some(number) == self.highest { from.len() } else { from.len().min(1) };
        from[..take].join(" ")
    }

    /// Fills the arguments into a piece of the template. Placeholders in the arguments stay.
    fn fill(&self, piece: &str) -> String {
        let (mut filled, mut done) = (String::with_capacity(piece.len() + self.all.len()), 0);
        for (at, number, end) in placeholders(piece) {
            filled.push_str(&piece[done..at].replace(ALL, self.all));
            filled.push_str(&self.value(number));
            done = end;
        }
        filled.push_str(&piece[done..].replace(ALL, self.all));
        filled
    }

    /// A shell command of the template, with the arguments as values of its parameters.
    fn shell(&self, template: &str) -> ShellCommand {
        let (mut values, mut command, mut done) = (String::new(), String::new(), 0);
        for (at, number, end) in placeholders(template) {
            command.push_str(&template[done..at]);
            // The shell reads `$10` as the first parameter and a zero.
            command.push_str(&if number < 10 { format!("${number}") } else { format!("${{{number}}}") });
            done = end;
        }
        command.push_str(&template[done..]);
        if done > 0 {
            let count = self.highest.unwrap_or(0).min(self.words.len());
            let words: String =
                (1..=count).map(|number| format!(" {}", shell_word(&self.value(number)))).collect();
            values = format!("set --{words}\n");
        }
        if template.contains(ALL) {
            values.push_str(&format!("ARGUMENTS={}\n", shell_word(self.all)));
        }
        ShellCommand { values, command, shown: self.fill(template) }
    }
}

/// The numbered placeholders of a template: start, number from 1, and end.
fn placeholders(template: &str) -> impl Iterator<Item = (usize, usize, usize)> {
    template.match_indices('$').filter_map(|(at, _)| {
        let digits = &template[at + 1..];
        let length = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let number = digits[..length].parse::<usize>().ok().filter(|number| *number > 0)?;
        Some((at, number, at + 1 + length))
    })
}

/// The words of the arguments; quotes hold several together.
fn words(text: &str) -> Vec<&str> {
    let (mut words, mut rest) = (vec![], text.trim_start());
    while let Some(first) = rest.chars().next() {
        let quoted = ['"', '\''].contains(&first).then(|| rest[1..].split_once(first)).flatten();
        let (word, after) = match quoted {
            Some((inside, after)) => (inside, after),
            None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        words.push(word);
        rest = after.trim_start();
    }
    words
}

/// The names after `@` in a text: of files or agents, each once, in their order. After a letter, a digit or a backtick, `@` belongs to
/// an address or to code.
pub fn mentions(text: &str) -> Vec<&str> {
    let mut names: Vec<&str> = vec![];
    for (at, _) in text.match_indices('@') {
        let is_inside = |c: char| c.is_alphanumeric() || c == '_' || c == '`';
        if text[..at].chars().next_back().is_some_and(is_inside) {
            continue;
        }
        let rest = &text[at + 1..];
        let end = rest.find(|c: char| c.is_whitespace() || c == '`' || c == ',').unwrap_or(rest.len());
        let name = rest[..end].trim_end_matches(['.', ':', ';', '!', '?', ')']);
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    #[test]
    fn what_the_caller_adds_is_filled_in() {
        for (template, arguments, want) in [
            ("Review this.", "", "Review this."),
            ("Review this.\n", "all of it", "Review this.\n\nall of it"),
            ("Review $ARGUMENTS now", "a b", "Review a b now"),
            ("$ARGUMENTS and $ARGUMENTS", "x", "x and x"),
            ("from $1 to $2", "a b c", "from a to b c"),
            ("only $2", "a b c", "only b c"),
            ("$1, $1", "one", "one, one"),
            ("$1 and $2", "\"a b\" 'c d' e", "a b and c d e"),
            ("$1 and $2", "one", "one and "),
            ("costs $0 or $x", "more", "costs $0 or $x\n\nmore"),
            ("$10 and $1", "a b", " and a"),
            ("say $1", "$2 $ARGUMENTS", "say $2 $ARGUMENTS"),
            ("$ARGUMENTS of $1", "it's \"open", "it's \"open of it's \"open"),
            ("ä$1ö", "ü", "äüö"),
        ] {
            assert_eq!(expand(template, arguments), [text(want)], "{template:?} {arguments:?}");
        }
        assert_eq!(expand("", ""), []);
    }

    #[test]
    fn commands_of_the_shell_are_pieces() {
        let command = |values: &str, command: &str, shown: &str| {
            let [values, command, shown] = [values, command, shown].map(ToOwned::to_owned);
            Piece::Shell(ShellCommand { values, command, shown })
        };
        let shell = |words: &str| command("", words, words);
        assert_eq!(
            expand("Look:\n!`git diff $1`\nand !`ls`", "main"),
            [
                text("Look:\n"),
                command("set -- 'main'\n", "git diff $1", "git diff main"),
                text("\nand "),
                shell("ls")
            ]
        );
        assert_eq!(expand("Run !`ls`", "now"), [text("Run "), shell("ls"), text("\n\nnow")]);
        assert_eq!(
            expand("$ARGUMENTS: $1", "!`id`"),
            [text("!`id`: !`id`")],
            "the caller's words run nothing"
        );
        assert_eq!(
            expand("!`a \"$ARGUMENTS\"`", "it's $(id)"),
            [command("ARGUMENTS='it'\\''s $(id)'\n", "a \"$ARGUMENTS\"", "a \"it's $(id)\"")],
            "they are data, whatever the template puts around them"
        );
        assert_eq!(
            expand("!`a $1 $10`", "b"),
            [command("set -- 'b'\n", "a $1 ${10}", "a b ")],
            "there is no tenth word"
        );
        assert_eq!(expand("!`a`!`b`", ""), [shell("a"), shell("b")]);
        assert_eq!(expand("a ! and !`` and !`open", ""), [text("a ! and !`` and !`open")]);
    }

    #[test]
    fn names_stand_behind_an_at() {
        for (words, want) in [
            ("look at @src/main.rs, @README.md and @src/main.rs.", vec!["src/main.rs", "README.md"]),
            ("@general: do it (with @./a_b-c.txt)", vec!["general", "./a_b-c.txt"]),
            ("mail me@example.org or `@code`", vec![]),
            ("@ nothing, @, @.", vec![]),
            ("@.opencode/x @ä/ö", vec![".opencode/x", "ä/ö"]),
        ] {
            assert_eq!(mentions(words), want, "{words:?}");
        }
    }
}
