//! The store: tests call every function on a real Postgres, and migrations are numbered.

use crate::{conclude, files, find_word};

#[test]
fn every_store_function_is_called_by_a_test() {
    let files = files();
    let tests: String =
        files.iter().filter(|file| file.is_in("crates/store/tests")).map(|file| file.text.as_str()).collect();
    let sources = files.iter().filter(|file| file.is_in("crates/store/src"));
    let names: Vec<_> = sources.flat_map(|file| functions(&file.text)).collect();
    let untested = names.iter().filter(|name| find_word(&tests, name).is_none());
    let complaints: Vec<_> = untested.map(|name| format!("no test of the store calls {name}")).collect();
    conclude(names.len(), &complaints);
}

fn functions(text: &str) -> Vec<&str> {
    let after = text.split("pub async fn ").skip(1);
    after.map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap()).collect()
}

#[test]
fn functions_are_found() {
    assert_eq!(
        functions("pub async fn get_it(&self) {}\n  pub async fn put<T>(t: T) {}\nfn other() {}"),
        ["get_it", "put"]
    );
}

#[test]
fn migrations_are_numbered_without_a_gap() {
    let (mut complaints, mut checked) = (vec![], 0);
    for file in files().iter().filter(|file| file.is_in("migrations")) {
        checked += 1;
        let (number, name) = file.name().split_once('_').unwrap_or_default();
        let is_named = name.ends_with(".sql")
            && name.trim_end_matches(".sql").bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        if number != format!("{checked:04}") || !is_named {
            complaints.push(format!("{} is not {checked:04}_name.sql", file.path));
        }
    }
    conclude(checked, &complaints);
}
