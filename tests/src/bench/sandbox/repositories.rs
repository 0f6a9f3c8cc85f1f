//! The time from the first prompt of a session on a private repository to the result of its first tool call: with mirrors, and with a sandbox
//! service that keeps none; and in an image with a setup and an install.

use crate::{
    Options, Stack,
    api::Api,
    bench::{
        figure::{Figure, Target},
        samples::Samples,
        sandbox::client,
        testbed::{Servers, Testbed},
    },
    layers,
    settings::Outside,
    turn::{Watch, bash},
};
use rpc::v1;
use serde_json::{Value, json};
use std::{
    fs::File,
    io::Read as _,
    path::Path,
    time::{Duration, Instant},
};
use testkit::{
    git::{Repository, repository},
    git_server::GitServer,
    registry::Registry,
};

const HOST: &str = "git.example.com";
const TOKEN: &str = "token-of-the-benchmark";
/// The targets for a repository of 1 GB; milliseconds.
const COLD_MS: f64 = 15_000.0;
const WARM_MS: f64 = 3_000.0;
/// Arguments of a sandbox service without mirrors.
const WITHOUT: &[&str] = &["--mirror-bytes", "0"];
const WITH_MIRRORS: &str = "with mirrors";
/// Programs of the image: the shell, and what the install and the command of a turn need.
const PROGRAMS: [&str; 3] = ["/bin/bash", "/bin/ls", "/bin/mkdir"];

/// The sizes of the measurements.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Commits of the large repository, each with a file that git cannot compress.
    commits: usize,
    file_bytes: u64,
    /// Later sessions on each repository.
    rounds: usize,
    /// Later sessions in an image with a setup and an install.
    image_rounds: usize,
    /// Files of 8 KiB that the install adds.
    install_files: usize,
}

impl Sizes {
    /// Returns the sizes for the report: 1 GB in 1,000 commits.
    pub fn full() -> Self {
        Self { commits: 1_000, file_bytes: 1_000_000, rounds: 6, image_rounds: 20, install_files: 5_000 }
    }

    /// Returns small sizes, to check that it runs.
    pub fn smoke() -> Self {
        Self { commits: 2, file_bytes: 10_000, rounds: 1, image_rounds: 1, install_files: 2 }
    }
}

/// Measures both kinds of machines alternately, and then the image on the one with mirrors. The broker has the servers that tests share; they make
/// no difference here. Returns no figures of the image on a machine that cannot join layers.
pub async fn measure(sizes: &Sizes) -> Vec<Figure> {
    let server = GitServer::start(&[HOST]).await;
    server.require(&format!("x-access-token:{TOKEN}"));
    server.push("acme/small.git", &repository(&[("file", "small\n")]));
    let large = large_repository(sizes);
    server.push("acme/large.git", &large);
    pack(&server.directory("acme/large.git"));
    let registry = Registry::start().await;
    let outside = Outside {
        registries: vec![registry.host.clone()],
        hosts: vec![format!("{HOST}={}", server.address)],
        git_certificate: Some(server.certificate.clone()),
        ..Outside::default()
    };
    let mut machines = vec![];
    for (kind, sandbox_arguments) in [("without mirrors", WITHOUT), (WITH_MIRRORS, &[])] {
        let options =
            Options { broker: true, outside: outside.clone(), sandbox_arguments, ..Options::default() };
        let testbed = Testbed::start(&Servers::Shared, options).await;
        set_environment(&testbed.stack.api, json!({})).await;
        machines.push((kind, testbed));
    }
    let mut figures = vec![];
    for name in ["small", "large"] {
        let mut all = [(); 2].map(|()| [Samples::default(), Samples::default()]);
        for round in 0..=sizes.rounds {
            for ((_, testbed), samples) in machines.iter().zip(&mut all) {
                samples[usize::from(round > 0)].push(turn(&testbed.stack.api, name, "ls").await);
            }
        }
        for ((kind, _), [first, later]) in machines.iter().zip(all) {
            let warm = if *kind == WITH_MIRRORS { Target::AtMost(WARM_MS) } else { Target::AtMost(COLD_MS) };
            for (when, samples, target) in [("first", first, Target::AtMost(COLD_MS)), ("later", later, warm)]
            {
                let figure = format!("prompt -> tool result, {when} session, {name} repository, {kind}");
                figures.push(Figure::times(figure, samples, target));
            }
        }
    }
    for (kind, testbed) in machines {
        if kind == WITH_MIRRORS && client::joins_layers(client::connect(&testbed.stack).await).await {
            figures.extend(image(&testbed.stack, &registry, sizes).await);
        }
        testbed.end().await;
    }
    figures
}

