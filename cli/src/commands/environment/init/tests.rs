//! What `env init` writes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;

/// A repository with these files, and what `env init` writes for it.
fn written(files: &[(&str, &str)], stacks: &[&str]) -> Result<(String, Value)> {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    Git::at(root).run(&["init", "--quiet"]).unwrap();
    for (file, text) in files {
        fs::write(root.join(file), text).unwrap();
    }
    let stack = stacks.iter().map(ToString::to_string).collect();
    run(&Output::kept(false), &InitArgs { repo: root.to_owned(), stack })?;
    let text = fs::read_to_string(root.join(proposal::FILE)).unwrap();
    let proposal = proposal::find(&[(proposal::FILE, &text)]).unwrap().unwrap();
    let mut document: Value = serde_json::from_str(&proposal.document).unwrap();
    Ok((text, document["environment"].take()))
}

#[test]
fn every_stack_makes_a_file_that_proposes_an_environment() {
    assert_eq!((STACKS.len(), LANGUAGES.len()), (15, 6));
    for stack in STACKS.iter() {
        let (text, environment) = written(&[], &[&stack.name]).unwrap();
        let image = environment["image"].as_str().unwrap();
        assert_eq!(image == DEBIAN_IMAGE, stack.image.is_none(), "{text}");
        assert!(!text.contains('{') && text.contains("apt-get install"), "{text}");
        assert_eq!(environment["network"]["allow"], json!(stack.hosts));
        assert_eq!(environment.get("setup").is_some(), stack.image.is_none(), "{text}");
    }
}

#[test]
fn several_languages_share_one_file_and_two_lock_files_of_one_are_not_guessed() {
    let files = [
        ("package-lock.json", "{}"),
        ("Cargo.lock", ""),
        ("pyproject.toml", "[project]\nrequires-python = '>=3.9'\n"),
        ("Makefile", "all:\n"),
    ];
    let (text, environment) = written(&files, &[]).unwrap();
    assert_eq!(environment["image"], DEBIAN_IMAGE, "{text}");
    let (setup, install) = (environment["setup"].as_str().unwrap(), environment["install"].as_str().unwrap());
    for part in ["npm", "cargo-web", "python3-venv"] {
        assert!(setup.contains(part), "{part}: {setup}");
    }
    for part in ["npm ci\n", "cargo fetch --locked", "pip install --no-cache-dir -e ."] {
        assert!(install.contains(part), "{part}: {install}");
    }
    let hosts = json!(["preset:crates", "preset:debian", "preset:npm", "preset:pypi"]);
    assert_eq!(environment["network"]["setup"], hosts);
    let several = written(&[("package-lock.json", "{}"), ("yarn.lock", "")], &[]).unwrap_err().to_string();
    assert!(several.contains("npm (package-lock.json), yarn (yarn.lock); choose one"), "{several}");
    let (_, environment) = written(&[("package-lock.json", "{}"), ("yarn.lock", "")], &["yarn"]).unwrap();
    assert_eq!(environment["install"], "yarn install --frozen-lockfile\n");
    assert!(written(&[], &["maek"]).unwrap_err().to_string().contains("there is no stack maek"));
    assert!(written(&[], &[]).unwrap_err().to_string().contains("no file in the root"));
    let has_one = written(&[("Cargo.lock", ""), (".devcontainer.json", "{}")], &[]).unwrap_err().to_string();
    assert!(has_one.contains("has .devcontainer.json already"), "{has_one}");
}

#[test]
fn an_image_has_the_version_that_the_repository_wants() {
    for (files, image, told) in [
        (&[("package-lock.json", "{}"), (".nvmrc", "20.11\n")][..], "node:20", ".nvmrc wants 20.11"),
        (&[("package.json", r#"{"engines": {"node": ">=24"}}"#)], "node:24", "Debian 12 has Node 18"),
        (
            &[("pyproject.toml", "[project]\nrequires-python = '>=3.13'\n")],
            "python:3.13",
            "Debian 12 has Python 3.11",
        ),
        (&[("uv.lock", ""), (".python-version", "3.10\n")], "python:3.10", ".python-version wants 3.10"),
        (
            &[("Cargo.lock", ""), ("rust-toolchain.toml", "[toolchain]\nchannel = '1.88'\n")],
            "rust:1.88",
            "Debian 12 has Rust 1.85",
        ),
        (&[("Cargo.lock", ""), ("rust-toolchain", "nightly-2026-01-01\n")], "rust:1", "rustup"),
        (&[("Cargo.toml", "[package]\nrust-version = '1.70'\n")], "rust:1", "Cargo.toml wants 1.70"),
        (&[("go.mod", "module a\n\ngo 1.22\n")], "golang:1", "Debian 12 has Go 1.19"),
    ] {
        let (text, environment) = written(files, &[]).unwrap();
        assert_eq!(environment["image"], image, "{text}");
        assert!(text.contains(told), "{told}: {text}");
    }
}

#[test]
fn an_install_has_what_the_tests_need() {
    let group = "[dependency-groups]\ntest = ['pytest']\n";
    for (files, want) in [
        (
            &[("pyproject.toml", "[project.optional-dependencies]\ntests = ['pytest']\n")][..],
            "-e '.[tests]'\n",
        ),
        (
            &[("pyproject.toml", group)],
            "--upgrade 'pip>=25.1'\n.venv/bin/pip install --no-cache-dir -e '.' --group test\n",
        ),
        (
            &[("requirements.txt", ""), ("requirements-dev.txt", "")],
            "-r requirements.txt -r requirements-dev.txt\n",
        ),
        (&[("package.json", "{}")], "npm install --no-package-lock\n"),
        (
            &[("pyproject.toml", "[tool.poetry]\nname = 'a'\n")],
            "poetry install --no-interaction\nrm -f poetry.lock\n",
        ),
        (&[("poetry.lock", ""), ("pyproject.toml", "[tool.poetry]\n")], "poetry install --no-interaction\n"),
    ] {
        let (text, environment) = written(files, &[]).unwrap();
        assert!(environment["install"].as_str().unwrap().ends_with(want), "{want}: {text}");
    }
    let (text, environment) = written(&[("configure", ""), ("Makefile", "")], &[]).unwrap();
    assert!(environment["setup"].as_str().unwrap().contains("autoconf"), "{text}");
    assert_eq!(environment.get("install"), None);
}
