//! Reads which texts an expression of a source may have: those of literals, `format!`, constants, variables, `match`, lists, and functions made of
//! these.

use super::{
    sources::{Function, Source, Sources},
    tokens::Token,
};
use domain::session::Phase;
use std::{collections::BTreeMap, ops::Range};

/// The constants of the store that are numbers.
const PHASES: [(&str, Phase); 5] = [
    ("IDLE", Phase::Idle),
    ("RUNNABLE", Phase::Runnable),
    ("RUNNING", Phase::Running),
    ("WAITING", Phase::Waiting),
    ("QUARANTINED", Phase::Quarantined),
];

/// The texts that an expression may have, or why it cannot be read.
type Texts = Result<Vec<String>, String>;

/// What the names of an expression may mean.
struct Scope<'s> {
    sources: &'s Sources,
    file: usize,
    function: Option<&'s Function>,
    /// The texts of the function's parameters.
    arguments: BTreeMap<String, Vec<String>>,
}

/// Reads the expression at a token of a function. If it depends on the parameters of the function, every call of the function gives it texts.
pub(super) fn read(sources: &Sources, function: &Function, at: usize) -> Texts {
    let alone = Scope { sources, file: function.file, function: Some(function), arguments: BTreeMap::new() };
    let reason = match alone.expression(at) {
        Ok(texts) => return Ok(texts),
        Err(reason) => reason,
    };
    let mut texts = vec![];
    for (file, group) in sources.calls(function) {
        let caller = Scope {
            sources,
            file,
            function: sources.function_around(file, group),
            arguments: BTreeMap::new(),
        };
        texts.extend(caller.called(function, &caller.source().elements(group)).expression(at)?);
    }
    if texts.is_empty() { Err(reason) } else { Ok(texts) }
}

impl<'s> Scope<'s> {
    fn source(&self) -> &'s Source {
        &self.sources.files[self.file]
    }

    /// Reads the expression that begins at a token.
    fn expression(&self, at: usize) -> Texts {
        match &self.source().tokens[at] {
            Token::Text(text) => self.literal(at, text),
            Token::Word(word) if word == "format" => self.format(at),
            Token::Word(word) if word == "match" => self.any_of(self.source().arms(at)),
            Token::Word(_) => self.path(at),
            Token::Sign('&') => self.expression(at + 1),
            Token::Sign('[') => {
                self.any_of(self.source().elements(at).into_iter().map(|element| element.start).collect())
            }
            Token::Sign('{') => self.expression(self.source().value(at)),
            Token::Sign(sign) => Err(format!("an expression begins with {sign}")),
        }
    }

    fn any_of(&self, expressions: Vec<usize>) -> Texts {
        let texts: Result<Vec<_>, _> = expressions.into_iter().map(|at| self.expression(at)).collect();
        Ok(texts?.concat())
    }

    fn literal(&self, at: usize, text: &str) -> Texts {
        let source = self.source();
        let is_whole = [',', ')', ';', '}', ']'].iter().any(|sign| source.is_sign(at + 1, *sign))
            || source.is_sign(at + 1, '.') && source.is_word(at + 2, "to_owned");
        if is_whole { Ok(vec![text.to_owned()]) } else { Err(format!("more follows the literal {text:?}")) }
    }

    /// Reads `format!(…)`.
    fn format(&self, at: usize) -> Texts {
        let mut elements = self.source().elements(at + 2).into_iter().map(|element| element.start);
        let pattern = elements.next().map(|first| &self.source().tokens[first]);
        let Some(Token::Text(pattern)) = pattern else { return Err("a format is no literal".to_owned()) };
        let mut texts = vec![pattern.clone()];
        for hole in holes(pattern) {
            let values = if hole.is_empty() {
                self.expression(elements.next().ok_or("a format has too few arguments")?)?
            } else {
                self.name(at, hole)?
            };
            let (marker, count) = (format!("{{{hole}}}"), if hole.is_empty() { 1 } else { usize::MAX });
            let filled = |text: String| {
                values.iter().map(|value| text.replacen(&marker, value, count)).collect::<Vec<_>>()
            };
            texts = texts.into_iter().flat_map(filled).collect();
        }
        Ok(texts)
    }

    /// Reads a name, or the call of a function.
    fn path(&self, at: usize) -> Texts {
        let source = self.source();
        let mut last = at;
        while source.is_sign(last + 1, ':')
            && source.is_sign(last + 2, ':')
            && source.word(last + 3).is_some()
        {
            last += 3;
        }
        let name = source.word(last).unwrap_or_default();
        if source.is_sign(last + 1, '.') {
            return Err(format!("{name} has a method"));
        }
        if !source.is_sign(last + 1, '(') {
            return self.name(at, name);
        }
        match name {
            "AssertSqlSafe" => self.expression(last + 2),
            "new" if source.is_word(at, "String") => Ok(vec![String::new()]),
            _ => {
                let function = self.sources.function(self.file, name)?;
                self.called(function, &source.elements(last + 1)).expression(function.body.start)
            }
        }
    }

    /// The scope of a function that is called with these arguments. Those that are no text stay unknown.
    fn called(&self, function: &'s Function, arguments: &[Range<usize>]) -> Self {
        // A method has `self` as well.
        let first = function.parameters.len().saturating_sub(arguments.len());
        let pairs = function.parameters.iter().skip(first).zip(arguments);
        let texts =
            pairs.filter_map(|(name, argument)| Some((name.clone()?, self.expression(argument.start).ok()?)));
        Scope {
            sources: self.sources,
            file: function.file,
            function: Some(function),
            arguments: texts.collect(),
        }
    }

    /// Reads what a name means at a token: a parameter, the nearest variable above, or a constant.
    fn name(&self, at: usize, name: &str) -> Texts {
        if let Some(texts) = self.arguments.get(name) {
            return Ok(texts.clone());
        }
        let start = self.function.map_or(at, |function| function.body.start);
        if let Some(texts) = (start..at).rev().find_map(|binding| self.variable(binding, name)) {
            return texts;
        }
        if let Some((_, phase)) = PHASES.iter().find(|(constant, _)| *constant == name) {
            return Ok(vec![phase.to_i16().to_string()]);
        }
        let (file, value) = self.sources.constant(self.file, name)?;
        Scope { sources: self.sources, file, function: None, arguments: BTreeMap::new() }.expression(value)
    }

    /// Reads a variable if `let` or `for` at this token binds it.
    fn variable(&self, at: usize, name: &str) -> Option<Texts> {
        let source = self.source();
        if source.is_word(at, "let") && source.is_word(at + 1, name) && source.is_sign(at + 2, '=') {
            return Some(self.expression(at + 3));
        }
        if !source.is_word(at, "for") {
            return None;
        }
        if source.is_word(at + 1, name) && source.is_word(at + 2, "in") {
            return Some(self.expression(at + 3));
        }
        if !source.is_sign(at + 1, '(') {
            return None;
        }
        // `for (name, other) in [(…, …), (…, …)]`
        let is_name = |element: &Range<usize>| element.len() == 1 && source.is_word(element.start, name);
        let column = source.elements(at + 1).iter().position(is_name)?;
        let list = source.next(at + 1) + 1;
        let rows = source.elements(list).into_iter().map(|row| source.elements(row.start));
        let values = rows.filter_map(|row| row.get(column).map(|element| element.start));
        Some(self.any_of(values.collect()))
    }
}

