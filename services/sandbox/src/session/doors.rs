//! The doors of sessions to the network: a directory each, which every sandbox of the session sees. The broker of this machine opens the socket in it;
//! until then nothing answers there. Variables lead programs to it.

use crate::{
    isolation::launch::Mount,
    layout::{self, Key},
};
use domain::{ids::TenantId, session::environment::CA_VARIABLES};
use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::{Path, PathBuf},
};

/// Where a sandbox sees its door, as the init knows it.
const INSIDE: &str = "/run/egress";
/// Where a sandbox sees the certificates of CAs.
const CA_INSIDE: &str = "/run/sbx/ca.pem";
/// Where the init forwards connections to the door.
const PROXY: &str = "http://127.0.0.1:3128";
/// What the broker writes next to the sockets.
const GIT_CONFIGURATION: &str = "/run/egress/gitconfig";
/// What is reached without the proxy: the servers that the session itself runs.
const NO_PROXY: &str = "localhost,127.0.0.1,::1,sandbox";
/// The proxy for Maven and Gradle, which read no variable of the others. The last word is for Maven from 3.9 on.
const JVM_PROXY: &str = "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128 \
                         -Daether.connector.http.useSystemProperties=true";
/// What leads programs to the proxy. Programs differ in the case of the names.
const PROXY_VARIABLES: [(&str, &str); 14] = [
    ("HTTP_PROXY", PROXY),
    ("http_proxy", PROXY),
    ("HTTPS_PROXY", PROXY),
    ("https_proxy", PROXY),
    ("NO_PROXY", NO_PROXY),
    ("no_proxy", NO_PROXY),
    // Node ignores the others without it.
    ("NODE_USE_ENV_PROXY", "1"),
    // They repeat a refusal, npm for minutes.
    ("npm_config_fetch_retries", "1"),
    ("PIP_RETRIES", "1"),
    ("MAVEN_OPTS", JVM_PROXY),
    ("GRADLE_OPTS", JVM_PROXY),
    // What leads git to the door for repositories that have a credential. Git ignores a file that is missing.
    ("GIT_CONFIG_COUNT", "1"),
    ("GIT_CONFIG_KEY_0", "include.path"),
    ("GIT_CONFIG_VALUE_0", GIT_CONFIGURATION),
];
/// How each certificate in a PEM file begins.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// What sessions have of the network.
#[derive(Debug, Clone)]
pub struct Doors {
    /// The directory of all doors, which the broker has too. `None`: this machine has no broker.
    all: Option<PathBuf>,
    ca: Option<PathBuf>,
}

impl Doors {
    /// Makes the directory unless the broker did. `ca`: the certificates that programs trust.
    ///
    /// # Errors
    /// Those of the file system; the certificates cannot be read.
    pub fn new(directory: Option<&Path>, ca: Option<&Path>) -> io::Result<Self> {
        if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
            layout::make_passage(directory)?;
        }
        let all = directory.map(Path::canonicalize).transpose()?;
        let ca = ca.map(Path::canonicalize).transpose()?;
        if let Some(file) = &ca
            && !fs::read_to_string(file)?.contains(CERTIFICATE)
        {
            return Err(io::Error::other(format!("{} contains no certificate as PEM", file.display())));
        }
        Ok(Self { all, ca })
    }

    /// The variables that lead programs to the door.
    pub fn variables(&self) -> Vec<(&'static str, &'static str)> {
        let proxy = if self.all.is_some() { &PROXY_VARIABLES[..] } else { &[] };
        let ca = if self.ca.is_some() { &CA_VARIABLES[..] } else { &[] };
        proxy.iter().copied().chain(ca.iter().map(|name| (*name, CA_INSIDE))).collect()
    }

    /// What the sandboxes of a session see: its door, whose directory is made, and the certificates. A session whose door cannot be made has no network.
    pub fn mounts(&self, key: &Key) -> Vec<Mount> {
        let ca = self.ca.iter().map(|ca| Mount::read(ca, CA_INSIDE));
        let door = self.mount(key).unwrap_or_else(|error| {
            tracing::warn!(%error, session.id = %key.session, "the directory of a door to the network cannot be made");
            None
        });
        door.into_iter().chain(ca).collect()
    }

    /// The door as the helper that clones sees it; `None`: this machine has no doors.
    pub fn mount(&self, key: &Key) -> io::Result<Option<Mount>> {
        let (Some(all), Some(home)) = (&self.all, self.home(key)) else { return Ok(None) };
        let door = home.join("door");
        fs::create_dir_all(&door)?;
        // The broker, which makes the socket, may be another user than this service.
        let owner = fs::metadata(all)?;
        for (directory, mode) in [(home.parent().unwrap_or(all), 0o711), (&home, 0o711), (&door, 0o755)] {
            if nix::unistd::geteuid().is_root() {
                fs::set_permissions(directory, Permissions::from_mode(mode))?;
                chown(directory, Some(owner.uid()), Some(owner.gid()))?;
            }
        }
        Ok(Some(Mount::read(door, INSIDE)))
    }

    /// The directory of a session, with its door and what the broker knows about it.
    pub fn home(&self, key: &Key) -> Option<PathBuf> {
        Some(self.all.as_ref()?.join(key.tenant.to_string()).join(key.session.as_str()))
    }

    /// The directory of a tenant.
    pub fn of_tenant(&self, tenant: TenantId) -> Option<PathBuf> {
        Some(self.all.as_ref()?.join(tenant.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::session::environment::is_own_variable;

    #[test]
    fn settings_cannot_set_what_leads_programs_to_the_network() {
        for (name, _) in PROXY_VARIABLES {
            assert!(is_own_variable(name), "{name}");
        }
    }
}
