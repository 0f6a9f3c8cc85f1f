//! The name of a layer on this machine: of an image, or of what the setup of a project made on top of one.

use super::digest::Digest;
use crate::{error::Error, layout::Layout};
use domain::{ids::TenantId, text};
use rpc::v1::ErrorCode;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{fmt, fs, io, path::PathBuf, str::FromStr};

/// What an environment layer is called among layers.
const ENVIRONMENT: &str = "environment:";

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum LayerName {
    /// A layer of an image, which all tenants share.
    Image(Digest),
    /// What a setup made.
    Environment(EnvironmentLayerName),
}

/// The name of what a setup made. Only its tenant can have it: a secret of the tenant may have shaped it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EnvironmentLayerName {
    pub tenant: TenantId,
    /// The digest of everything that it depends on.
    pub key: Digest,
}

impl EnvironmentLayerName {
    /// The environment layer of `tenant` that depends on `content`.
    ///
    /// # Errors
    /// `internal`, if the content cannot be written as JSON.
    pub fn of(tenant: TenantId, content: &impl Serialize) -> Result<Self, Error> {
        let key = serde_json::to_vec(content).map_err(io::Error::other).and_then(|json| {
            let key = Digest::from_hex(&text::hex(&Sha256::digest(json)));
            key.ok_or_else(|| io::Error::other("a digest has other digits"))
        });
        Ok(Self { tenant, key: key.map_err(Error::io("name an environment"))? })
    }

    /// The environment layer of `tenant` whose key a caller names.
    ///
    /// # Errors
    /// `argument_invalid`.
    pub fn parse(tenant: TenantId, key: &str) -> Result<Self, Error> {
        let invalid = || {
            let text = "the key of an environment has 64 hexadecimal digits in small letters";
            Error::refused(ErrorCode::ArgumentInvalid, text)
        };
        Ok(Self { tenant, key: Digest::from_hex(key).ok_or_else(invalid)? })
    }
}

impl fmt::Display for EnvironmentLayerName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{ENVIRONMENT}{}:{}", self.tenant, self.key.hex())
    }
}

impl fmt::Display for LayerName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(digest) => digest.fmt(formatter),
            Self::Environment(name) => name.fmt(formatter),
        }
    }
}

impl FromStr for LayerName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let environment = text.strip_prefix(ENVIRONMENT).and_then(|rest| rest.split_once(':'));
        let environment = environment.and_then(|(tenant, key)| {
            Some(EnvironmentLayerName { tenant: tenant.parse().ok()?, key: Digest::from_hex(key)? })
        });
        environment.map_or_else(|| text.parse().map(Self::Image), |name| Ok(Self::Environment(name)))
    }
}

impl TryFrom<String> for LayerName {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<LayerName> for String {
    fn from(name: LayerName) -> Self {
        name.to_string()
    }
}

/// The layers on the disk, with their directories.
pub(super) fn layers_on_disk(layout: &Layout) -> io::Result<Vec<(LayerName, PathBuf)>> {
    let mut layers = Vec::new();
    let key = |entry: &fs::DirEntry| entry.file_name().to_str().and_then(Digest::from_hex);
    for entry in fs::read_dir(layout.layers())? {
        let entry = entry?;
        layers.extend(key(&entry).map(|digest| (LayerName::Image(digest), entry.path())));
    }
    for entry in fs::read_dir(layout.environments())? {
        let directory = entry?;
        let Some(tenant) = directory.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        for entry in fs::read_dir(directory.path())? {
            let entry = entry?;
            let name = key(&entry).map(|key| LayerName::Environment(EnvironmentLayerName { tenant, key }));
            layers.extend(name.map(|name| (name, entry.path())));
        }
    }
    Ok(layers)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let tenant = TenantId(uuid::Uuid::now_v7());
        let environment = format!("environment:{tenant}:{}", "b".repeat(64));
        for text in [&digest, &environment] {
            assert_eq!(text.parse::<LayerName>().unwrap().to_string(), *text);
        }
        for wrong in ["", "environment:", "environment:x:y", &format!("{environment}/..")] {
            assert!(wrong.parse::<LayerName>().is_err(), "{wrong}");
        }
    }
}
