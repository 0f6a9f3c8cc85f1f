//! Signatures and names of types.

use crate::{conclude, files, modules};
use syn::{
    FnArg, Ident, ItemEnum, ItemStruct, ItemType, Signature, Type,
    visit::{self, Visit},
};

/// Words that are not nouns of the field, or that are too general.
const NOT_NAMES: [&str; 32] = [
    "Asked", "Told", "Said", "Heard", "Known", "Taken", "Lacking", "Wanted", "Shown", "Found", "Seen",
    "Given", "Made", "Done", "Held", "Looked", "Awaited", "Answered", "Accepted", "Refused", "Written",
    "Parked", "Aborted", "Stopped", "Whose", "What", "Which", "Who", "Place", "End", "Wish", "Thing",
];

/// Checks every type and signature of a file.
struct Shapes<'a> {
    path: &'a str,
    checked: usize,
    complaints: Vec<String>,
}

impl Shapes<'_> {
    fn name(&mut self, name: &Ident) {
        self.checked += 1;
        if NOT_NAMES.iter().any(|word| name == word) {
            self.complaints.push(format!("{}: {name} is not a noun of the field", self.path));
        }
    }
}

impl<'ast> Visit<'ast> for Shapes<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let is_test = matches!(item, syn::Item::Mod(item) if modules::is_for_tests(&item.attrs));
        if !is_test {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.name(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.name(&item.ident);
    }

    fn visit_item_type(&mut self, item: &'ast ItemType) {
        self.name(&item.ident);
    }

    fn visit_signature(&mut self, signature: &'ast Signature) {
        self.checked += 1;
        let is_tuple = |argument: &FnArg| match argument {
            FnArg::Typed(argument) => is_tuple(&argument.ty),
            FnArg::Receiver(_) => false,
        };
        if signature.inputs.iter().any(is_tuple) {
            self.complaints.push(format!("{}: {} takes a tuple", self.path, signature.ident));
        }
        visit::visit_signature(self, signature);
    }
}

/// Returns whether a type is a tuple. A tuple hides several parameters; a struct names them.
fn is_tuple(kind: &Type) -> bool {
    match kind {
        Type::Tuple(tuple) => tuple.elems.len() > 1,
        Type::Reference(reference) => is_tuple(&reference.elem),
        Type::Paren(inner) => is_tuple(&inner.elem),
        _ => false,
    }
}

fn check(path: &str, text: &str) -> (usize, Vec<String>) {
    let mut shapes = Shapes { path, checked: 0, complaints: vec![] };
    shapes.visit_file(&modules::parse(path, text));
    (shapes.checked, shapes.complaints)
}

#[test]
fn types_are_nouns_and_parameters_have_names() {
    let (mut checked, mut complaints) = (0, vec![]);
    for file in files().iter().filter(|file| file.has_extension("rs")) {
        if file.path.contains("/src/") && !file.path.contains("/tests") {
            let (more, found) = check(&file.path, &file.text);
            checked += more;
            complaints.extend(found);
        }
    }
    conclude(checked, &complaints);
}

#[test]
fn pronouns_and_tuples_are_reported() {
    let text = "struct Asked; enum Kind { A } fn f(a: &(u8, u8)) {} fn g(a: (), b: u8) {} impl Kind { fn h((a, b): (u8, u8)) {} }";
    let want = ["x: Asked is not a noun of the field", "x: f takes a tuple", "x: h takes a tuple"];
    assert_eq!(check("x", text).1, want);
}
