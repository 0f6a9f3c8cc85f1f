//! `./dev demo toolchains`: setups install toolchains and test services from Debian's packages on top of a small image of Debian, and sessions run
//! the tests of a project with each of them, behind all walls of the sandbox.
// Continues in `demo::toolchain`, which shows one toolchain.

use super::{
    report,
    stack::{self, RunningStack},
    toolchain::{TOOLCHAINS, show},
};
use crate::packages::Registries;
use anyhow::{Context as _, Result, bail, ensure};
use std::{path::Path, process::Command};
use testkit::registry::Registry;
use tokio::time::Instant;

/// The hosts of Debian's packages.
const DEBIAN_HOSTS: [&str; 2] = ["deb.debian.org", "security.debian.org"];
/// The release of Debian in the image.
const DEBIAN_RELEASE: &str = "bookworm";
/// Dpkg does not wait for the disk after each file, and apt-get installs no more than it must. Sandboxes have devices of their own.
const IMAGE_OPTIONS: [&str; 6] = [
    "--quiet",
    "--variant=minbase",
    "--include=ca-certificates",
    "--dpkgopt=force-unsafe-io",
    "--aptopt=APT::Install-Recommends \"false\"",
    "--skip=output/dev",
];

/// Shows the toolchains with these names, or all of them. `flotilla` is the program to show.
///
/// # Errors
/// The machine cannot run images or reach Debian's packages, or a toolchain does not work. The demo still shows the other toolchains.
pub async fn run(flotilla: &Path, names: &[String]) -> Result<()> {
    if let Some(unknown) = names.iter().find(|name| !TOOLCHAINS.iter().any(|it| it.name == name.as_str())) {
        bail!("there is no toolchain {unknown}");
    }
    let registries = TOOLCHAINS.iter().flat_map(|toolchain| toolchain.registries);
    let hosts: Vec<&'static str> = DEBIAN_HOSTS.iter().chain(registries).copied().collect();
    let packages = Registries::find(&hosts).await;
    if let Some(host) = DEBIAN_HOSTS.iter().find(|host| packages.unreachable.contains(host)) {
        bail!("this machine does not reach {host}");
    }
    let directory = stack::directory("flotilla-demo-toolchains.")?;
    let registry = Registry::start().await;
    let started = Instant::now();
    let image = registry.push_image("demo/debian", &[&debian(directory.path())?]).reference;
    report::ok(&format!("a registry has an image of Debian ({:.0?})", started.elapsed()));
    let stack =
        RunningStack::start(flotilla, directory.path(), stack::variables(&registry, &packages)).await?;
    let shown = stack::until_interrupted(show_all(&stack, &image, &packages, names)).await;
    stack.stop_after(shown).await
}

/// Makes the only layer of an image: a small Debian.
fn debian(directory: &Path) -> Result<Vec<u8>> {
    let file = directory.join("debian.tar");
    let made = Command::new("mmdebstrap").args(IMAGE_OPTIONS).arg(DEBIAN_RELEASE).arg(&file).output();
    let made = made.context("start mmdebstrap")?;
    ensure!(made.status.success(), "cannot make an image: {}", String::from_utf8_lossy(&made.stderr));
    let layer = std::fs::read(&file)?;
    std::fs::remove_file(&file)?;
    Ok(layer)
}

/// Shows each toolchain in a line with its time, also after one that does not work.
async fn show_all(stack: &RunningStack, image: &str, packages: &Registries, names: &[String]) -> Result<()> {
    let mut failed = vec![];
    let is_meant = |name: &str| names.is_empty() || names.iter().any(|meant| meant == name);
    for toolchain in TOOLCHAINS.iter().filter(|toolchain| is_meant(toolchain.name)) {
        let name = toolchain.name;
        if let Some(host) = toolchain.registries.iter().find(|host| packages.unreachable.contains(host)) {
            report::left_out(name, &format!("this machine does not reach {host}"));
            continue;
        }
        let started = Instant::now();
        let shown = show(stack, image, toolchain).await;
        let seconds = started.elapsed().as_secs();
        match shown {
            Ok(lines) => report::ok(&format!("{name} ({seconds} s): {lines}")),
            Err(error) if stack::is_without_images(&error) => bail!("{}", stack::WITHOUT_IMAGES),
            Err(error) => {
                report::note(&format!("FAILED: {name} ({seconds} s): {error:#}"));
                failed.push(name);
            }
        }
    }
    ensure!(failed.is_empty(), "these toolchains do not work: {}", failed.join(", "));
    report::ok("every toolchain that is not left out works");
    Ok(())
}