/// Returns the names in the braces of a format, each once. An empty one stands for the next argument.
fn holes(pattern: &str) -> Vec<&str> {
    let mut holes: Vec<&str> = vec![];
    for rest in pattern.split('{').skip(1) {
        let hole = rest.split('}').next().unwrap_or_default();
        if hole.is_empty() || !holes.contains(&hole) {
            holes.push(hole);
        }
    }
    holes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the argument of `query` in the function `f`.
    fn texts(text: &str) -> Texts {
        let sources = Sources::new(vec![("a.rs".to_owned(), text.to_owned())]);
        let function = sources.function(0, "f").unwrap();
        let at = function.body.clone().find(|at| sources.files[0].is_word(*at, "query")).unwrap();
        read(&sources, function, at + 2)
    }

    #[test]
    fn every_way_to_make_a_text_is_read() {
        let cases = [
            ("fn f() { query(\"select 1\") }", "select 1"),
            ("fn f() { let sql = format!(\"{A} {} {c}\", b()); query(AssertSqlSafe(sql)) }", "cannot"),
            (
                "const A: &str = \"select\"; fn b() -> String { format!(\"{IDLE}\") }
                 fn f() { let c = match d { E::F => \"x\", E::G => { \"y\".to_owned() } };
                          let sql = format!(\"{A} {} {c}\", b()); query(AssertSqlSafe(sql)) }",
                "select 0 x|select 0 y",
            ),
            (
                "fn f(a: &str, n: i64) { query(a) } fn g() { f(\"select 1\", n); f(\"select 2\", 3) }",
                "select 1|select 2",
            ),
            (
                "fn f() { for (a, n) in [(\"select 1\", 1), (\"select 2\", 2)] { query(a) } }",
                "select 1|select 2",
            ),
            ("fn f() { for a in [\"select 1\", \"select 2\"] { query(a) } }", "select 1|select 2"),
            ("fn f() { query(\"select \" + name) }", "cannot"),
            ("fn f() { query(&name.replace(\"a\", \"b\")) }", "cannot"),
        ];
        for (text, want) in cases {
            let texts = texts(text).map_or_else(|_| "cannot".to_owned(), |texts| texts.join("|"));
            assert_eq!(texts, want, "{text}");
        }
    }
}
