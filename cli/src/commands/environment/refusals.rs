//! What a session was refused by the network, for people who try an environment: its session is deleted afterwards, and its log goes with it.

use crate::{
    client::{Client, Paged, all_pages, call},
    commands::session::egress,
    terminal::{output::Output, paint::one_line},
};
use anyhow::Result;
use rpc::v1::{EgressAccess, ErrorCode, ListEgressRequest};
use std::collections::{BTreeMap, btree_map::Entry};

/// Refused hosts that are shown to people. A note counts the others.
const SHOWN_HOSTS: usize = 20;
/// Characters of a host.
const HOST_CHARS: usize = 100;

/// Shows the hosts that a session was refused, each with the setting that allows it. A log that cannot be read is told and ends nothing.
///
/// # Errors
/// If the output is closed.
pub(super) async fn show(client: &Client, output: &Output, session: &str) -> Result<()> {
    let accesses = match list(client, output, session).await {
        Ok(accesses) => accesses,
        Err(error) => {
            output.note(&format!("cannot read which hosts the session was refused: {error:#}"));
            return Ok(());
        }
    };
    let refused = gather(accesses);
    if output.is_json() {
        return refused.iter().try_for_each(|access| output.json(&egress::to_json(access)));
    }
    for access in refused.iter().take(SHOWN_HOSTS) {
        output.note(&sentence(access));
    }
    if let Some(more) = refused.len().checked_sub(SHOWN_HOSTS).filter(|more| *more > 0) {
        output.note(&format!("and {more} more refusals; --json lists all of them"));
    }
    Ok(())
}

async fn list(client: &Client, output: &Output, session: &str) -> Result<Vec<EgressAccess>> {
    all_pages(async |page| {
        let request = ListEgressRequest { session_id: session.to_owned(), page: Some(page) };
        let list = async || client.sessions().list_egress(request.clone()).await;
        let answer = call("list the network use", list).await?;
        if answer.newest_missing {
            output.note(egress::NEWEST_MISSING);
        }
        Ok(Paged { entries: answer.accesses, next_cursor: answer.next_cursor })
    })
    .await
}

/// The refusals, one for each host and code.
fn gather(accesses: Vec<EgressAccess>) -> Vec<EgressAccess> {
    let mut refused: BTreeMap<(String, String), EgressAccess> = BTreeMap::new();
    for access in accesses.into_iter().filter(|access| !access.code.is_empty()) {
        match refused.entry((access.host.clone(), access.code.clone())) {
            Entry::Vacant(entry) => {
                entry.insert(access);
            }
            Entry::Occupied(mut entry) => {
                let sum = entry.get_mut();
                sum.began_at_ms = sum.began_at_ms.min(access.began_at_ms);
                sum.connections += access.connections;
                sum.bytes += access.bytes;
            }
        }
    }
    refused.into_values().collect()
}

fn sentence(access: &EgressAccess) -> String {
    let host = if access.host.is_empty() {
        "a request without a host".to_owned()
    } else {
        one_line(&access.host, HOST_CHARS)
    };
    let times =
        if access.connections == 1 { "once".to_owned() } else { format!("{} times", access.connections) };
    let help = match ErrorCode::parse(&access.code) {
        Some(ErrorCode::EgressHostNotAllowed) => {
            ": `environment.network.allow` opens it to commands, `environment.network.setup` to the setup and the install"
        }
        Some(ErrorCode::EgressPermissionNeeded) => {
            ": `environment.network.allow` opens it to commands; with `environment.network.ask` a person allows it when an agent asks"
        }
        Some(ErrorCode::GitPrefixMissing) => {
            ": a prefix in `environment.git.credentials` opens its repositories"
        }
        _ => "",
    };
    format!("{host} was refused {times} ({}){help}", one_line(&access.code, HOST_CHARS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusals_of_a_host_are_one_line_with_the_setting_that_allows_it() {
        let access = |host: &str, code: &str, connections| EgressAccess {
            host: host.to_owned(),
            code: code.to_owned(),
            connections,
            ..EgressAccess::default()
        };
        let not_allowed = "egress_host_not_allowed";
        let refused = gather(vec![
            access("pypi.org", not_allowed, 2),
            access("pypi.org", "", 7),
            access("pypi.org", not_allowed, 1),
            access("h\n", "egress_unreachable", 1),
            access("", "egress_request_invalid", 4),
        ]);
        let lines: Vec<String> = refused.iter().map(sentence).collect();
        assert_eq!(
            lines,
            [
                "a request without a host was refused 4 times (egress_request_invalid)",
                "h was refused once (egress_unreachable)",
                "pypi.org was refused 3 times (egress_host_not_allowed): `environment.network.allow` opens it to commands, \
                 `environment.network.setup` to the setup and the install",
            ]
        );
    }
}
