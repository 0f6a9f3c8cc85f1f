//! The time from the first prompt of a session on a private repository to the result of its first tool call: with mirrors, and with a sandbox
//! service that keeps none.

use crate::{
    Options,
    bench::{
        figure::{Figure, Target},
        samples::Samples,
        testbed::{Servers, Testbed},
    },
    settings::Outside,
    turn::{Watch, bash},
};
use rpc::v1;
use serde_json::json;
use std::{fs::File, io::Read as _, path::Path, time::Instant};
use testkit::{
    git::{Repository, repository},
    git_server::GitServer,
};

const HOST: &str = "git.example.com";
const TOKEN: &str = "token-of-the-benchmark";
/// The targets for a repository of 1 GB; milliseconds.
const COLD_MS: f64 = 15_000.0;
const WARM_MS: f64 = 3_000.0;
/// Arguments of a sandbox service without mirrors.
const WITHOUT: &[&str] = &["--mirror-bytes", "0"];
const WITH_MIRRORS: &str = "with mirrors";

/// The sizes of the measurements.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Commits of the large repository, each with a file that git cannot compress.
    commits: usize,
    /// Bytes of each of these files.
    file_bytes: u64,
    /// Later sessions on each repository.
    rounds: usize,
}

impl Sizes {
    /// Returns the sizes for the report: 1 GB in 1,000 commits.
    pub fn full() -> Self {
        Self { commits: 1_000, file_bytes: 1_000_000, rounds: 6 }
    }

    /// Returns small sizes, to check that it runs.
    pub fn smoke() -> Self {
        Self { commits: 2, file_bytes: 10_000, rounds: 1 }
    }
}

/// Measures both kinds of machines alternately. The broker has the servers that tests share; they make no difference here.
pub async fn measure(sizes: &Sizes) -> Vec<Figure> {
    let server = GitServer::start(&[HOST]).await;
    server.require(&format!("x-access-token:{TOKEN}"));
    server.push("acme/small.git", &repository(&[("file", "small\n")]));
    let large = large_repository(sizes);
    server.push("acme/large.git", &large);
    pack(&server.directory("acme/large.git"));
    let outside = Outside {
        hosts: vec![format!("{HOST}={}", server.address)],
        git_certificate: Some(server.certificate.clone()),
        ..Outside::default()
    };
    let mut machines = vec![];
    for (kind, sandbox_arguments) in [("without mirrors", WITHOUT), (WITH_MIRRORS, &[])] {
        let options =
            Options { broker: true, outside: outside.clone(), sandbox_arguments, ..Options::default() };
        let testbed = Testbed::start(&Servers::Shared, options).await;
        allow(&testbed).await;
        machines.push((kind, testbed));
    }
    let mut figures = vec![];
    for name in ["small", "large"] {
        let mut all = [(); 2].map(|()| [Samples::default(), Samples::default()]);
        for round in 0..=sizes.rounds {
            for ((_, testbed), samples) in machines.iter().zip(&mut all) {
                samples[usize::from(round > 0)].push(turn(testbed, name).await);
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
    for (_, testbed) in machines {
        testbed.end().await;
    }
    figures
}

/// Stores the credential.
async fn allow(testbed: &Testbed) {
    let prefix = format!("https://{HOST}/acme/");
    testbed.stack.api.set_environment("", &json!({"git": {"credentials": {prefix: "TOKEN"}}})).await;
    testbed.stack.api.set_secret("TOKEN", TOKEN).await;
}

/// Runs the first turn of a new session, and gives the time to its first tool result. Deletes the session afterwards.
async fn turn(testbed: &Testbed, name: &str) -> std::time::Duration {
    let api = &testbed.stack.api;
    let from = Some(v1::source::From::GitUrl(format!("https://{HOST}/acme/{name}.git")));
    let session = api.session(Some(v1::Source { from, revision: String::new() })).await;
    let mut watch = Watch::start(api, &session).await;
    let begun = Instant::now();
    api.prompt(&session, &format!("{}\n@text over", bash("ls"))).await.expect("an accepted prompt");
    watch.until_tool("completed").await;
    let duration = begun.elapsed();
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
