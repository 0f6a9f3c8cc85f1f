//! The imports of a source file, according to its syntax.

use std::collections::BTreeMap;
use syn::{
    Attribute, File, Ident, Item, ItemUse, Path, UseTree,
    visit::{self, Visit},
};

/// A Rust file as a module of its crate.
pub(crate) struct Module {
    /// Its names from the root of the crate.
    pub(crate) path: Vec<String>,
    /// Paths that may lead to other modules of the crate, as written in the file.
    pub(crate) imports: Vec<Vec<String>>,
    /// Whether it only declares other modules.
    pub(crate) is_group: bool,
}

impl Module {
    /// Reads the file at `path`, below `src`. `None` for tests and for programs, which are separate crates.
    pub(crate) fn parse(path: &str, text: &str) -> Option<Self> {
        let mut names: Vec<String> = path.strip_suffix(".rs")?.split('/').map(ToOwned::to_owned).collect();
        if names.iter().any(|name| name == "tests") || names[0] == "bin" {
            return None;
        }
        if names == ["lib"] || names == ["main"] {
            names.clear();
        }
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let is_group =
            file.items.iter().all(|item| matches!(item, Item::Mod(inner) if inner.content.is_none()));
        let mut imports = Imports::default();
        imports.visit_file(&file);
        Some(Self { path: names, imports: imports.resolved(), is_group })
    }
}

/// Collects the paths of a file.
#[derive(Default)]
struct Imports {
    /// The paths in `use` declarations.
    declared: Vec<Vec<String>>,
    /// The names that these declarations introduce.
    names: BTreeMap<String, Vec<String>>,
    used: Vec<Vec<String>>,
}

impl Imports {
    fn collect(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: &Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.collect(&path.tree, &with(&path.ident)),
            UseTree::Name(name) if name.ident == "self" => {
                self.declare(before.to_vec(), before.last().cloned())
            }
            UseTree::Name(name) => self.declare(with(&name.ident), Some(name.ident.to_string())),
            UseTree::Rename(name) => self.declare(with(&name.ident), Some(name.rename.to_string())),
            UseTree::Glob(_) => self.declare(before.to_vec(), None),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.collect(tree, before)),
        }
    }

    fn declare(&mut self, path: Vec<String>, name: Option<String>) {
        self.names.extend(name.map(|name| (name, path.clone())));
        self.declared.push(path);
    }

    /// Returns all paths, with imported names expanded.
    fn resolved(self) -> Vec<Vec<String>> {
        let Self { declared, names, used } = self;
        let expanded = used.into_iter().map(|path| match names.get(&path[0]) {
            Some(declared) => [declared, &path[1..]].concat(),
            None => path,
        });
        let mut all: Vec<_> = expanded.collect();
        all.extend(declared);
        all
    }
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.collect(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.segments.len() > 1 {
            self.used.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns whether an item is compiled only for tests.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Meta>().is_ok_and(|meta| is_test(&meta))
    })
}

fn is_test(meta: &syn::Meta) -> bool {
    match meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("all") => {
            let inner = list
                .parse_args_with(syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated);
            inner.is_ok_and(|inner| inner.iter().any(is_test))
        }
        syn::Meta::List(_) | syn::Meta::NameValue(_) => false,
    }
}

/// Parses a file for another rule.
pub(crate) fn parse(path: &str, text: &str) -> File {
    syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"))
}
