//! `flotilla budget`: the common budget of a session and its subtasks.

use crate::{
    client::{Client, call},
    exit::Exit,
    terminal::{output::Output, show},
};
use anyhow::Result;
use domain::money::UsdPicos;
use rpc::v1::{Budget, GetSessionBudgetRequest, SetSessionBudgetRequest};
use serde_json::json;

/// `flotilla budget`.
#[derive(Debug, clap::Args)]
pub(crate) struct BudgetArgs {
    /// The session.
    pub(crate) id: String,
    /// The new limit in dollars for the session and its subtasks together, or `none`. Work that waits for the budget then
    /// continues. If omitted: show the current limit.
    #[arg(value_parser = parse)]
    max: Option<Max>,
}

/// A limit in dollars, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Max(Option<UsdPicos>);

impl Max {
    /// The limit as requests carry it.
    pub(crate) fn to_wire(self) -> i64 {
        self.0.map_or(0, |amount| amount.0)
    }
}

/// Reads `3`, `3.50`, `$3.50` or `none`.
pub(crate) fn parse(text: &str) -> Result<Max, String> {
    if text == "none" {
        return Ok(Max(None));
    }
    let dollars = text.strip_prefix('$').unwrap_or(text).parse().ok().and_then(UsdPicos::from_dollars);
    match dollars {
        Some(amount) if amount.0 > 0 => Ok(Max(Some(amount))),
        Some(_) | None => {
            Err("a budget must be a number of dollars above 0, for example 2.50, or none".to_owned())
        }
    }
}

pub(crate) async fn run(client: &Client, output: &Output, arguments: BudgetArgs) -> Result<Exit> {
    let BudgetArgs { id: session_id, max } = arguments;
    let budget = match max {
        Some(max) => {
            let request =
                SetSessionBudgetRequest { session_id: session_id.clone(), max_usd_picos: max.to_wire() };
            call("set the budget", || async { client.sessions().set_session_budget(request.clone()).await })
                .await?
                .budget
        }
        None => Some(load(client, &session_id).await?),
    };
    let budget = budget.unwrap_or_default();
    let object = json!({"type": "budget", "session_id": session_id, "spent_usd": UsdPicos(budget.spent_usd_picos).dollars(),
        "session_spent_usd": UsdPicos(budget.session_spent_usd_picos).dollars(),
        "max_usd": (budget.max_usd_picos > 0).then(|| UsdPicos(budget.max_usd_picos).dollars())});
    output.result(&sentence(budget), &object)?;
    Ok(Exit::Done)
}

/// Returns the budget of a session and its subtasks.
///
/// # Errors
/// The server's refusal, or the loss of the connection.
pub(super) async fn load(client: &Client, session_id: &str) -> Result<Budget> {
    let request = GetSessionBudgetRequest { session_id: session_id.to_owned() };
    let loaded =
        call("load the budget", || async { client.sessions().get_session_budget(request.clone()).await });
    Ok(loaded.await?.budget.unwrap_or_default())
}

/// Formats a budget: "spent $1.2500 of $2.0000, $1.0000 of it without subtasks".
pub(super) fn sentence(budget: Budget) -> String {
    let dollars = show::dollars;
    let Budget { spent_usd_picos: spent, max_usd_picos: max, session_spent_usd_picos: own } = budget;
    let limit = if max == 0 { ", no limit".to_owned() } else { format!(" of {}", dollars(max)) };
    let of_session =
        if own == spent { String::new() } else { format!(", {} of it without subtasks", dollars(own)) };
    format!("spent {}{limit}{of_session}", dollars(spent))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_limit_is_dollars_or_none() {
        for (text, picos) in [("3", 3_000_000_000_000), ("$0.5", 500_000_000_000), ("none", 0)] {
            assert_eq!(parse(text).unwrap().to_wire(), picos, "{text}");
        }
        for text in ["0", "-1", "nan", "inf", "1e30", "", "three"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_left_can_be_seen() {
        let dollar = 1_000_000_000_000;
        let budget = |max_usd_picos, session_spent_usd_picos| Budget {
            spent_usd_picos: 5 * dollar / 4,
            max_usd_picos,
            session_spent_usd_picos,
        };
        assert_eq!(sentence(budget(0, 5 * dollar / 4)), "spent $1.2500, no limit");
        assert_eq!(sentence(budget(2 * dollar, 5 * dollar / 4)), "spent $1.2500 of $2.0000");
        assert_eq!(
            sentence(budget(dollar, dollar)),
            "spent $1.2500 of $1.0000, $1.0000 of it without subtasks"
        );
    }
}
