use super::*;
use serde_json::json;

fn check(json: Value) {
    let message: Message = serde_json::from_value(json.clone()).expect("a message");
    assert_eq!(serde_json::to_value(message).expect("json"), json);
}

fn with(mut message: Value, more: Value) -> Value {
    let fields = more.as_object().expect("an object").clone();
    message.as_object_mut().expect("an object").extend(fields);
    message
}

fn user() -> Value {
    json!({"role":"user","id":"msg_1","sessionID":"ses_1","time":{"created":1},"agent":"build",
        "model":{"providerID":"p","modelID":"m"}})
}

fn assistant() -> Value {
    json!({"role":"assistant","id":"msg_2","sessionID":"ses_1","time":{"created":1},"parentID":"msg_1",
        "providerID":"p","modelID":"m","mode":"build","agent":"build","path":{"cwd":"/","root":"/"},"cost":0,
        "tokens":{"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}}})
}

#[test]
fn prompts_keep_opencodes_json() {
    check(user());
    check(with(user(), json!({"model":{"providerID":"p","modelID":"m","variant":"high"}})));
    check(with(user(), json!({"system":"s","tools":{"bash":false},"format":{"type":"text"}})));
    let format = json!({"type":"json_schema","schema":{"type":"object"},"retryCount":2});
    check(with(user(), json!({"format":format,"summary":{"diffs":[]}})));
    check(with(user(), json!({"format":{"type":"json_schema","schema":{}}})));
    let diff = json!({"file":"a","patch":"@@","additions":1,"deletions":0,"status":"modified"});
    check(with(user(), json!({"summary":{"diffs":[diff,{"additions":0,"deletions":2}]}})));
}

#[test]
fn answers_keep_opencodes_json() {
    check(assistant());
    check(with(
        assistant(),
        json!({"variant":"low","summary":true,"structured":{"answer":42},"finish":"stop"}),
    ));
    let error = json!({"name":"StructuredOutputError","data":{"message":"no","retries":2}});
    check(with(assistant(), json!({"error":error})));
    assert_eq!(serde_json::to_value(Error::structured("no", 2)).expect("json"), error);
}

#[test]
fn an_error_tells_what_it_is() {
    assert!(Error::overflow("long").is_overflow() && !Error::overflow("long").is_abort());
    assert!(Error::aborted().is_abort() && !Error::aborted().is_overflow());
}
