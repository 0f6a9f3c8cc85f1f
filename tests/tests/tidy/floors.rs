//! The modules of each crate form floors: a module imports only modules below it, without circles, and does not import a
//! child of another module that contains code. A module is a file; tests next to the code do not count.
//!
//! The rooms of each folder form floors as well. A room is a folder together with the file of its name, or a file without a folder. So whoever knows one
//! file of a room knows on which side of it every other room stands.

use crate::{conclude, files, modules::Module};
use std::collections::{BTreeMap, BTreeSet};

/// The path of a module from the root of its crate. The path of the root is empty.
type Path = Vec<String>;

/// Who imports whom.
type Arrows = BTreeMap<Path, BTreeSet<Path>>;

/// The imports between the modules of one crate.
struct Graph {
    /// The directory of the crate.
    name: String,
    arrows: Arrows,
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

    /// The imports between rooms of the same folder. A module and its own children share a room there.
    fn arrows_of_rooms(&self) -> Arrows {
        let mut rooms = Arrows::new();
        for (from, to) in self.arrows() {
            let shared = from.iter().zip(to).take_while(|(from, to)| from == to).count();
            if let (Some(from), Some(to)) = (from.get(..=shared), to.get(..=shared)) {
                rooms.entry(from.to_vec()).or_default().insert(to.to_vec());
            }
        }
        rooms
    }

    fn arrows(&self) -> impl Iterator<Item = (&Path, &Path)> {
        self.arrows.iter().flat_map(|(from, targets)| targets.iter().map(move |to| (from, to)))
    }

    /// Lists the imports of a module whose parent contains code, from outside that parent.
    fn entries_past_a_parent(&self) -> Vec<(&Path, &Path)> {
        let is_past = |(from, to): &(&Path, &Path)| {
            let mut parents = (1..to.len()).map(|length| to[..length].to_vec());
            parents.any(|parent| !self.groups.contains(&parent) && !from.starts_with(&parent))
        };
        self.arrows().filter(is_past).collect()
    }

    fn complaints(&self) -> Vec<String> {
        let (rooms, of_imports) = (self.arrows_of_rooms(), circles(&self.arrows));
        let mut of_rooms = circles(&rooms);
        // Of files without folders, the circle of imports says it all.
        of_rooms.retain(|circle| !of_imports.contains(circle));
        let text = |kind: &str, circle: BTreeSet<&Path>| {
            let names: Vec<_> = circle.into_iter().map(display).collect();
            format!("{}: a circle of {kind}: {}", self.name, names.join(", "))
        };
        let of_rooms = of_rooms.into_iter().map(|circle| text("rooms", circle));
        let circles = of_imports.into_iter().map(|circle| text("imports", circle)).chain(of_rooms);
        let entries = self.entries_past_a_parent().into_iter();
        let entries =
            entries.map(|(from, to)| format!("{}: {} imports {}", self.name, display(from), display(to)));
        circles.chain(entries).collect()
    }
}

/// Finds the sets of modules or rooms that import each other, directly or not.
fn circles(arrows: &Arrows) -> Vec<BTreeSet<&Path>> {
    let mut circles: Vec<BTreeSet<&Path>> = vec![];
    for module in arrows.keys() {
        let under = below(arrows, module);
        if circles.iter().all(|circle| !circle.contains(module)) && under.contains(module) {
            circles.push(under.into_iter().filter(|other| below(arrows, other).contains(module)).collect());
        }
    }
    circles
}

/// Lists what a module or a room imports, directly or not.
fn below<'a>(arrows: &'a Arrows, module: &'a Path) -> BTreeSet<&'a Path> {
    let (mut below, mut open) = (BTreeSet::new(), vec![module]);
    while let Some(next) = open.pop() {
        let targets = arrows.get(next).into_iter().flatten();
        open.extend(targets.filter(|target| below.insert(*target)));
    }
    below
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
    // No two files import each other, but the two folders do.
    let rooms = [
        ("lib.rs", "mod left; mod right;"),
        ("left.rs", "//! A group.\npub mod one; pub mod two;"),
        ("left/one.rs", "use crate::right::one::f;"),
        ("left/two.rs", "pub fn g() {}"),
        ("right.rs", "//! A group.\npub mod one; mod two;"),
        ("right/one.rs", "pub fn f() {}"),
        ("right/two.rs", "use crate::left::two::g;"),
    ];
    assert_eq!(complaints(&rooms), ["x: a circle of rooms: left, right"]);
    // The same one floor deeper, and a file of its own is a room as well.
    let deep = [
        ("lib.rs", "mod a;"),
        ("a.rs", "//! A group.\nmod file; mod room;"),
        ("a/file.rs", "use super::room::leaf::f; pub fn g() {}"),
        ("a/room.rs", "//! A group.\npub mod leaf; mod other;"),
        ("a/room/leaf.rs", "pub fn f() {}"),
        ("a/room/other.rs", "fn h() { crate::a::file::g() }"),
    ];
    assert_eq!(complaints(&deep), ["x: a circle of rooms: a::file, a::room"]);
}
