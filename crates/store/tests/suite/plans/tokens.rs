//! Splits Rust sources into string literals, words and signs. Comments are left out.

/// A part of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// The content of a string literal.
    Text(String),
    /// A name, a keyword or a number.
    Word(String),
    Sign(char),
}

/// Splits a source. The tests at its end are left out.
pub(super) fn split(source: &str) -> Vec<Token> {
    let mut tokens = vec![];
    let mut rest = source.split("#[cfg(test)]\nmod tests").next().unwrap().trim_start();
    while let Some(first) = rest.chars().next() {
        let after = if rest.starts_with("//") {
            rest.split_once('\n').map_or("", |(_, after)| after)
        } else if let Some(literal) = rest.strip_prefix('"') {
            let (text, after) = read_text(literal);
            tokens.push(Token::Text(text));
            after
        } else if is_of_word(first) {
            let (word, after) = rest.split_at(rest.find(|c: char| !is_of_word(c)).unwrap_or(rest.len()));
            tokens.push(Token::Word(word.to_owned()));
            after
        } else if let Some(after) = skip_character(rest) {
            after
        } else {
            tokens.push(Token::Sign(first));
            &rest[first.len_utf8()..]
        };
        rest = after.trim_start();
    }
    tokens
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Reads a string literal after its first quote. Returns its content and the rest of the source.
fn read_text(literal: &str) -> (String, &str) {
    let (mut text, mut characters) = (String::new(), literal.chars());
    loop {
        match characters.next().expect("a literal that ends") {
            '"' => return (text, characters.as_str()),
            '\\' => match characters.next().expect("a literal that ends") {
                '\n' => characters = characters.as_str().trim_start().chars(),
                'n' => text.push('\n'),
                other => text.push(other),
            },
            other => text.push(other),
        }
    }
}

/// Returns the rest of the source after a character literal. `None`: there is none, but for example a lifetime.
fn skip_character(source: &str) -> Option<&str> {
    let literal = source.strip_prefix('\'')?;
    let mut characters = literal.chars();
    match characters.next()? {
        '\\' => {
            characters.next()?;
            characters.as_str().split_once('\'').map(|(_, after)| after)
        }
        _ => characters.as_str().strip_prefix('\''),
    }
}

#[test]
fn literals_comments_and_lifetimes_are_told_apart() {
    let source = "fn a<'q>(b: &'q str) { // \"no\"\n 'x'; '\\''; f(\"one \\\"two\\\" \\\n   three\") }\n#[cfg(test)]\nmod tests {}";
    let words: Vec<_> = split(source)
        .into_iter()
        .map(|token| match token {
            Token::Text(text) => format!("\"{text}\""),
            Token::Word(word) => word,
            Token::Sign(sign) => sign.to_string(),
        })
        .collect();
    assert_eq!(words.join(" "), "fn a < ' q > ( b : & ' q str ) { ; ; f ( \"one \"two\" three\" ) }");
}
