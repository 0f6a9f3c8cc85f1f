//! The modules of each crate form floors: a module imports only modules below it, without circles, and does not import a
//! child of another module that contains code. A module is a file; tests next to the code do not count.

use crate::{conclude, files, modules::Module};
use std::collections::{BTreeMap, BTreeSet};

/// The path of a module from the root of its crate. The path of the root is empty.
type Path = Vec<String>;

/// The imports between the modules of one crate.
struct Graph {
    /// The directory of the crate.
    name: String,
    arrows: BTreeMap<Path, BTreeSet<Path>>,
    /// Modules that only declare others.
    groups: BTreeSet<Path>,
}

impl Graph {
    fn new(name: &str, modules: &[Module]) -> Self {
        let paths: BTreeSet<&Path> = modules.iter().map(|module| &module.path).collect();
        let groups = modules.iter().filter(|module| module.is_group).map(|module| module.path.clone());
        let groups: BTreeSet<Path> = groups.collect();
        let mut arrows = BTreeMap::new();
        for module in modules {
            let targets = module.imports.iter().filter_map(|import| resolve(&module.path, import, &paths));
            let targets = targets.filter(|target| *target != module.path && !groups.contains(target));
            arrows.insert(module.path.clone(), targets.collect());
        }
        Self { name: name.to_owned(), arrows, groups }
    }

    /// Finds the sets of modules that import each other, directly or not.
    fn circles(&self) -> Vec<BTreeSet<&Path>> {
        let mut circles: Vec<BTreeSet<&Path>> = vec![];
        for module in self.arrows.keys() {
            let below = self.below(module);
            if circles.iter().all(|circle| !circle.contains(module)) && below.contains(module) {
                circles.push(below.into_iter().filter(|other| self.below(other).contains(module)).collect());
            }
        }
        circles
    }

    /// Lists the modules that a module imports, directly or not.
    fn below<'a>(&'a self, module: &'a Path) -> BTreeSet<&'a Path> {
        let (mut below, mut open) = (BTreeSet::new(), vec![module]);
        while let Some(next) = open.pop() {
            open.extend(self.arrows[next].iter().filter(|target| below.insert(*target)));
        }
        below
    }

    /// Lists the imports of a module whose parent contains code, from outside that parent.
    fn entries_past_a_parent(&self) -> Vec<(&Path, &Path)> {
        let arrows = self.arrows.iter().flat_map(|(from, targets)| targets.iter().map(move |to| (from, to)));
        let is_past = |(from, to): &(&Path, &Path)| {
            let mut parents = (1..to.len()).map(|length| to[..length].to_vec());
            parents.any(|parent| !self.groups.contains(&parent) && !from.starts_with(&parent))
        };
        arrows.filter(is_past).collect()
    }

    fn complaints(&self) -> Vec<String> {
        let circles = self.circles().into_iter().map(|circle| {
            let names: Vec<_> = circle.into_iter().map(display).collect();
            format!("{}: a circle of imports: {}", self.name, names.join(", "))
        });
        let entries = self.entries_past_a_parent().into_iter();
        let entries =
            entries.map(|(from, to)| format!("{}: {} imports {}", self.name, display(from), display(to)));
        circles.chain(entries).collect()
    }
}

/// Resolves a path in the module `from`; `None` for a path to another crate.
fn resolve(from: &Path, import: &[String], paths: &BTreeSet<&Path>) -> Option<Path> {
    let (mut at, mut rest): (Path, &[String]) = match import.first()?.as_str() {
        "crate" => (vec![], &import[1..]),
        "self" => (from.clone(), &import[1..]),
        "super" => (from.clone(), import),
        first if paths.contains(&[from.as_slice(), &[first.to_owned()]].concat()) => (from.clone(), import),
        _ => return None,
    };
    while rest.first().is_some_and(|segment| segment == "super") {
        at.pop()?;
        rest = &rest[1..];
    }
    for segment in rest {
        at.push(segment.clone());
        if !paths.contains(&at) {
            at.pop();
            break;
        }
    }
    Some(at)
}

fn display(path: &Path) -> String {
    if path.is_empty() { "lib".to_owned() } else { path.join("::") }
}

#[test]
fn modules_form_floors() {
    let mut crates: BTreeMap<String, Vec<Module>> = BTreeMap::new();
    for file in files() {
        let Some((name, path)) = file.path.split_once("/src/") else { continue };
        if let Some(module) = Module::parse(path, &file.text) {
            crates.entry(name.to_owned()).or_default().push(module);
        }
    }
    let graphs: Vec<_> = crates.iter().map(|(name, modules)| Graph::new(name, modules)).collect();
    let complaints: Vec<_> = graphs.iter().flat_map(Graph::complaints).collect();
    conclude(crates.values().map(Vec::len).sum(), &complaints);
}

/// A folder with many files should be divided into groups.
#[test]
fn folders_are_small() {
    const FILES_MAX: usize = 15;
    let mut folders: BTreeMap<String, usize> = BTreeMap::new();
    let is_module = |file: &&crate::File| {
        file.path.contains("/src/") && file.has_extension("rs") && file.name() != "tests.rs"
    };
    for file in files().iter().filter(is_module) {
        let (folder, _) = file.path.rsplit_once('/').unwrap();
        *folders.entry(folder.to_owned()).or_default() += 1;
    }
    let large = folders.iter().filter(|(_, count)| **count > FILES_MAX);
    let complaints: Vec<_> = large.map(|(folder, count)| format!("{folder} has {count} files")).collect();
    conclude(folders.len(), &complaints);
}

#[test]
fn circles_and_entries_past_a_parent_are_reported() {
    let module = |path: &str, text: &str| Module::parse(path, text).unwrap();
    let complaints = |modules: &[(&str, &str)]| {
        let modules: Vec<_> = modules.iter().map(|(path, text)| module(path, text)).collect();
        Graph::new("x", &modules).complaints()
    };
    let clean = [
        ("lib.rs", "mod a; mod group;"),
        ("a.rs", "use crate::group::leaf::Leaf; fn f(_: Leaf) {}"),
        ("group.rs", "//! A group.\npub mod leaf; mod other;"),
        ("group/leaf.rs", "pub struct Leaf;"),
        ("group/other.rs", "use super::leaf::Leaf; #[cfg(test)] mod tests { use crate::a; }"),
    ];
    assert_eq!(complaints(&clean), Vec::<String>::new());
    let circle =
        [("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b;"), ("b.rs", "fn f() { crate::a::g() }")];
    assert_eq!(complaints(&circle), ["x: a circle of imports: a, b"]);
    let family = [("lib.rs", "mod a;"), ("a.rs", "mod b; fn f() { b::g() }"), ("a/b.rs", "use super::f;")];
    assert_eq!(complaints(&family), ["x: a circle of imports: a, a::b"]);
    let aunt = [
        ("lib.rs", "mod a; mod aunt;"),
        ("a.rs", "mod b; fn code() {}"),
        ("a/b.rs", "pub fn g() {}"),
        ("aunt.rs", "use crate::{a::{b::g}};"),
    ];
    assert_eq!(complaints(&aunt), ["x: aunt imports a::b"]);
}
