//! What one turn used: the sum over the answers to its prompt.

use super::item::Event;
use domain::money::UsdPicos;
use rpc::v1::Tokens;
use serde_json::Value;
use std::collections::BTreeMap;

/// The usage of one turn so far.
#[derive(Debug)]
pub(crate) struct TurnUsage {
    /// The message of the prompt.
    prompt: String,
    answers: BTreeMap<String, (Tokens, i64)>,
}

impl TurnUsage {
    /// The usage of the turn that answers a prompt.
    pub(crate) fn of(prompt: &str) -> Self {
        Self { prompt: prompt.to_owned(), answers: BTreeMap::new() }
    }

    pub(crate) fn observe(&mut self, event: &Event) {
        let info = &event.properties["info"];
        if event.kind != "message.updated" || info["parentID"] != self.prompt.as_str() {
            return;
        }
        let count = |value: &Value| value.as_u64().unwrap_or_default();
        let tokens = &info["tokens"];
        let tokens = Tokens {
            input: count(&tokens["input"]),
            output: count(&tokens["output"]),
            reasoning: count(&tokens["reasoning"]),
            cache_read: count(&tokens["cache"]["read"]),
            cache_write: count(&tokens["cache"]["write"]),
        };
        let cost = info["cost"].as_f64().and_then(UsdPicos::from_dollars).unwrap_or_default();
        self.answers.insert(info["id"].as_str().unwrap_or_default().to_owned(), (tokens, cost.0));
    }

    /// The tokens, and the cost in 10^-12 US dollars.
    pub(crate) fn sum(&self) -> (Tokens, i64) {
        self.answers.values().fold((Tokens::default(), 0), |(sum, cost), (tokens, more)| {
            let sum = Tokens {
                input: sum.input + tokens.input,
                output: sum.output + tokens.output,
                reasoning: sum.reasoning + tokens.reasoning,
                cache_read: sum.cache_read + tokens.cache_read,
                cache_write: sum.cache_write + tokens.cache_write,
            };
            (sum, cost + more)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_answers_to_the_prompt_count_and_each_once() {
        let mut usage = TurnUsage::of("msg_1");
        for (id, parent, input, cost) in [
            ("a", "msg_1", 1, 0.5),
            ("a", "msg_1", 10, 0.75),
            ("b", "msg_0", 99, 9.0),
            ("c", "msg_1", 5, 0.25),
        ] {
            let tokens =
                json!({"input": input, "output": 2, "reasoning": 0, "cache": {"read": 3, "write": 0}});
            let info = json!({"id": id, "parentID": parent, "tokens": tokens, "cost": cost});
            let kind = "message.updated".to_owned();
            usage.observe(&Event { seq: 1, epoch: 1, kind, properties: json!({"info": info}), at_ms: 0 });
        }
        let (tokens, cost) = usage.sum();
        assert_eq!((tokens.input, tokens.output, tokens.cache_read, cost), (15, 4, 6, 1_000_000_000_000));
    }
}
