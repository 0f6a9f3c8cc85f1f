//! The clients of the hostile tenant, in a process of their own. In real life they run on other machines. Here their process yields to the
//! services and to the client of the other tenant, so that the figures show the service and not the load of its clients.

use super::{
    attack::{self, Tally},
    http::Http,
    sizes::Sizes,
};
use crate::api::Api;
use serde::{Deserialize, Serialize};
use std::{
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::Arc,
};
use tokio_util::sync::CancellationToken;

/// The nice value of the process and of its session, in which many kernels compare nice values.
const NICE: &str = "10";
/// The program that has [`run`] as a subcommand.
const PROGRAM: &str = "flotilla-bench";

/// What the process attacks, on its input.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    gateway_url: String,
    key: String,
    project_id: String,
    sizes: Sizes,
}

/// The running process. It ends when this value is dropped.
pub(super) struct Attackers {
    process: Child,
    /// It attacks until its input ends.
    input: ChildStdin,
}

impl Attackers {
    /// Begins to attack with the key of the hostile tenant.
    pub(super) fn start(gateway_url: &str, hostile: &Api, sizes: &Sizes) -> Self {
        let order = Order {
            gateway_url: gateway_url.to_owned(),
            key: hostile.key.clone(),
            project_id: hostile.project_id.clone(),
            sizes: sizes.clone(),
        };
        let mut command = Command::new("setsid");
        command.args(["nice", "-n", NICE]).arg(program()).arg("attackers");
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the process of the attackers");
        let mut input = process.stdin.take().expect("its input");
        serde_json::to_writer(&mut input, &order).expect("a process that reads its order");
        std::io::Write::write_all(&mut input, b"\n").expect("a process that reads its order");
        Self { process, input }
    }

    /// Ends the attacks, and returns what became of each.
    pub(super) async fn stop(self) -> Vec<Tally> {
        let Self { process, input } = self;
        drop(input);
        let output = tokio::task::spawn_blocking(move || process.wait_with_output());
        let output = output.await.expect("a thread that waits").expect("the output of the attackers");
        assert!(output.status.success(), "the attackers ended: {}", output.status);
        serde_json::from_slice(&output.stdout).expect("the tallies of the attackers")
    }
}

/// Attacks as the order on the input says until the input ends, and returns the tallies as JSON.
///
/// # Errors
/// When the order cannot be read.
pub async fn run() -> anyhow::Result<String> {
    // Where the kernel has no such file, the nice value of the process is enough.
    drop(std::fs::write("/proc/self/autogroup", NICE));
    let mut order = String::new();
    std::io::stdin().read_line(&mut order)?;
    let order: Order = serde_json::from_str(&order)?;
    let stop = CancellationToken::new();
    let attacks = attack::all(&order.sizes);
    let mut api = Api::with_key(&order.gateway_url, &order.key);
    api.project_id = order.project_id;
    let http = Http::new(&order.gateway_url, &api);
    let running: Vec<_> = attacks
        .iter()
        .map(|attack| {
            tokio::spawn(attack::repeat(Arc::clone(attack), api.clone(), http.clone(), stop.clone()))
        })
        .collect();
    tokio::task::spawn_blocking(|| std::io::stdin().lines().count()).await?;
    stop.cancel();
    for task in running {
        task.await?;
    }
    let tallies: Vec<Tally> = attacks.iter().map(|attack| attack.tally()).collect();
    Ok(serde_json::to_string(&tallies)?)
}

/// Finds the program next to this one. Tests are one directory deeper.
fn program() -> PathBuf {
    let own = std::env::current_exe().expect("this program");
    let found =
        own.ancestors().skip(1).take(2).map(|directory| directory.join(PROGRAM)).find(|path| path.exists());
    found.expect("flotilla-bench is built; if not, run `cargo build --workspace`")
}
