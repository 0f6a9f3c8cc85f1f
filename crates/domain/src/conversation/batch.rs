//! What the calls of a `batch` would do, in the arguments by which clients show a call to the person who allows it. OpenCode has no
//! `batch`: its clients know the arguments of the calls inside only.

use serde_json::{Map, Value};

pub const NAME: &str = "batch";
/// The arguments that clients show, and what separates those of several calls.
const SHOWN: [(&str, &str); 5] =
    [("command", "\n"), ("filePath", ", "), ("path", ", "), ("pattern", ", "), ("url", ", ")];

/// The arguments of all calls inside a batch that clients show, each as one text. Empty for arguments that are no batch.
pub fn shown_arguments(input: &Value) -> Map<String, Value> {
    let calls = input.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let argument = |name: &str, separator: &str| {
        let all = calls.iter().filter_map(|call| call.get("parameters")?.get(name)?.as_str());
        let all: Vec<&str> = all.collect();
        (!all.is_empty()).then(|| (name.to_owned(), Value::from(all.join(separator))))
    };
    SHOWN.iter().filter_map(|(name, separator)| argument(name, separator)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_batch_shows_the_arguments_of_all_its_calls() {
        let call = |tool: &str, parameters: Value| json!({"tool": tool, "parameters": parameters});
        let input = json!({"tool_calls": [
            call("bash", json!({"command": "git status", "timeout": 5})),
            call("write", json!({"filePath": "/workspace/a", "content": "x"})),
            call("bash", json!({"command": "ls"})),
            call("glob", json!("*")),
        ]});
        let want = json!({"command": "git status\nls", "filePath": "/workspace/a"});
        assert_eq!(Value::from(shown_arguments(&input)), want);
        for input in [json!({}), json!({"tool_calls": 1}), json!({"tool_calls": [1]}), Value::Null] {
            assert_eq!(shown_arguments(&input), Map::new(), "{input}");
        }
    }
}
