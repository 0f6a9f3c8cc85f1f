//! Replaces `{env:NAME}` and `{file:path}` in the strings of a file. A replacement stays inside its string, so it cannot
//! become structure, and references inside it are not replaced again. Keys, comments and settings without effect stay as
//! they are.

use crate::{
    document::Document,
    meaning::providers,
    meaning::settings::KNOWN,
    node::{Content, KeyPath, Node, Step},
    problem::{Problem, Problems, shown_text},
};
use domain::{
    limits::SETTINGS_BYTES_MAX,
    policy::reference::{Reference, next},
};

/// Why a reference is refused. People see it, so it names no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// Returns the text of a reference, or refuses it. The caller decides which references are allowed.
pub type Lookup<'a> = dyn FnMut(Reference<'_>) -> Result<String, Refusal> + 'a;

impl Document {
    /// Replaces every reference. Removes white space at both ends of a file's text, as OpenCode does.
    ///
    /// # Errors
    /// The references that `lookup` refused, and strings that became too long, each with its position. These strings stay as they are;
    /// the others are replaced, and a later call does not replace them again.
    pub fn substitute(&mut self, lookup: &mut Lookup<'_>) -> Result<(), Problems> {
        let mut pass =
            Pass { lookup, bytes: self.bytes, path: KeyPath::default(), problems: Problems::default() };
        pass.node(&mut self.root);
        self.bytes = pass.bytes;
        pass.problems.or(())
    }
}

/// One walk through a document.
struct Pass<'a, 'b> {
    lookup: &'a mut Lookup<'b>,
    bytes: usize,
    path: KeyPath,
    problems: Problems,
}

/// Whether the member `key` of the object at `path` has any effect.
fn has_effect(path: &KeyPath, key: &str) -> bool {
    match path.0.as_slice() {
        [] => KNOWN.contains(&key),
        [Step::Key(first), _] if &**first == "provider" => providers::PROVIDER.contains(&key),
        _ => true,
    }
}

impl Pass<'_, '_> {
    fn node(&mut self, node: &mut Node) {
        match &mut node.value {
            Content::Null | Content::Bool(_) | Content::Number(_) => {}
            Content::List(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    self.path.0.push(Step::Item(at));
                    self.node(item);
                    self.path.0.pop();
                }
            }
            Content::Map(entries) => {
                for entry in entries {
                    // A setting without effect may refer to anything.
                    if !has_effect(&self.path, &entry.key) {
                        continue;
                    }
                    self.path.0.push(Step::Key(entry.key.clone()));
                    self.node(&mut entry.node);
                    self.path.0.pop();
                }
            }
            Content::Text { text, written } => {
                if written.is_some() {
                    return;
                }
                match self.replace(text) {
                    Ok(None) => {}
                    Ok(Some(new)) => *written = Some(std::mem::replace(text, new)),
                    Err((expected, found)) => {
                        let (origin, path) = (node.origin.clone(), self.path.clone());
                        self.problems.push(Problem { origin, path, expected, found });
                    }
                }
            }
        }
    }

    /// Returns the string with its references replaced; `None` if it has none.
    fn replace(&mut self, text: &str) -> Result<Option<String>, (String, String)> {
        let (mut out, mut rest, mut is_changed) = (String::new(), text, false);
        while let Some((before, reference, after)) = next(rest) {
            let value = (self.lookup)(reference).map_err(|refusal| {
                let found = shown_text(&rest[before.len()..rest.len() - after.len()]);
                ("a reference that is allowed".to_owned(), format!("{found}, which is refused: {refusal}"))
            })?;
            let value = match reference {
                Reference::Env(_) => value.as_str(),
                Reference::File(_) => value.trim(),
            };
            let bytes = self.bytes.saturating_add(value.len());
            if bytes > SETTINGS_BYTES_MAX {
                return Err((format!("at most {SETTINGS_BYTES_MAX} bytes in all"), "more".to_owned()));
            }
            if value.contains('\0') {
                let found = "NUL in the replacement of a reference".to_owned();
                return Err(("a text without NUL".to_owned(), found));
            }
            self.bytes = bytes;
            out.push_str(before);
            out.push_str(value);
            (rest, is_changed) = (after, true);
        }
        out.push_str(rest);
        Ok(is_changed.then_some(out))
    }
}
