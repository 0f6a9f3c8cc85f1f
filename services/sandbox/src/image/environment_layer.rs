//! What an environment layer depends on, and its name: the digest of all of it.

use super::{layer::EnvironmentLayerName, manifest::Manifest};
use crate::error::Error;
use domain::{
    ids::{ProjectId, TenantId},
    session::environment::is_script,
};
use rpc::v1::ErrorCode;
use serde::Serialize;

/// Raised when the content of a key changes its meaning.
const KEY_VERSION: u32 = 1;
/// Raised when a build of the same content would leave something else.
const BUILDER_VERSION: u32 = 1;

/// What an environment layer is made of.
#[derive(Debug, Clone)]
pub struct EnvironmentLayerSpec {
    pub tenant: TenantId,
    pub project: ProjectId,
    pub image: Manifest,
    /// The variables of the script: `NAME=value`.
    pub env: Vec<String>,
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
    builder: u32,
    arch: &'a str,
    stage: &'a str,
    tenant: TenantId,
    /// Left out without secrets: then nothing of the project is in it, and all projects of the tenant share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<&'a str>,
    image: &'a Manifest,
    env: Vec<&'a str>,
    script: &'a str,
    hosts: Vec<&'a str>,
    /// Left out if there are none, so that the keys of earlier versions count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    secrets: Vec<&'a str>,
}

impl EnvironmentLayerSpec {
    /// Checks what a caller asks for.
    ///
    /// # Errors
    /// `argument_invalid`.
    pub fn check(&self) -> Result<(), Error> {
        let invalid = |text: &str| Err(Error::refused(ErrorCode::ArgumentInvalid, text));
        if self.image.is_empty() {
            return invalid("a setup needs an image");
        }
        if !is_script(&self.script) {
            return invalid("the script of a setup is empty or too long, or it contains a zero byte");
        }
        Ok(())
    }

    /// The name of the environment.
    ///
    /// # Errors
    /// `internal`, if the content cannot be written as JSON.
    pub fn name(&self) -> Result<EnvironmentLayerName, Error> {
        let content = KeyContent {
            v: KEY_VERSION,
            builder: BUILDER_VERSION,
            arch: std::env::consts::ARCH,
            stage: "setup",
            tenant: self.tenant,
            project: (!self.secrets.is_empty()).then_some(self.project.as_str()),
            image: &self.image,
            env: sorted(&self.env),
            script: &self.script,
            hosts: sorted(&self.hosts),
            secrets: sorted(&self.secrets),
        };
        EnvironmentLayerName::of(self.tenant, &content)
    }
}

/// The texts in their order, each once.
pub fn sorted(texts: &[String]) -> Vec<&str> {
    let mut sorted: Vec<&str> = texts.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_part_changes_the_name_and_the_order_of_lists_does_not() {
        let project = |digit: &str| format!("prj_{}", digit.repeat(26)).parse::<ProjectId>().unwrap();
        let image = |digit: &str| Manifest::parse(&[format!("sha256:{}", digit.repeat(64))]).unwrap();
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let spec = EnvironmentLayerSpec {
            tenant: TenantId(uuid::Uuid::now_v7()),
            project: project("a"),
            image: image("a"),
            env: texts(&["A=1", "B=2"]),
            script: "true".to_owned(),
            hosts: texts(&["a.dev", "b.dev"]),
            secrets: texts(&["A=A@1", "B=B@2"]),
        };
        let same = EnvironmentLayerSpec {
            env: texts(&["B=2", "A=1"]),
            hosts: texts(&["b.dev", "a.dev", "a.dev"]),
            secrets: texts(&["B=B@2", "A=A@1"]),
            ..spec.clone()
        };
        assert_eq!(spec.name().unwrap(), same.name().unwrap());
        let others = [
            EnvironmentLayerSpec { tenant: TenantId(uuid::Uuid::now_v7()), ..spec.clone() },
            EnvironmentLayerSpec { project: project("b"), ..spec.clone() },
            EnvironmentLayerSpec { image: image("b"), ..spec.clone() },
            EnvironmentLayerSpec { env: texts(&["A=1", "B=3"]), ..spec.clone() },
            EnvironmentLayerSpec { env: texts(&["A=1\nB=2"]), ..spec.clone() },
            EnvironmentLayerSpec { script: "true ".to_owned(), ..spec.clone() },
            EnvironmentLayerSpec { hosts: texts(&["a.dev"]), ..spec.clone() },
            EnvironmentLayerSpec { hosts: texts(&["a.dev b.dev"]), ..spec.clone() },
            EnvironmentLayerSpec { secrets: texts(&["A=A@1", "B=B@3"]), ..spec.clone() },
            EnvironmentLayerSpec { secrets: vec![], ..spec.clone() },
            spec.clone(),
        ];
        let names: BTreeSet<_> = others.iter().map(|spec| spec.name().unwrap()).collect();
        assert_eq!(names.len(), others.len());
        let without =
            |project| EnvironmentLayerSpec { secrets: vec![], project, ..spec.clone() }.name().unwrap();
        assert_eq!(without(project("a")), without(project("b")), "without secrets, projects share it");
        let refused = |spec: EnvironmentLayerSpec| spec.check().is_err();
        assert!(!refused(spec.clone()));
        assert!(refused(EnvironmentLayerSpec { image: Manifest::default(), ..spec.clone() }));
        assert!(refused(EnvironmentLayerSpec { script: " \n".to_owned(), ..spec.clone() }));
    }
}
