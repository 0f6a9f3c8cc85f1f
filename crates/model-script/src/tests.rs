#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::conversation::{self, Conversation};
use super::play::{Attempts, Piece, ScriptedAnswer};
use super::script::{Fault, FaultKind, Item, Script, ScriptError, Step, Usage};
use super::{
    directives, gemini,
    limits::{CHUNK_CHARS, TOOL_RESULT_BYTES_MAX},
    play, responses,
};
use serde_json::{Value, json};

fn text(text: &str) -> Item {
    Item::Text(text.to_owned())
}

fn tool(name: &str, input: Value) -> Item {
    Item::Tool { name: name.to_owned(), input }
}

fn step(items: Vec<Item>) -> Step {
    Step { items, ..Step::default() }
}

fn fault(kind: FaultKind, times: Option<u64>) -> Fault {
    Fault { kind, times }
}

fn user(text: &str) -> Value {
    json!({"role":"user","content":[{"type":"text","text":text}]})
}

fn called() -> Value {
    json!({"role":"assistant","content":[{"type":"tool_use","id":"a","name":"bash","input":{}}]})
}

fn result(text: &str) -> Value {
    json!({"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":text}]})
}

fn read(messages: &[Value]) -> Conversation {
    conversation::read(&json!({"messages": messages}), "ses_1")
}

fn answer(script: &Script, messages: &[Value]) -> ScriptedAnswer {
    let conversation = read(messages);
    let step = play::step(script, &conversation).unwrap();
    play::answer(&step, &conversation, &json!({"model":"m","messages": messages}))
}

fn says(script: &Script, messages: &[Value]) -> String {
    let piece = |piece: Piece| match piece {
        Piece::Text(text) => text,
        Piece::Reasoning(_) => String::new(),
        Piece::Tool { name, arguments, .. } => format!("[{name} {arguments}]"),
    };
    answer(script, messages).pieces.into_iter().map(piece).collect()
}

#[test]
fn calls_end_steps_and_groups_hold_several() {
    let steps = directives::parse(
        "please\n@text a\n@text b\n  @tool bash {\"command\":\"true\"}\n@reason r\n@tools\n@tool x\n@tool y {}\n@text end\n@README.md",
    );
    let want = [
        step(vec![text("a\nb"), tool("bash", json!({"command":"true"}))]),
        step(vec![Item::Reasoning("r".to_owned()), tool("x", json!({})), tool("y", json!({}))]),
        step(vec![text("end")]),
    ];
    assert_eq!(steps.unwrap(), want);
    assert_eq!(directives::parse("mail me @ home\n@nobody").unwrap(), []);
    let first = directives::parse("@tools\n@tool x\n@tool y");
    assert_eq!(
        first.unwrap(),
        [step(vec![tool("x", json!({})), tool("y", json!({}))])],
        "a group may be the first"
    );
}

#[test]
fn settings_last_and_faults_stay_with_their_step() {
    let steps = directives::parse(
        "@delay 20\n@chunk 5\n@status 429 retry-after-ms=50 retry-after=1 times=2\n@cut 3 clean times=1\n@text a\n@step\n@text b\n\
         @finish length\n@usage input=1 output=2 reasoning=3 cache_read=4 cache_write=5\n@tool t\n@stall\n@html\n@garbage 2",
    );
    let base = Step { chunk_chars: 5, delay_ms: 20, ..Step::default() };
    let status =
        FaultKind::Status { status: 429, retry_after_ms: Some(50), retry_after: Some("1".to_owned()) };
    let first = Step {
        items: vec![text("a")],
        faults: vec![fault(status, Some(2)), fault(FaultKind::Cut { pieces: 3, is_clean: true }, Some(1))],
        ..base.clone()
    };
    let second = Step {
        items: vec![text("b"), tool("t", json!({}))],
        faults: vec![
            fault(FaultKind::Stall { pieces: None }, None),
            fault(FaultKind::Html, None),
            fault(FaultKind::Garbage { pieces: 2 }, None),
        ],
        finish: Some("length".to_owned()),
        usage: Some(Usage { input: 1, output: 2, reasoning: 3, cache_read: 4, cache_write: 5 }),
        ..base
    };
    assert_eq!(steps.unwrap(), [first, second]);
}

