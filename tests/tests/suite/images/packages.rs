//! The package managers of images, with the real registries on machines that reach these.

use super::is_supported;
use e2e::{
    Options, Stack,
    layers::{self, RustPart},
    left_out, packages,
    turn::output,
};
use serde_json::{Value, json};
use testkit::registry::Registry;

/// What an image of Debian has before `apt-get` installs the first package.
const DEBIAN: [&str; 16] = [
    "apt",
    "base-files",
    "bash",
    "coreutils",
    "dash",
    "debianutils",
    "diffutils",
    "dpkg",
    "findutils",
    "grep",
    "gzip",
    "libc-bin",
    "mawk",
    "perl-base",
    "sed",
    "tar",
];
/// What cargo and the compiler need of Debian.
const RUST_NEEDS: [&str; 5] = ["bash", "ca-certificates", "coreutils", "libgcc-s1", "zlib1g"];

/// A stack that reaches registries of packages and a registry of images.
struct Site {
    images: Registry,
    stack: Stack,
}

impl Site {
    /// Starts a stack that reaches the registries at `hosts`. Where the machine does not reach all of them, the test is skipped.
    async fn start(hosts: &[&'static str]) -> Option<Self> {
        let mut outside = packages::outside(hosts).await?;
        let images = Registry::start().await;
        outside.registries = vec![images.host.clone()];
        let stack = Stack::with(Options { broker: true, outside, ..Options::default() }).await;
        Some(Self { images, stack })
    }

    /// Runs a command in a session with an image of these layers and an environment around it, and returns its output. Where the machine cannot join
    /// layers, the test is skipped.
    async fn output(&self, layers: &[&[u8]], mut environment: Value, command: &str) -> Option<String> {
        environment["image"] = self.images.push_image("acme/dev", layers).reference.into();
        self.stack.api.set_environment("", &environment).await;
        let session = self.stack.api.session(None).await;
        let printed = output(&self.stack.api, &session, command).await;
        is_supported(&printed).then(|| printed.unwrap())
    }
}

/// Whether this machine has Debian's packages. Where it has those of another system, the test is skipped.
fn is_debian() -> bool {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let is_debian = release.lines().any(|line| line == "ID=debian");
    if !is_debian {
        left_out::skip("this machine is no Debian");
    }
    is_debian
}

#[tokio::test]
async fn apt_get_installs_a_package_in_a_setup() {
    if !is_debian() {
        return;
    }
    let Some(site) = Site::start(&["deb.debian.org"]).await else { return };
    let setup = ". /etc/os-release
        echo \"deb http://deb.debian.org/debian $VERSION_CODENAME main\" > /etc/apt/sources.list
        apt-get -o Acquire::Languages=none update; apt-get install -y hello";
    let environment = json!({"setup": setup, "network": {"setup": ["preset:debian"]}});
    let layer = layers::packages(&DEBIAN).unwrap();
    let look = "hello --greeting=installed; dpkg-query --show --showformat '${Status}' hello";
    if let Some(output) = site.output(&[&layer], environment, look).await {
        assert_eq!(output, "installed\ninstall ok installed");
    }
}

#[tokio::test]
async fn cargo_fetches_a_crate_in_an_image() {
    let Some(site) = Site::start(&["index.crates.io", "static.crates.io"]).await else { return };
    let environment = json!({"env": {"CARGO_HOME": "/tmp/cargo"}, "network": {"allow": ["preset:crates"]}});
    let debian = layers::packages(&RUST_NEEDS).unwrap();
    let rust = layers::rust(RustPart::Compiler).unwrap();
    let manifest =
        "[package]\\nname = \"shop\"\\nversion = \"1.0.0\"\\n[dependencies]\\nitoa = \"=1.0.11\"\\n";
    let fetch = format!(
        "mkdir -p shop/src; cd shop; : > src/lib.rs; printf '{manifest}' > Cargo.toml; cargo fetch; ls /tmp/cargo/registry/src/*"
    );
    if let Some(output) = site.output(&[&debian, &rust], environment, &fetch).await {
        assert!(output.ends_with("itoa-1.0.11\n"), "{output}");
    }
}
