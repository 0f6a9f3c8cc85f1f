#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use domain::money::Price;
use llm::request::{Media, Message, Source, ToolResult, UserPart};

fn model() -> Model {
    let base = Rates { input: 3, output: 15, cache_read: 1, cache_write: 4 };
    let dear = Rates { input: 6, output: 22, cache_read: 2, cache_write: 8 };
    Model {
        context_tokens: 100_000,
        output_tokens: 1_000,
        price: Price { base, tiers: vec![(50_000, dear)] },
        ..llm::catalogue::find_or_default("m")
    }
}

fn plan(messages: Vec<Message>, output_tokens_max: u64) -> CallPlan {
    let provider =
        llm::config::environment::from_env(&|name| (name == "ANTHROPIC_API_KEY").then(|| "key".to_owned()));
    CallPlan {
        provider: provider.unwrap().providers.find("anthropic", "claude-haiku-4-5").unwrap().0.clone(),
        model: model(),
        request: Request { messages, output_tokens_max, ..Request::default() },
        session: "ses_1".parse().unwrap(),
        purpose: Purpose::Step,
    }
}

fn text(bytes: usize) -> Message {
    Message::User(vec![UserPart::Text("x".repeat(bytes))])
}

#[test]
fn a_call_costs_at_most_what_its_bytes_and_limits_allow() {
    let media = Media { mime: "image/png".into(), name: "a".into(), source: Source::Base64("AA==".into()) };
    let picture = Message::User(vec![UserPart::Media(media.clone())]);
    let result = ToolResult { media: vec![media], ..ToolResult::default() };
    let items = |count: i64| count * i64::try_from(TOKENS_PER_ITEM_MAX).unwrap();
    for (what, messages, output, want) in [
        ("nothing but the answer", vec![], 10, items(1) * 4 + 10 * 15),
        ("a text", vec![text(1_000)], 10, (1_000 + items(2)) * 4 + 10 * 15),
        ("the model's longest answer", vec![], 0, items(1) * 4 + 1_000 * 15),
        ("an answer beyond the model's longest", vec![], 9_999, items(1) * 4 + 1_000 * 15),
        ("a dearer tier", vec![text(60_000)], 10, (60_000 + items(2)) * 8 + 10 * 22),
        ("more than the model takes", vec![text(900_000)], 10, 100_000 * 8 + 10 * 22),
        ("a picture", vec![picture], 10, 100_000 * 8 + 10 * 22),
        ("a picture of a tool", vec![Message::ToolResults(vec![result])], 10, 100_000 * 8 + 10 * 22),
    ] {
        assert_eq!(plan(messages, output).cost_max(), UsdPicos(want), "{what}");
    }
}

#[test]
fn a_bill_lists_the_calls_whose_usage_is_known() {
    let bill = Bill::default();
    let entry = |id: &str| LedgerEntry {
        id: id.to_owned(),
        purpose: Purpose::Title,
        outcome: CallOutcome::Aborted,
        model: ModelRef { provider_id: "p".into(), model_id: "m".into() },
        tokens: Tokens::default(),
        cost: UsdPicos(0),
        cost_max: None,
    };
    bill.begin(entry("a"));
    bill.begin(entry("b"));
    assert_eq!(bill.entries(), []);
    let tokens = Tokens { input: 7, ..Tokens::default() };
    bill.clone().update("b", |entry| (entry.tokens, entry.cost) = (tokens, UsdPicos(21)));
    assert_eq!(bill.entries(), [LedgerEntry { tokens, cost: UsdPicos(21), ..entry("b") }]);
}