#[test]
fn what_does_not_fit_is_refused_with_its_line() {
    for line in [
        "@tool",
        "@tool bash {oops",
        "@delay soon",
        "@delay 9999999",
        "@chunk 0",
        "@finish",
        "@usage input=x",
        "@usage colour=3",
        "@status 200",
        "@status",
        "@cut x",
        "@stall 3 clean",
        "@html times=x",
    ] {
        let error = directives::parse(line).unwrap_err();
        assert!(error.starts_with(&format!("`{line}`")), "{error}");
    }
}

#[test]
fn a_script_says_the_same_as_directives() {
    let script = Script::parse(
        r#"
        closing = "bye"
        [[rule]]
        match = ["Fix", "test"]
        [[rule.step]]
        delay_ms = 15
        chunk = 7
        reasoning = "r"
        text = "t"
        tool = [{ name = "bash", input = { command = "x", n = 1 } }, { name = "list" }]
        fault = [{ status = 500 }, { cut = 3, times = 1 }, { cut = 3, clean = true }, { stall = true }, { stall = 0 },
                 { html = true }, { garbage = 2 }]
        finish = "stop"
        usage = { input = 10 }
        [[rule]]
        [[rule.step]]
        text = "other"
        "#,
    )
    .unwrap();
    let status = FaultKind::Status { status: 500, retry_after_ms: None, retry_after: None };
    let want = Step {
        items: vec![
            Item::Reasoning("r".to_owned()),
            text("t"),
            tool("bash", json!({"command":"x","n":1})),
            tool("list", json!({})),
        ],
        faults: vec![
            fault(status, None),
            fault(FaultKind::Cut { pieces: 3, is_clean: false }, Some(1)),
            fault(FaultKind::Cut { pieces: 3, is_clean: true }, None),
            fault(FaultKind::Stall { pieces: None }, None),
            fault(FaultKind::Stall { pieces: Some(0) }, None),
            fault(FaultKind::Html, None),
            fault(FaultKind::Garbage { pieces: 2 }, None),
        ],
        finish: Some("stop".to_owned()),
        usage: Some(Usage { input: 10, ..Usage::default() }),
        chunk_chars: 7,
        delay_ms: 15,
    };
    assert_eq!(script.find("please FIX the tests"), Some([want].as_slice()));
    assert_eq!(says(&script, &[user("fix")]), "other");
    for (wrong, is_bound) in [
        ("[[rule]]\ncolour = 1", false),
        ("[[rule]]\n[[rule.step]]\nfault = [{ cat = 1 }]", false),
        ("[[rule]]\n[[rule.step]]\nfault = [{ html = false }]", false),
        ("[[rule]]\n[[rule.step]]\ndelay_ms = 999999", true),
    ] {
        let error = Script::parse(wrong).unwrap_err();
        assert_eq!(matches!(error, ScriptError::Bound { .. }), is_bound, "{wrong}: {error:?}");
    }
}

#[test]
fn the_step_follows_from_the_conversation() {
    let script = Script::default();
    let prompt = user("@text one\n@tool bash {}\n@text two: {{last_tool_result}}");
    let results = |text: &str, more: &[Value]| {
        let blocks: Vec<Value> = std::iter::once(result(text)).chain(more.iter().cloned()).collect();
        json!({"role":"user","content": blocks})
    };
    let reminder = json!({"type":"text","text":"<system-reminder>be nice</system-reminder>"});
    let steer = json!({"type":"text","text":"@text steered"});
    let after = |last: Value| [prompt.clone(), called(), last];
    assert_eq!(says(&script, std::slice::from_ref(&prompt)), "one[bash {}]");
    assert_eq!(says(&script, &after(results("out\n", &[]))), "two: out");
    assert_eq!(says(&script, &after(results("out", &[reminder]))), "two: out");
    assert_eq!(says(&script, &after(results("out", &[steer]))), "steered");
    let openai = [
        json!({"role":"system","content":"be nice"}),
        json!({"role":"user","content":"@tool bash {}\n@text {{last_tool_result}}"}),
        json!({"role":"assistant","content":null,"tool_calls":[]}),
        json!({"role":"tool","tool_call_id":"a","content":"out"}),
    ];
    assert_eq!(says(&script, &openai), "out");
    let whole = [prompt, called(), results("out", &[]), called(), user("and now?")];
    assert_eq!(says(&script, &whole[..4]), "That was the last step of the script.");
    assert!(says(&script, &whole).contains("scripted model"));
}

