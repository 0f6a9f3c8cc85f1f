//! JSON with comments and trailing commas, as nodes. Nothing looser: no bare keys, single quotes or missing commas.

use crate::{
    node::{Content, Member, Node, Origin},
    problem::{Problems, shown_text},
    syntax::builder::{Builder, Object},
};
use domain::limits::SETTINGS_DEPTH_MAX;
use jsonc_parser::{CollectOptions, ParseOptions, ast::Value, common::Ranged, parse_to_ast};
use std::sync::Arc;

/// Parses `text`, which begins at `start`.
///
/// # Errors
/// One syntax error, or all values that exceed a limit.
pub(crate) fn parse(start: &Origin, text: &str) -> Result<Node, Problems> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut places = Places { text, start, offset: 0, line: 1, column: 1 };
    let mut builder = Builder::new();
    let parsed = match parse_to_ast(text, &CollectOptions::default(), &strict()) {
        Ok(parsed) => parsed,
        Err(error) => {
            let origin = places.origin(error.range().start);
            let reason = error.kind().to_string().to_lowercase();
            // The reason of the library often says itself what it expected.
            builder.complain(&origin, String::new(), format!("a mistake in the JSON: {reason}"));
            return Err(builder.problems);
        }
    };
    let root = match parsed.value {
        Some(value) => node(&mut builder, &mut places, value, 0),
        None => Object::default().node(start.clone()),
    };
    builder.problems.or(root)
}

fn strict() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

fn node(builder: &mut Builder, places: &mut Places<'_>, value: Value<'_>, depth: usize) -> Node {
    let origin = places.origin(value.range().start);
    let empty = |origin| Node { origin, value: Content::Null };
    if !builder.count(&origin) {
        return empty(origin);
    }
    if depth > SETTINGS_DEPTH_MAX {
        builder.complain(&origin, format!("at most {SETTINGS_DEPTH_MAX} levels"), "more".to_owned());
        return empty(origin);
    }
    let value = match value {
        Value::NullKeyword(_) => Content::Null,
        Value::BooleanLit(literal) => Content::Bool(literal.value),
        Value::StringLit(literal) => return builder.text(origin, literal.value.into_owned()),
        Value::NumberLit(literal) => match literal.value.parse() {
            Ok(number) => Content::Number(number),
            Err(_) => {
                builder.complain(&origin, "a number".to_owned(), shown_text(literal.value));
                Content::Null
            }
        },
        Value::Array(array) => {
            let items = array.elements.into_iter();
            Content::List(items.map(|item| node(builder, places, item, depth + 1)).collect())
        }
        Value::Object(object) => {
            let mut built = Object::default();
            for property in object.properties {
                let at = places.origin(property.range.start);
                let key = Arc::from(property.name.into_string());
                let value = node(builder, places, property.value, depth + 1);
                builder.insert(&mut built, Member { key, origin: at, node: value });
            }
            return built.node(origin);
        }
    };
    Node { origin, value }
}

/// Converts offsets to lines and columns. Values arrive in the order of the text, so each character is visited once.
struct Places<'a> {
    text: &'a str,
    start: &'a Origin,
    offset: usize,
    line: u32,
    column: u32,
}

impl Places<'_> {
    fn origin(&mut self, offset: usize) -> Origin {
        let offset = self.text.floor_char_boundary(offset);
        if offset < self.offset {
            (self.offset, self.line, self.column) = (0, 1, 1);
        }
        for c in self.text[self.offset..offset].chars() {
            (self.line, self.column) =
                if c == '\n' { (self.line + 1, 1) } else { (self.line, self.column + 1) };
        }
        self.offset = offset;
        Origin { line: self.line, column: self.column, ..self.start.clone() }
    }
}
