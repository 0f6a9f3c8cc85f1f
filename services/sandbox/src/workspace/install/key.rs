//! The name of what is installed for a workspace: the digest of all that it depends on.

use super::listing::Listing;
use crate::{
    error::Error,
    image::{environment_layer::sorted, layer::EnvironmentLayerName, manifest::Manifest},
};
use domain::ids::{ProjectId, TenantId};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt as _};

/// Raised when the content of a key changes its meaning, or an install of the same content would leave something else.
/// What scripts left under 1 may be the work of an agent.
const KEY_VERSION: u32 = 2;
/// What changes when the programs of the machine are updated: a file with the version of the system, and the directories of programs.
const SYSTEM: &str = "/usr/lib/os-release";
const PROGRAMS: [&str; 5] = ["/usr/bin", "/usr/lib", "/usr/sbin", "/usr/local/bin", "/usr/local/lib"];

/// What a workspace gets in addition to the files of its source.
#[derive(Debug, Clone)]
pub enum Install {
    /// What this script leaves. It runs only with files that no agent wrote.
    Script(InstallSpec),
    /// What is installed where the files were copied from. No script runs.
    Copied(EnvironmentLayerName),
}

/// A script that installs what a repository needs.
#[derive(Debug, Clone)]
pub struct InstallSpec {
    pub project: ProjectId,
    /// For bash.
    pub script: String,
    /// What the script may reach of the network.
    pub hosts: Vec<String>,
    /// The secrets that the door gives it, with their versions.
    pub secrets: Vec<String>,
}

/// The content of a key. The order of the fields is a part of it.
#[derive(Serialize)]
struct KeyContent<'a> {
    v: u32,
    arch: &'a str,
    stage: &'a str,
    tenant: TenantId,
    project: &'a str,
    root: RootContent<'a>,
    env: Vec<&'a str>,
    script: &'a str,
    hosts: Vec<&'a str>,
    /// Left out if there are none, so that the keys of earlier versions count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    secrets: Vec<&'a str>,
    locks: &'a BTreeMap<String, String>,
}

/// What the script sees at `/`.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum RootContent<'a> {
    Image(&'a Manifest),
    Machine(String),
}

/// Names what `install` leaves in a tree with these files.
///
/// # Errors
/// `internal`.
pub(in crate::workspace) fn name(
    tenant: TenantId,
    image: &Manifest,
    env: &[String],
    install: &InstallSpec,
    listing: &Listing,
) -> Result<EnvironmentLayerName, Error> {
    let root = if image.is_empty() { RootContent::Machine(machine()) } else { RootContent::Image(image) };
    let content = KeyContent {
        v: KEY_VERSION,
        arch: std::env::consts::ARCH,
        stage: "install",
        tenant,
        project: install.project.as_str(),
        root,
        env: sorted(env),
        script: &install.script,
        hosts: sorted(&install.hosts),
        secrets: sorted(&install.secrets),
        locks: &listing.locks,
    };
    EnvironmentLayerName::of(tenant, &content)
}

/// A digest of the version of the machine's programs.
fn machine() -> String {
    let mut hash = Sha256::new();
    hash.update(fs::read(SYSTEM).unwrap_or_default());
    for directory in PROGRAMS {
        let changed = fs::metadata(directory).map(|found| (found.mtime(), found.mtime_nsec()));
        hash.update(format!("{directory} {changed:?}\n"));
    }
    domain::text::hex(&hash.finalize())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_part_changes_the_key() {
        let (none, env) = (Manifest::default(), vec!["A=1".to_owned()]);
        let project = |digit: &str| format!("prj_{}", digit.repeat(26)).parse().unwrap();
        let install = InstallSpec {
            project: project("a"),
            script: "npm ci".to_owned(),
            hosts: vec!["a.dev".to_owned()],
            secrets: vec![],
        };
        let listing = |content: &str| Listing {
            locks: [("yarn.lock".to_owned(), content.to_owned())].into(),
            ..Listing::default()
        };
        let tenant = TenantId(uuid::Uuid::now_v7());
        let image = Manifest::parse(&[format!("sha256:{}", "a".repeat(64))]).unwrap();
        let setup = EnvironmentLayerName::of(tenant, &"setup").unwrap();
        let listed = listing("a");
        let of = |image: &Manifest, env: &[String]| name(tenant, image, env, &install, &listed).unwrap();
        let with = |install: InstallSpec| name(tenant, &none, &env, &install, &listed).unwrap();
        assert_eq!(of(&none, &env), of(&none, &env));
        let names: BTreeSet<EnvironmentLayerName> = [
            of(&none, &env),
            name(TenantId(uuid::Uuid::now_v7()), &none, &env, &install, &listed).unwrap(),
            name(tenant, &none, &env, &install, &listing("b")).unwrap(),
            name(tenant, &none, &env, &install, &Listing::default()).unwrap(),
            of(&none, &["A=2".to_owned()]),
            of(&image, &env),
            of(&image.clone().with(setup), &env),
            with(InstallSpec { project: project("b"), ..install.clone() }),
            with(InstallSpec { script: "npm i".to_owned(), ..install.clone() }),
            with(InstallSpec { hosts: vec![], ..install.clone() }),
            with(InstallSpec { secrets: vec!["A=A@1".to_owned()], ..install.clone() }),
            with(InstallSpec { secrets: vec!["A=A@2".to_owned()], ..install.clone() }),
        ]
        .into();
        assert_eq!(names.len(), 12);
    }
}
