//! Schemas as short texts, much like TypeScript types, translated to JSON Schema:
//!
//! ```text
//! {id title? tags:string[] of:{path lines?:integer}[] state:'on'|'off' byName:Session{}}
//! ```
//!
//! A member without a type is a string; `?` makes it optional; `[]` makes a list and `{}` a map of the type before it; a name with a
//! capital letter is one of [`super::schemas`].
//!
//! The schemas are not derived from serde types. Most answers are built with `json!` from stored JSON, so there is no type to derive
//! from: types for the document alone would double every shape. The tests check each answer of a running service against its schema
//! instead, which ties the document to what is served.

use serde_json::{Map, Value, json};

/// The JSON Schema of a text.
pub(super) fn schema(text: &str) -> Value {
    Reader { rest: text }.union()
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn until(&mut self, ends: &[char]) -> &'a str {
        let (word, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    fn union(&mut self) -> Value {
        let mut kinds = vec![self.list()];
        while self.eat("|") {
            kinds.push(self.list());
        }
        if kinds.len() == 1 { kinds.remove(0) } else { json!({"anyOf": kinds}) }
    }

    fn list(&mut self) -> Value {
        let mut schema = self.one();
        loop {
            if self.eat("[]") {
                schema = json!({"type": "array", "items": schema});
            } else if self.eat("{}") {
                schema = json!({"type": "object", "additionalProperties": schema});
            } else {
                return schema;
            }
        }
    }

    fn one(&mut self) -> Value {
        if self.eat("{") {
            return self.object();
        }
        if self.eat("'") {
            let constant = json!({"type": "string", "const": self.until(&['\''])});
            self.eat("'");
            return constant;
        }
        match self.until(&[' ', '}', '{', '[', '|']) {
            "any" => json!({}),
            kind if kind.starts_with(char::is_lowercase) => json!({"type": kind}),
            name => json!({"$ref": format!("#/components/schemas/{name}")}),
        }
    }

    fn object(&mut self) -> Value {
        let (mut members, mut required) = (Map::new(), vec![]);
        loop {
            self.rest = self.rest.trim_start();
            if self.eat("}") || self.rest.is_empty() {
                break;
            }
            let name = self.until(&[' ', '}', '?', ':']);
            if !self.eat("?") {
                required.push(name);
            }
            let schema = if self.eat(":") { self.union() } else { json!({"type": "string"}) };
            members.insert(name.to_owned(), schema);
        }
        let mut object = json!({"type": "object", "properties": members});
        if let (false, Some(object)) = (required.is_empty(), object.as_object_mut()) {
            object.insert("required".to_owned(), required.into());
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notations_become_schemas() {
        let text = json!({"type": "string"});
        let session = json!({"$ref": "#/components/schemas/Session"});
        for (notation, want) in [
            ("string", text.clone()),
            ("any", json!({})),
            ("Session[]", json!({"type": "array", "items": session})),
            ("Session{}", json!({"type": "object", "additionalProperties": session})),
            ("Session|'no'", json!({"anyOf": [session, {"type": "string", "const": "no"}]})),
            ("{}", json!({"type": "object", "properties": {}})),
            (
                "{id n?:integer[] of:{a?}[] by:Session{}}",
                json!({
                    "type": "object", "required": ["id", "of", "by"],
                    "properties": {
                        "id": text, "n": {"type": "array", "items": {"type": "integer"}},
                        "of": {"type": "array", "items": {"type": "object", "properties": {"a": text}}},
                        "by": {"type": "object", "additionalProperties": session},
                    },
                }),
            ),
        ] {
            assert_eq!(schema(notation), want, "{notation}");
        }
    }
}