/// Measures sessions on the large repository in an image with a setup and an install. They belong to a second tenant, for which the machine has cached
/// nothing yet.
async fn image(stack: &Stack, registry: &Registry, sizes: &Sizes) -> [Figure; 2] {
    registry.push_image("acme/dev", &[&layers::programs(&PROGRAMS).expect("a layer")]);
    let api = stack.other_tenant().await;
    let install = format!(
        "printf -v text '%08192d' 0; mkdir packages; for n in {{1..{}}}; do printf $text > packages/$n; done",
        sizes.install_files
    );
    let image = format!("{}/acme/dev:latest", registry.host);
    set_environment(&api, json!({"image": image, "setup": "echo made > /made", "install": install})).await;
    let mut all = [Samples::default(), Samples::default()];
    for round in 0..=sizes.image_rounds {
        all[usize::from(round > 0)].push(turn(&api, "large", "ls /made packages/1").await);
    }
    let [first, later] = all;
    let figure = |when, samples, target| {
        let name = format!("prompt -> tool result, {when} session, image with setup and install");
        Figure::times(name, samples, target)
    };
    // The scripts decide how long the first session takes.
    [figure("first", first, Target::None), figure("later", later, Target::AtMost(WARM_MS))]
}

/// Stores an environment with the credential of the repositories.
async fn set_environment(api: &Api, mut environment: Value) {
    let prefix = format!("https://{HOST}/acme/");
    environment["git"] = json!({"credentials": {prefix: "TOKEN"}});
    api.set_environment("", &environment).await;
    api.set_secret("TOKEN", TOKEN).await;
}

/// Runs a command in the first turn of a new session, and gives the time to its result. Deletes the session afterwards.
async fn turn(api: &Api, name: &str, command: &str) -> Duration {
    let from = Some(v1::source::From::GitUrl(format!("https://{HOST}/acme/{name}.git")));
    let session = api.session(Some(v1::Source { from, revision: String::new() })).await;
    let mut watch = Watch::start(api, &session).await;
    let begun = Instant::now();
    api.prompt(&session, &format!("{}\n@text over", bash(command))).await.expect("an accepted prompt");
    let call = watch.until_tool("completed").await;
    let duration = begun.elapsed();
    assert_eq!(call["state"]["metadata"]["exit"], 0, "{call}");
    assert_eq!(watch.until_idle().await, "done");
    let request = v1::DeleteSessionRequest { session_id: session };
    api.sessions().delete_session(request).await.expect("a deleted session");
    duration
}

/// A repository whose history is much larger than its files.
fn large_repository(sizes: &Sizes) -> Repository {
    let large = repository(&[]);
    for commit in 0..sizes.commits {
        let mut bytes = vec![];
        let random = File::open("/dev/urandom").expect("random bytes");
        random.take(sizes.file_bytes).read_to_end(&mut bytes).expect("random bytes");
        let name = format!("file-{}", commit % 30);
        std::fs::write(large.path().join(&name), bytes).expect("a file");
        large.git(&["add", &name]);
        large.git(&["commit", "--quiet", "--message=change"]);
    }
    large
}

/// Makes one pack of a repository of the server.
fn pack(directory: &Path) {
    let mut git = std::process::Command::new("git");
    let packed = git.args(["repack", "-a", "-d", "--quiet", "--window=0"]).current_dir(directory).status();
    assert!(packed.expect("git").success());
}
