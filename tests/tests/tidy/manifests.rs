//! The import matrix of ARCHITECTURE.md, checked against the manifests.

use crate::{conclude, files, find_word, root};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

/// The crates that each crate may use, by directory. `tests` may use all crates.
const MATRIX: [(&str, &[&str]); 25] = [
    ("crates/domain", &[]),
    ("crates/settings", &["domain"]),
    ("crates/wire", &["domain", "settings"]),
    ("crates/rpc", &["wire"]),
    ("crates/sandbox-wire", &["wire"]),
    ("crates/sandbox-init", &["domain", "settings", "wire", "sandbox-wire"]),
    ("crates/shares", &[]),
    ("crates/convert-client", &["domain", "shares"]),
    ("crates/process-walls", &[]),
    ("crates/convert", &["domain", "convert-client", "process-walls"]),
    ("crates/unpack", &["domain", "process-walls"]),
    ("crates/walled-git", &["process-walls"]),
    ("crates/store", &["domain", "shares"]),
    ("crates/bus", &["domain"]),
    ("crates/llm", &["domain"]),
    ("crates/chassis", &["domain"]),
    ("crates/local", &[]),
    ("crates/model-script", &[]),
    ("crates/testkit", &["domain", "rpc", "local", "model-script"]),
    (
        "services/gateway",
        &["domain", "settings", "rpc", "store", "bus", "chassis", "shares", "convert-client"],
    ),
    ("services/worker", &["domain", "settings", "rpc", "store", "bus", "llm", "chassis", "convert-client"]),
    ("services/sandbox", &["domain", "rpc", "sandbox-wire", "chassis", "shares"]),
    // Of the store only its own tables: `broker`.
    ("services/broker", &["domain", "rpc", "store", "chassis", "shares"]),
    (
        "cli",
        &[
            "domain",
            "settings",
            "rpc",
            "chassis",
            "local",
            "model-script",
            "gateway",
            "worker",
            "sandbox",
            "broker",
        ],
    ),
    ("tests", ALL),
];
/// All crates of the workspace. The package of the command line is called `flotilla`.
const ALL: &[&str] = &[
    "domain",
    "settings",
    "wire",
    "rpc",
    "sandbox-wire",
    "sandbox-init",
    "shares",
    "convert-client",
    "process-walls",
    "convert",
    "unpack",
    "walled-git",
    "store",
    "bus",
    "llm",
    "chassis",
    "local",
    "model-script",
    "testkit",
    "flotilla",
    "gateway",
    "worker",
    "sandbox",
    "broker",
    "e2e",
];
/// Further crates that tests may use.
const FOR_TESTS: [&str; 3] = ["testkit", "local", "model-script"];
/// External crates with an owner.
const OWNERS: [(&str, &[&str]); 30] = [
    ("deadpool", &["crates/store"]),
    ("sqlx", &["crates/store", "crates/testkit", "tests"]),
    ("postgres-protocol", &["crates/store"]),
    ("jsonc-parser", &["crates/settings"]),
    ("saphyr-parser", &["crates/settings"]),
    ("percent-encoding", &["crates/domain"]),
    ("indicatif", &["cli"]),
    ("async-nats", &["crates/bus"]),
    ("redis", &["crates/bus"]),
    ("reqwest", &["crates/llm", "crates/chassis", "crates/testkit", "cli", "services/broker", "tests"]),
    ("oci-spec", &["services/broker"]),
    ("http-auth", &["services/broker"]),
    ("http-body", &["services/gateway"]),
    ("hyper", &["crates/chassis", "services/broker"]),
    ("hyper-util", &["crates/chassis", "services/broker"]),
    ("tokio-tungstenite", &["tests"]),
    ("tokio-rustls", &["crates/chassis", "crates/testkit"]),
    ("rcgen", &["crates/testkit"]),
    // What converts foreign content stays out of the processes that hold keys. The worker checks its own schemas only.
    ("html2text", &["crates/convert"]),
    ("jsonschema", &["crates/convert", "services/worker", "tests"]),
    ("seccompiler", &["services/sandbox", "crates/process-walls"]),
    // Archives are foreign content too. The sandbox makes some in its tests.
    ("tar", &["crates/unpack", "services/sandbox"]),
    ("httparse", &["services/broker"]),
    ("aws-lc-rs", &["services/broker"]),
    ("flate2", &["crates/unpack", "services/sandbox"]),
    ("zstd", &["crates/unpack"]),
    ("similar", &["crates/convert"]),
    ("tree-sitter", &["crates/convert"]),
    ("tree-sitter-bash", &["crates/convert"]),
    ("axum", &["services/gateway", "crates/chassis", "crates/model-script", "crates/testkit"]),
];

/// Lists the dependencies of one kind in a manifest, including those under `[target.…]`.
fn names(manifest: &toml::Table, kind: &str) -> BTreeSet<String> {
    let targets = manifest.get("target").and_then(toml::Value::as_table).into_iter().flatten();
    let tables = targets.filter_map(|(_, target)| target.as_table()).chain([manifest]);
    let dependencies = tables.filter_map(|table| table.get(kind)?.as_table());
    dependencies.flat_map(|table| table.keys().cloned()).collect()
}

