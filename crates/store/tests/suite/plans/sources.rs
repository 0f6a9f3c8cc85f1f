//! The sources of the store: their functions, constants and calls.

use super::tokens::{self, Token};
use std::{fs, ops::Range, path::Path};

#[derive(Debug)]
pub(super) struct Source {
    /// Its path below `src`.
    pub path: String,
    pub tokens: Vec<Token>,
}

/// A function with a body.
#[derive(Debug)]
pub(super) struct Function {
    /// Its file, as an index of [`Sources::files`].
    pub file: usize,
    pub name: String,
    /// The names of its parameters. `None` for `self`.
    pub parameters: Vec<Option<String>>,
    /// The tokens of its body.
    pub body: Range<usize>,
}

#[derive(Debug)]
pub(super) struct Sources {
    pub files: Vec<Source>,
    pub functions: Vec<Function>,
}

impl Source {
    fn new(path: String, text: &str) -> Self {
        Self { path, tokens: tokens::split(text) }
    }

    pub(super) fn word(&self, at: usize) -> Option<&str> {
        match self.tokens.get(at)? {
            Token::Word(word) => Some(word),
            Token::Text(_) | Token::Sign(_) => None,
        }
    }

    pub(super) fn is_word(&self, at: usize, word: &str) -> bool {
        self.word(at) == Some(word)
    }

    pub(super) fn is_sign(&self, at: usize, sign: char) -> bool {
        self.tokens.get(at) == Some(&Token::Sign(sign))
    }

    /// Returns the position after a token, or after the whole group if the token opens one.
    pub(super) fn next(&self, at: usize) -> usize {
        let mut depth = 0;
        for (offset, token) in self.tokens[at..].iter().enumerate() {
            match token {
                Token::Sign('(' | '[' | '{') => depth += 1,
                Token::Sign(')' | ']' | '}') => depth -= 1,
                Token::Sign(_) | Token::Word(_) | Token::Text(_) => {}
            }
            if depth <= 0 {
                return at + offset + 1;
            }
        }
        self.tokens.len()
    }

    /// Returns the position of a sign outside of the groups that begin at `at` or later.
    pub(super) fn find(&self, mut at: usize, sign: char) -> usize {
        while at < self.tokens.len() && !self.is_sign(at, sign) {
            at = self.next(at);
        }
        at
    }

    /// Returns the elements of the group that begins at `group`. Commas part them.
    pub(super) fn elements(&self, group: usize) -> Vec<Range<usize>> {
        let (mut elements, mut start, mut at) = (vec![], group + 1, group + 1);
        let end = self.next(group) - 1;
        while at < end {
            if self.is_sign(at, ',') {
                elements.push(start..at);
                start = at + 1;
            }
            at = self.next(at);
        }
        if start < end {
            elements.push(start..end);
        }
        elements
    }

    /// Returns the start of the expression that is the value of the block at `block`.
    pub(super) fn value(&self, block: usize) -> usize {
        let (mut start, mut at) = (block + 1, block + 1);
        let end = self.next(block) - 1;
        while at < end {
            if self.is_sign(at, ';') {
                start = at + 1;
            }
            at = self.next(at);
        }
        start
    }

    /// Returns the starts of the expressions of the `match` at `at`.
    pub(super) fn arms(&self, at: usize) -> Vec<usize> {
        let open = self.find(at, '{');
        let (mut arms, mut at, end) = (vec![], open + 1, self.next(open) - 1);
        while at < end {
            while at < end && !(self.is_sign(at, '=') && self.is_sign(at + 1, '>')) {
                at = self.next(at);
            }
            let arm = at + 2;
            arms.push(arm);
            at = if self.is_sign(arm, '{') { self.next(arm) } else { self.find(arm, ',').min(end) };
            if self.is_sign(at, ',') {
                at += 1;
            }
        }
        arms
    }
}

impl Sources {
    pub(super) fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let (mut files, mut directories) = (vec![], vec![root.clone()]);
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else {
                    let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                    files.push((name, fs::read_to_string(&path).unwrap()));
                }
            }
        }
        files.sort();
        Self::new(files)
    }

    /// Reads files, each given by its path and its text.
    pub(super) fn new(files: Vec<(String, String)>) -> Self {
        let files: Vec<_> = files.into_iter().map(|(path, text)| Source::new(path, &text)).collect();
        let functions = files.iter().enumerate().flat_map(|(file, source)| functions(file, source)).collect();
        Self { files, functions }
    }

    /// Returns the innermost function around a token.
    pub(super) fn function_around(&self, file: usize, at: usize) -> Option<&Function> {
        let around = self.functions.iter().filter(|f| f.file == file && f.body.contains(&at));
        around.max_by_key(|function| function.body.start)
    }

    /// Returns the function that a name means in a file: one of the file, or otherwise the only one with this name.
    pub(super) fn function(&self, file: usize, name: &str) -> Result<&Function, String> {
        let mut found: Vec<_> = self.functions.iter().filter(|f| f.name == name).collect();
        if found.iter().any(|function| function.file == file) {
            found.retain(|function| function.file == file);
        }
        match found.as_slice() {
            [function] => Ok(function),
            others => Err(format!("there are {} functions {name}", others.len())),
        }
    }

    /// Returns the value of a constant of a file, or otherwise of the only one with this name: a file and a position.
    pub(super) fn constant(&self, file: usize, name: &str) -> Result<(usize, usize), String> {
        let values = |file: usize| {
            let source = &self.files[file];
            let named = move |at: &usize| source.is_word(*at, "const") && source.is_word(at + 1, name);
            (0..source.tokens.len()).filter(named).map(move |at| (file, source.find(at, '=') + 1))
        };
        let mut found: Vec<_> = values(file).collect();
        if found.is_empty() {
            found = (0..self.files.len()).flat_map(values).collect();
        }
        match found.as_slice() {
            [value] => Ok(*value),
            others => Err(format!("there are {} constants {name}", others.len())),
        }
    }

    /// Returns the calls of a function: their files, and the positions of the groups with the arguments.
    pub(super) fn calls(&self, function: &Function) -> Vec<(usize, usize)> {
        let of_file = |(file, source): (usize, &Source)| {
            let is_call = |at: &usize| {
                source.is_word(*at, &function.name)
                    && source.is_sign(at + 1, '(')
                    && !source.is_word(at.wrapping_sub(1), "fn")
            };
            (0..source.tokens.len()).filter(is_call).map(|at| (file, at + 1)).collect::<Vec<_>>()
        };
        self.files.iter().enumerate().flat_map(of_file).collect()
    }
}

fn functions(file: usize, source: &Source) -> Vec<Function> {
    let starts = (0..source.tokens.len()).filter(|at| source.is_word(*at, "fn"));
    starts.filter_map(|at| function(file, source, at)).collect()
}

/// Reads the function at `fn`. `None`: it has no body, or it is a type.
fn function(file: usize, source: &Source, at: usize) -> Option<Function> {
    let name = source.word(at + 1)?.to_owned();
    let group = source.find(at, '(');
    let parameter = |element: Range<usize>| {
        let colon = element.clone().find(|at| source.is_sign(*at, ':'))?;
        source.word(colon - 1).map(ToOwned::to_owned)
    };
    let parameters = source.elements(group).into_iter().map(parameter).collect();
    let mut start = source.next(group);
    while !source.is_sign(start, '{') {
        if start >= source.tokens.len() || source.is_sign(start, ';') {
            return None;
        }
        start = source.next(start);
    }
    Some(Function { file, name, parameters, body: start..source.next(start) })
}
