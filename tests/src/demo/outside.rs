//! What is outside of the stack: a private server of git, a registry of images, and the registries of packages.

use super::{report::ok, stack};
use crate::{
    layers::{self, RustPart},
    packages::Registries,
};
use anyhow::{Result, bail, ensure};
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
pub(super) const PREFIX: &str = "https://git.example.com/acme/";
/// The name of the secret with the login.
pub(super) const SECRET: &str = "GIT_LOGIN";
/// The login that the server of git requires.
pub(super) const LOGIN: &str = "demo:a-token-that-no-sandbox-sees";
/// What the Rust toolchain needs of Debian.
const RUST_NEEDS: [&str; 5] = ["bash", "coreutils", "gcc", "libc6-dev", "ca-certificates"];

pub(super) struct Outside {
    git: GitServer,
    registry: Registry,
    git_certificate: PathBuf,
    packages: Registries,
    /// The image with a Rust toolchain.
    pub(super) rust_image: PushedImage,
}

impl Outside {
    /// Starts the servers, with files in `directory`.
    pub(super) async fn start(directory: &Path) -> Result<Self> {
        let packages = Registries::find(&["registry.npmjs.org", "pypi.org", "index.crates.io"]).await;
        if let Some(host) = packages.unreachable.first() {
            bail!("this machine does not reach {host}");
        }
        let git = GitServer::start(&[GIT_HOST]).await;
        git.require(LOGIN);
        let git_certificate = directory.join("git.pem");
        std::fs::write(&git_certificate, &git.certificate)?;
        let registry = Registry::start().await;
        let layers = [
            layers::packages(&RUST_NEEDS)?,
            layers::rust(RustPart::Compiler)?,
            layers::rust(RustPart::Library)?,
        ];
        let rust_image = registry.push_image("demo/rust", &layers.each_ref().map(Vec::as_slice));
        ok("a registry has an image of Debian's compiler packages and this machine's Rust toolchain");
        Ok(Self { git, registry, git_certificate, packages, rust_image })
    }

    /// The variables that tell a stack about it.
    pub(super) fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = stack::variables(&self.registry, &self.packages);
        variables.push(("FLOTILLA_BROKER_HOSTS", format!("{GIT_HOST}={}", self.git.address)));
        variables.push(("FLOTILLA_BROKER_GIT_CA", self.git_certificate.display().to_string()));
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