/// Reads the manifest of each member, by directory.
fn manifests() -> BTreeMap<String, toml::Table> {
    let workspace: toml::Table =
        toml::from_str(&fs::read_to_string(root().join("Cargo.toml")).unwrap()).unwrap();
    let mut dirs = vec![];
    for member in workspace["workspace"]["members"].as_array().unwrap() {
        let member = member.as_str().unwrap();
        match member.strip_suffix("/*") {
            None => dirs.push(member.to_owned()),
            Some(parent) => {
                let entries = fs::read_dir(root().join(parent)).unwrap();
                dirs.extend(
                    entries.map(|entry| format!("{parent}/{}", entry.unwrap().file_name().to_str().unwrap())),
                );
            }
        }
    }
    let read = |dir: String| {
        let text = fs::read_to_string(root().join(&dir).join("Cargo.toml")).unwrap();
        (dir, toml::from_str(&text).unwrap())
    };
    dirs.into_iter().map(read).collect()
}

#[test]
fn crates_use_only_what_the_matrix_allows() {
    let (manifests, mut complaints) = (manifests(), vec![]);
    let listed: BTreeSet<&str> = MATRIX.iter().map(|(dir, _)| *dir).collect();
    let present: BTreeSet<&str> = manifests.keys().map(String::as_str).collect();
    assert_eq!(listed, present, "the matrix names exactly the crates of the workspace");
    for (dir, allowed) in MATRIX {
        for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
            for name in names(&manifests[dir], kind).iter().filter(|name| ALL.contains(&name.as_str())) {
                let is_for_tests = kind == "dev-dependencies" && FOR_TESTS.contains(&name.as_str());
                if !allowed.contains(&name.as_str()) && !is_for_tests {
                    complaints.push(format!("{dir} has {name} in its {kind}"));
                }
            }
        }
    }
    conclude(manifests.len(), &complaints);
}

#[test]
fn external_crates_are_used_only_by_their_owners() {
    let (manifests, mut complaints, mut checked) = (manifests(), vec![], 0);
    for (external, owners) in OWNERS {
        for (dir, manifest) in &manifests {
            let is_used = ["dependencies", "build-dependencies", "dev-dependencies"]
                .iter()
                .any(|kind| names(manifest, kind).contains(external));
            if is_used && owners.contains(&dir.as_str()) {
                checked += 1;
            } else if is_used {
                complaints.push(format!("{dir} uses {external}, which belongs to {}", owners.join(", ")));
            }
        }
    }
    conclude(checked, &complaints);
}

/// Each sandbox has an init of its own, so the init stays small: nothing that it builds on brings a runtime, a protocol
/// stack or TLS.
#[test]
fn the_init_has_no_runtime_and_no_network_code() {
    const BANNED: [&str; 7] = ["tokio", "tonic", "hyper", "h2", "rustls", "tracing", "sqlx"];
    let lock: toml::Table = toml::from_str(&fs::read_to_string(root().join("Cargo.lock")).unwrap()).unwrap();
    let packages = lock["package"].as_array().unwrap().iter().filter_map(toml::Value::as_table);
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        let dependencies = package.get("dependencies").and_then(toml::Value::as_array).into_iter().flatten();
        // With two versions of a crate, the version follows its name.
        let names = dependencies.filter_map(|name| name.as_str()?.split(' ').next());
        uses.entry(package["name"].as_str().unwrap()).or_default().extend(names);
    }
    let (mut below, mut open) = (BTreeSet::new(), vec!["sandbox-init"]);
    while let Some(next) = open.pop() {
        open.extend(uses[next].iter().filter(|name| below.insert(**name)));
    }
    let banned = BANNED.iter().filter(|name| below.contains(**name));
    let complaints: Vec<_> = banned.map(|name| format!("sandbox-init builds on {name}")).collect();
    conclude(below.len(), &complaints);
}

/// A schema of a client may need any time, so `flotilla-convert` checks it. The worker itself only knows those of its tools.
#[test]
fn a_service_checks_no_schema_of_a_client() {
    const OWN: &str = "services/worker/src/tools/registry.rs";
    let files = files();
    let sources: Vec<_> =
        files.iter().filter(|file| file.is_in("services") && file.has_extension("rs")).collect();
    let uses =
        sources.iter().filter(|file| find_word(&file.text, "jsonschema").is_some() && file.path != OWN);
    let complaints: Vec<_> = uses.map(|file| format!("{} checks schemas", file.path)).collect();
    conclude(sources.len(), &complaints);
}

/// A dependency that no source names makes every build longer.
#[test]
fn every_dependency_is_used() {
    /// Named only by generated code.
    const GENERATED: [(&str, &str); 2] = [("crates/wire", "prost"), ("crates/wire", "prost-types")];
    let (manifests, mut complaints, mut checked) = (manifests(), vec![], 0);
    let sources: Vec<_> = files().into_iter().filter(|file| file.has_extension("rs")).collect();
    for (dir, manifest) in &manifests {
        let own: Vec<_> = sources.iter().filter(|file| file.is_in(dir)).collect();
        for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
            for name in names(manifest, kind) {
                checked += 1;
                let word = name.replace('-', "_");
                let is_used = own.iter().any(|file| find_word(&file.text, &word).is_some());
                if !is_used && !GENERATED.contains(&(dir.as_str(), name.as_str())) {
                    complaints.push(format!("{dir} does not use {name}, one of its {kind}"));
                }
            }
        }
    }
    conclude(checked, &complaints);
}

#[test]
fn versions_are_only_in_the_workspace_manifest() {
    let (manifests, mut complaints, mut checked) = (manifests(), vec![], 0);
    for (dir, manifest) in &manifests {
        for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
            let Some(table) = manifest.get(kind).and_then(toml::Value::as_table) else { continue };
            for (name, value) in table {
                checked += 1;
                if value.get("workspace").and_then(toml::Value::as_bool) != Some(true) {
                    complaints.push(format!("{dir}: {name} does not inherit its version from the workspace"));
                }
            }
        }
    }
    conclude(checked, &complaints);
}
