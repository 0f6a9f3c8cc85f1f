//! `flotilla egress`: what a session reached of the network, and what it was refused.

use crate::{
    client::{Client, call},
    exit::Exit,
    terminal::{
        output::{ListText, Output},
        paint::{Paint, one_line},
        show,
        table::{Side, Table},
    },
};
use anyhow::Result;
use domain::limits::PAGE_MAX;
use rpc::v1::{EgressAccess, ListEgressRequest, ListEgressResponse, Page};
use serde_json::{Value, json};

/// The note about a log whose newest entries the broker has not stored.
pub(crate) const NEWEST_MISSING: &str =
    "the broker does not answer, so connections of the last seconds may be missing; try again later";
/// Characters of a host in the table.
const HOST_CHARS: usize = 60;

/// `flotilla egress`.
#[derive(Debug, clap::Args)]
pub(crate) struct EgressArgs {
    #[command(subcommand)]
    command: EgressCommand,
}

impl EgressArgs {
    /// The session, as a person named it.
    pub(crate) fn session_mut(&mut self) -> &mut String {
        let EgressCommand::Log { id, .. } = &mut self.command;
        id
    }
}

#[derive(Debug, clap::Subcommand)]
enum EgressCommand {
    /// Show the hosts that a session and its subtasks reached or were refused, newest last.
    Log {
        /// The session.
        id: String,
        /// Entries to show, the newest ones.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(PAGE_MAX)))]
        limit: u32,
    },
}

pub(crate) async fn run(client: &Client, output: &Output, arguments: EgressArgs) -> Result<Exit> {
    let EgressCommand::Log { id: session_id, limit } = arguments.command;
    let page = Some(Page { limit, cursor: String::new() });
    let request = ListEgressRequest { session_id, page };
    let list = async || client.sessions().list_egress(request.clone()).await;
    let ListEgressResponse { mut accesses, newest_missing, .. } = call("list the network use", list).await?;
    accesses.reverse();
    let none = "this session has not used the network; `environment.network.allow` in the project's settings lists the hosts that it may reach";
    output.list(&accesses, &ListText { to_json, table: &table, none })?;
    if newest_missing {
        output.note(NEWEST_MISSING);
    }
    Ok(Exit::Done)
}

fn table(accesses: &[EgressAccess], paint: Paint) -> String {
    let now_ms = show::now_ms();
    let mut table = Table::new([
        ("AGO", Side::Right),
        ("HOST", Side::Left),
        ("RESULT", Side::Left),
        ("CONNECTIONS", Side::Right),
        ("BYTES", Side::Right),
    ]);
    for access in accesses {
        table.push([
            show::age(now_ms.saturating_sub(access.began_at_ms)),
            if access.host.is_empty() { "–".to_owned() } else { one_line(&access.host, HOST_CHARS) },
            if access.code.is_empty() { "ok".to_owned() } else { one_line(&access.code, HOST_CHARS) },
            access.connections.to_string(),
            access.bytes.to_string(),
        ]);
    }
    table.text(paint)
}

/// An access as `--json` shows it.
pub(crate) fn to_json(access: &EgressAccess) -> Value {
    let optional = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "type": "egress_access", "began_at_ms": access.began_at_ms, "host": optional(&access.host), "code": optional(&access.code),
        "connections": access.connections, "bytes": access.bytes,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::tests::fake::Fake;

    #[tokio::test]
    async fn refusals_are_listed_with_what_went_through_newest_last() {
        let (fake, output) = (Fake::default(), Output::kept(false));
        fake.run(&output, &["egress", "log", "ses_1"]).await.unwrap();
        let text = output.take();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("pypi.org") && lines[1].contains("ok"), "{text}");
        assert!(lines[2].contains("egress_request_invalid"), "{text}");
        assert_eq!(output.take_notes(), "");
    }

    #[tokio::test]
    async fn a_log_that_may_lack_the_last_seconds_says_so() {
        let (fake, output) = (Fake::default(), Output::kept(false));
        fake.0.lock().unwrap().broker_is_away = true;
        fake.run(&output, &["egress", "log", "ses_1"]).await.unwrap();
        assert!(output.take().contains("pypi.org"));
        assert_eq!(output.take_notes(), format!("{NEWEST_MISSING}\n"));
    }
}
