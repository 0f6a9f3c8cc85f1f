//! What is outside of the stack: a private server of git, a registry of images, and the registries of packages.

use super::report::ok;
use crate::packages;
use anyhow::{Context as _, Result, bail, ensure};
use std::{
    path::{Path, PathBuf},
    process::Command,
};
use testkit::{
    git::Repository,
    git_server::GitServer,
    registry::{Registry, content::PushedImage},
};

/// The host of the private server of git.
pub(super) const GIT_HOST: &str = "git.example.com";
/// Where its repositories begin.
pub(super) const PREFIX: &str = "https://git.example.com/acme/";
/// The name of the secret with the login.
pub(super) const SECRET: &str = "GIT_LOGIN";
/// The login that the server of git requires.
pub(super) const LOGIN: &str = "demo:a-token-that-no-sandbox-sees";
/// The certificates that this machine trusts: its network may sign for the registries of packages.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Makes the layers of the image.
const IMAGE_SCRIPT: &str = include_str!("../../demo/image.sh");

pub(super) struct Outside {
    git: GitServer,
    registry: Registry,
    git_certificate: PathBuf,
    /// The networks of the registries of packages, where these are private.
    networks: Vec<String>,
    /// The image with a Rust toolchain.
    pub(super) rust_image: PushedImage,
}

impl Outside {
    /// Starts the servers, with files in `directory`.
    pub(super) async fn start(directory: &Path) -> Result<Self> {
        let mut networks = Vec::new();
        for host in ["registry.npmjs.org", "pypi.org", "index.crates.io"] {
            let Some(private) = packages::network(host).await else {
                bail!("this machine does not reach {host}")
            };
            networks.extend(private);
        }
        networks.sort();
        networks.dedup();
        let git = GitServer::start(&[GIT_HOST]).await;
        git.require(LOGIN);
        let git_certificate = directory.join("git.pem");
        std::fs::write(&git_certificate, &git.certificate)?;
        let registry = Registry::start().await;
        let script = Command::new("bash").args(["-c", IMAGE_SCRIPT, "image.sh"]).arg(directory).output()?;
        ensure!(script.status.success(), "cannot make an image: {}", String::from_utf8_lossy(&script.stderr));
        let layer = |name: &str| std::fs::read(directory.join(name)).with_context(|| format!("read {name}"));
        let rust_image = registry.push_image("demo/rust", &[&layer("debian.tar")?, &layer("rust.tar")?]);
        ok("a registry has an image of Debian's compiler packages and this machine's Rust toolchain");
        Ok(Self { git, registry, git_certificate, networks, rust_image })
    }

    /// The variables that tell a stack about it.
    pub(super) fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("FLOTILLA_BROKER_HOSTS", format!("{GIT_HOST}={}", self.git.address)),
            ("FLOTILLA_BROKER_GIT_CA", self.git_certificate.display().to_string()),
            ("FLOTILLA_BROKER_REGISTRY_PLAINTEXT", self.registry.host.clone()),
        ];
        if !self.networks.is_empty() {
            variables.push(("FLOTILLA_BROKER_NETWORKS", self.networks.join(",")));
        }
        if Path::new(CERTIFICATES).exists() {
            variables.push(("FLOTILLA_SANDBOX_EGRESS_CA", CERTIFICATES.to_owned()));
        }
        variables
    }

    /// Publishes the commits of a repository as `acme/NAME.git`.
    pub(super) fn publish(&self, name: &str, repository: &Repository) {
        self.git.push(&format!("acme/{name}.git"), repository);
    }

    /// The content of a file on a branch of a repository.
    pub(super) fn read(&self, name: &str, branch: &str, path: &str) -> Result<String> {
        let bare = self.git.directory(&format!("acme/{name}.git"));
        let shown =
            Command::new("git").arg("-C").arg(bare).args(["show", &format!("{branch}:{path}")]).output()?;
        ensure!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
        Ok(String::from_utf8(shown.stdout)?)
    }
}
