//! The real clients of real registries, on machines that reach these.

use super::{allow, store};
use e2e::{
    Options, Stack, left_out, packages,
    turn::{bash, run},
};
use std::path::Path;

/// Runs a command in a session that may reach `hosts`, and returns its output. Skipped where the machine has no `program` or does not reach
/// `registry`.
async fn output(program: &str, registry: &'static str, hosts: &[&str], command: &str) -> Option<String> {
    if !Path::new(program).exists() {
        left_out::skip(&format!("this machine has no {program}"));
        return None;
    }
    let outside = packages::outside(&[registry]).await?;
    let stack = Stack::with(Options { broker: true, outside, ..Options::default() }).await;
    store(&stack.api, "", &allow(hosts)).await;
    let session = stack.session().await;
    let (outcome, _) = run(&stack.api, &session, &format!("{}\n@text over", bash(command))).await;
    assert_eq!(outcome, "done");
    Some(stack.api.tool_calls(&session).await.pop().unwrap().result)
}

#[tokio::test]
async fn pip_installs_from_its_registry() {
    let install =
        "python3 -m pip download --no-deps --no-cache-dir -q -d /tmp/wheels six==1.16.0; ls /tmp/wheels";
    if let Some(output) = output("/usr/bin/pip3", "pypi.org", &["preset:pypi"], install).await {
        assert!(output.contains("six-1.16.0-py2.py3-none-any.whl"), "{output}");
    }
}

#[tokio::test]
async fn npm_installs_from_its_registry() {
    let install = "npm install --no-audit --no-fund left-pad@1.3.0 && ls node_modules";
    if let Some(output) = output("/usr/bin/npm", "registry.npmjs.org", &["preset:npm"], install).await {
        assert!(output.contains("left-pad"), "{output}");
    }
}

#[tokio::test]
async fn go_downloads_a_module_from_its_proxy() {
    let download = "export GOPATH=/tmp/go GOFLAGS=-modcacherw; go mod download golang.org/x/text@v0.14.0; ls /tmp/go/pkg/mod/golang.org/x";
    if let Some(output) = output("/usr/bin/go", "proxy.golang.org", &["preset:go"], download).await {
        assert!(output.contains("text@v0.14.0"), "{output}");
    }
}

#[tokio::test]
async fn maven_downloads_from_its_registry() {
    let download = "mvn -B -ntp -Dmaven.repo.local=/tmp/m2 org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get -Dtransitive=false \
                    -Dartifact=org.slf4j:slf4j-api:2.0.13; ls /tmp/m2/org/slf4j/slf4j-api/2.0.13";
    if let Some(output) = output("/usr/bin/mvn", "repo.maven.apache.org", &["preset:maven"], download).await {
        assert!(output.contains("slf4j-api-2.0.13.jar"), "{output}");
    }
}

#[tokio::test]
async fn curl_reads_the_index_of_crates_and_a_mirror_without_tls() {
    let read = "curl -sf https://index.crates.io/config.json; curl -sf http://deb.debian.org/debian/dists/stable/Release | head -3";
    let hosts = ["preset:crates", "preset:debian"];
    if let Some(output) = output("/usr/bin/curl", "index.crates.io", &hosts, read).await {
        assert!(output.contains("\"dl\"") && output.contains("Origin: Debian"), "{output}");
    }
}

#[tokio::test]
async fn a_refused_installer_ends_at_once_and_the_model_is_told_why() {
    let install = "time npm install --no-audit --no-fund left-pad@1.3.0; python3 -m pip download -q six";
    if let Some(output) = output("/usr/bin/npm", "registry.npmjs.org", &["preset:go"], install).await {
        assert!(output.contains("403"), "{output}");
        assert!(
            output.contains("The sandbox reaches only the hosts that `environment.network.allow`"),
            "{output}"
        );
    }
}