#[test]
fn tool_output_in_texts_is_bounded() {
    let long = "ä".repeat(TOOL_RESULT_BYTES_MAX);
    let messages =
        [user("@tool bash\n@text {{last_tool_result}}"), called(), json!({"role":"tool","content":long})];
    let text = says(&Script::default(), &messages);
    assert!(text.ends_with('…') && text.len() <= TOOL_RESULT_BYTES_MAX + "…".len(), "{}", text.len());
}

#[test]
fn titles_never_play_a_step() {
    let title = [user("Generate a title for this conversation:\n"), user("Fix it\n@tool bash {}")];
    assert_eq!(says(&Script::demo().unwrap(), &title), "Fix it");
    let body =
        json!({"system":[{"type":"text","text":"You are a title generator."}],"messages":[user("@text x")]});
    let conversation = conversation::read(&body, "");
    let step = play::step(&Script::default(), &conversation).unwrap();
    assert_eq!(step, Step::text("Scripted session"));
    let title = "Generate a title for this conversation:\n\n@text out\n@title @text A title\nand prose";
    assert_eq!(says(&Script::default(), &[json!({"role":"system","content":"x"}), user(title)]), "A title");
    assert_eq!(says(&Script::default(), &[user("@title @status 500\n@text out")]), "out");
}

#[test]
fn faults_take_turns_by_attempt() {
    let html = |times| fault(FaultKind::Html, times);
    let step = Step {
        faults: vec![fault(FaultKind::Stall { pieces: None }, Some(1)), html(Some(2))],
        ..Step::default()
    };
    let mut attempts = Attempts::default();
    let here = read(&[user("a")]);
    let mut next = |conversation: &Conversation| play::fault(&step, conversation, &mut attempts).cloned();
    assert_eq!(next(&here), Some(FaultKind::Stall { pieces: None }));
    assert_eq!(next(&here), Some(FaultKind::Html));
    assert_eq!(
        next(&read(&[user("b")])),
        Some(FaultKind::Stall { pieces: None }),
        "another prompt counts apart"
    );
    assert_eq!(next(&here), Some(FaultKind::Html));
    assert_eq!(next(&here), None);
    assert_eq!(next(&read(&[user("a"), user("a")])), Some(FaultKind::Stall { pieces: None }), "said again");
    let always = Step { faults: vec![html(None)], ..Step::default() };
    assert_eq!((always.fault(0), always.fault(99)), (Some(&FaultKind::Html), Some(&FaultKind::Html)));
}

#[test]
fn the_same_request_gives_the_same_answer() {
    let messages = [user("@tool bash {}")];
    let first = answer(&Script::default(), &messages);
    assert_eq!(first, answer(&Script::default(), &messages));
    assert_eq!(
        (first.chunk_chars, first.finish.as_str(), first.model.as_str()),
        (CHUNK_CHARS, "tool-calls", "m")
    );
    assert_ne!(first.id, answer(&Script::default(), &[user("@tool bash {}"), called()]).id);
}

