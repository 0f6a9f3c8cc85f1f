//! Reads values of a tree and collects the mistakes. It continues after each mistake, so that people see all mistakes of a file
//! at once.

use crate::{
    node::{Content, KeyPath, Member, Node, Origin, Step},
    problem::{Problem, Problems, shown, shown_text},
};
use domain::limits::NAME_BYTES_MAX;

/// A value that has no effect in Flotilla.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    pub path: KeyPath,
    pub origin: Origin,
}

/// One pass over a tree.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) path: KeyPath,
    pub(crate) problems: Problems,
    pub(crate) ignored: Vec<Ignored>,
}

/// A list of texts, as mistakes name it.
pub(crate) struct TextList<'a> {
    /// What the list is: "a list of hosts".
    pub(crate) kind: &'a str,
    /// What it has: "hosts".
    pub(crate) items: &'a str,
    /// How many of them it may have.
    pub(crate) most: usize,
    pub(crate) expected: &'a str,
}

impl Reader {
    /// Reads a whole number; `2.0` is one, as in JavaScript.
    pub(crate) fn whole(&mut self, node: &Node, least: u64, most: u64) -> Option<u64> {
        // Above 2^53 a float is not exact.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
        let of_fraction = |value: f64| {
            (value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&value)).then_some(value as u64)
        };
        let number = node.as_number();
        let whole = number.and_then(|it| it.as_u64().or_else(|| it.as_f64().and_then(of_fraction)));
        let fits = whole.filter(|number| (least..=most).contains(number));
        if fits.is_none() {
            let range =
                if most == u64::MAX { format!("from {least}") } else { format!("from {least} to {most}") };
            self.expected(node, &format!("a whole number {range}"));
        }
        fits
    }

    pub(crate) fn number(&mut self, node: &Node) -> Option<f64> {
        let number =
            node.as_number().and_then(serde_json::Number::as_f64).filter(|number| number.is_finite());
        if number.is_none() {
            self.expected(node, "a number");
        }
        number
    }

    pub(crate) fn flag(&mut self, node: &Node) -> Option<bool> {
        if let Content::Bool(value) = node.value {
            return Some(value);
        }
        self.expected(node, "true or false");
        None
    }

    pub(crate) fn text(&mut self, node: &Node) -> Option<String> {
        if let Content::Text { text, .. } = &node.value {
            return Some(text.clone());
        }
        self.expected(node, "a text");
        None
    }

    /// Reads a list of texts. The result has those that `is_valid` accepts.
    pub(crate) fn texts(
        &mut self,
        node: &Node,
        list: &TextList<'_>,
        is_valid: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let Content::List(items) = &node.value else {
            self.expected(node, list.kind);
            return vec![];
        };
        self.at_most(node, items.len(), list.most, list.items);
        let mut texts = vec![];
        for (at, item) in items.iter().enumerate() {
            self.path.0.push(Step::Item(at));
            match self.text(item) {
                Some(text) if !is_valid(&text) => self.expected(item, list.expected),
                text => texts.extend(text),
            }
            self.path.0.pop();
        }
        texts
    }

    /// Checks that the key of `entry` can be a name.
    pub(crate) fn name(&mut self, entry: &Member) -> bool {
        let is_name =
            (1..=NAME_BYTES_MAX).contains(&entry.key.len()) && !entry.key.contains(char::is_control);
        if !is_name {
            let expected = format!("a name of 1 to {NAME_BYTES_MAX} bytes");
            self.problem(&entry.origin, &expected, &shown_text(&entry.key));
        }
        is_name
    }

    /// Visits the members of an object, each with its path. Reports a mistake if the value is not an object.
    pub(crate) fn fields<'n>(&mut self, node: &'n Node, mut each: impl FnMut(&mut Self, &'n Member)) {
        let Content::Map(entries) = &node.value else {
            self.expected(node, "an object");
            return;
        };
        for entry in entries {
            self.path.0.push(Step::Key(entry.key.clone()));
            each(self, entry);
            self.path.0.pop();
        }
    }

    pub(crate) fn ignore(&mut self, entry: &Member) {
        self.ignored.push(Ignored { path: self.path.clone(), origin: entry.origin.clone() });
    }

    pub(crate) fn unknown(&mut self, entry: &Member, keys: &[&str]) {
        self.problem(&entry.origin, &format!("one of {}", keys.join(", ")), "an unknown key");
    }

    pub(crate) fn at_most(&mut self, node: &Node, count: usize, most: usize, what: &str) {
        if count > most {
            self.problem(&node.origin, &format!("at most {most} {what}"), &count.to_string());
        }
    }

    pub(crate) fn expected(&mut self, node: &Node, expected: &str) {
        self.problem(&node.origin, expected, &shown(node));
    }

    pub(crate) fn problem(&mut self, origin: &Origin, expected: &str, found: &str) {
        self.problems.push(Problem {
            origin: origin.clone(),
            path: self.path.clone(),
            expected: expected.to_owned(),
            found: found.to_owned(),
        });
    }
}