#[test]
fn the_demonstration_fixes_exactly_the_broken_line() {
    let script = Script::demo().unwrap();
    let mut messages = vec![user("Please fix the failing tests")];
    let mut calls = Vec::new();
    for _ in 0..4 {
        let answer = answer(&script, &messages);
        let call = answer.pieces.into_iter().find_map(|piece| match piece {
            Piece::Tool { name, arguments, .. } => {
                Some((name, serde_json::from_str::<Value>(&arguments).unwrap()))
            }
            Piece::Text(_) | Piece::Reasoning(_) => None,
        });
        calls.push(call.unwrap());
        messages.extend([called(), json!({"role":"user","content":[result("1 passed")]})]);
    }
    let names: Vec<&str> = calls.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["bash", "read", "edit", "bash"]);
    let edit = json!({
        "filePath": "/workspace/greet.sh",
        "oldString": r#"  printf 'Hello, %s' "$1""#,
        "newString": r#"  printf 'Hello, %s!\n' "${1:-world}""#,
    });
    assert_eq!(calls[2].1, edit);
    assert!(says(&script, &messages).contains("```\n1 passed\n```"));
}

#[test]
fn every_protocol_tells_the_same_conversation() {
    let prompt = "@tool bash {}\n@text {{last_tool_result}}";
    let responses = responses::plain(
        &json!({"model":"m","stream":true,"instructions":"You are a title generator.","input":[
            {"type":"message","role":"user","content":[{"type":"input_text","text":prompt}]},
            {"type":"reasoning","encrypted_content":"e"},
            {"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look."}]},
            {"type":"function_call","call_id":"a","name":"bash","arguments":"{}"},
            {"type":"function_call_output","call_id":"a","output":[{"type":"input_text","text":"out"}]},
        ]}),
    );
    let gemini = gemini::plain(
        &json!({"systemInstruction":{"parts":[{"text":"You are a title generator."}]},"contents":[
            {"role":"user","parts":[{"text":prompt}]},
            {"role":"model","parts":[{"functionCall":{"name":"bash","args":{}},"thoughtSignature":"s"}]},
            {"role":"user","parts":[{"functionResponse":{"name":"bash","response":{"output":"out"}}}]},
        ]}),
        "/v1beta/models/m:streamGenerateContent",
    );
    for plain in [responses, gemini] {
        assert_eq!((&plain["model"], &plain["stream"]), (&json!("m"), &json!(true)));
        let conversation = conversation::read(&plain, "");
        assert_eq!((conversation.prompt.as_str(), conversation.step), (prompt, 1), "{plain}");
        assert_eq!((conversation.last_tool_result.as_str(), conversation.is_title), ("out", true));
    }
}

#[test]
fn requests_that_the_real_provider_refuses_are_refused() {
    let items = |items: Value| responses::complaint(&json!({"input": items}));
    let call = json!({"type":"function_call","call_id":"a"});
    let output = json!({"type":"function_call_output","call_id":"a"});
    let thought = json!({"type":"reasoning","id":"rs_1","summary":[]});
    let says = json!({"type":"message","role":"user"});
    let short = json!({"type":"message","role":"assistant","content":"t"});
    let long = json!({"type":"message","role":"assistant","id":"msg_1","status":"completed","content":[]});
    assert_eq!(items(json!([says, thought, call, output, short, long])), None);
    let (nameless, unknown) =
        (json!({"type":"reasoning","summary":[]}), json!({"type":"message","role":"assistant","content":[]}));
    for refused in [
        json!([call]),
        json!([output]),
        json!([thought]),
        json!([thought, says]),
        json!([nameless, call, output]),
        json!([unknown]),
    ] {
        assert!(items(refused.clone()).is_some(), "{refused}");
    }
    let parts = |contents: &[&Value]| {
        let contents: Vec<Value> = contents.iter().map(|part| json!({"parts":[part]})).collect();
        gemini::complaint(&json!({"contents": contents}))
    };
    let signed = json!({"functionCall":{},"thoughtSignature":"s"});
    let (bare, answered, text) =
        (json!({"functionCall":{}}), json!({"functionResponse":{}}), json!({"text":"t"}));
    assert_eq!(parts(&[&text, &signed, &answered]), None);
    for refused in [&[&text, &signed][..], &[&signed, &text], &[&bare, &answered], &[&answered]] {
        assert!(parts(refused).is_some(), "{refused:?}");
    }
}
