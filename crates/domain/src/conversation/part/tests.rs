use super::*;
use serde_json::json;

fn check(json: Value) {
    let part: Part = serde_json::from_value(json.clone()).expect("a part");
    assert_eq!(serde_json::to_value(part).expect("json"), json);
}

#[test]
fn parts_keep_opencodes_json() {
    let part = |mut rest: Value| {
        let object = rest.as_object_mut().expect("object");
        object.insert("id".into(), json!("prt_1"));
        object.insert("sessionID".into(), json!("ses_1"));
        object.insert("messageID".into(), json!("msg_1"));
        rest
    };
    check(part(json!({"type":"text","text":"a","time":{"start":1,"end":2}})));
    check(part(json!({"type":"reasoning","text":"a","time":{"start":1},"metadata":{"signature":"s"}})));
    check(part(json!({"type":"text","text":"a","synthetic":true,"metadata":{"compaction_continue":true}})));
    check(part(json!({"type":"step-start"})));
    check(part(json!({"type":"step-start","snapshot":"abc"})));
    check(part(json!({"type":"snapshot","snapshot":"abc"})));
    check(part(json!({"type":"patch","hash":"abc","files":["/workspace/a"]})));
    check(part(json!({"type":"agent","name":"explore","source":{"value":"@explore","start":0,"end":8}})));
    check(part(json!({"type":"subtask","prompt":"p","description":"d","agent":"general",
        "model":{"providerID":"a","modelID":"b"},"command":"c"})));
    check(part(json!({"type":"compaction","auto":true})));
    check(part(json!({"type":"compaction","auto":true,"overflow":false,"tail_start_id":"msg_1"})));
    check(part(
        json!({"type":"file","mime":"image/png","filename":"a.png","url":"data:image/png;base64,AA=="}),
    ));
    for source in [
        json!({"type":"file","path":"a","text":{"value":"@a","start":0,"end":2}}),
        json!({"type":"symbol","path":"a","text":{"value":"@f","start":0,"end":2},"name":"f","kind":12,
            "range":{"start":{"line":1,"character":0},"end":{"line":2,"character":0}}}),
        json!({"type":"resource","clientName":"c","uri":"x://y","text":{"value":"@y","start":0,"end":2}}),
    ] {
        check(part(json!({"type":"file","mime":"text/plain","url":"file:///workspace/a","source":source})));
    }
    check(part(json!({"type":"step-finish","reason":"stop","cost":0.00321,
        "tokens":{"input":1,"output":2,"reasoning":0,"cache":{"read":0,"write":0}}})));
    check(part(json!({"type":"tool","callID":"c","tool":"bash",
        "state":{"status":"pending","input":{},"raw":""}})));
    check(part(json!({"type":"tool","callID":"c","tool":"bash",
        "state":{"status":"completed","input":{"command":"true"},"output":"","title":"true","metadata":{"exit":0},
                 "time":{"start":1,"end":2}}})));
    let picture = part(json!({"type":"file","mime":"image/png","url":"data:image/png;base64,AA=="}));
    check(part(json!({"type":"tool","callID":"c","tool":"read",
        "state":{"status":"completed","input":{},"output":"","title":"","metadata":{},
                 "time":{"start":1,"end":2,"compacted":3},"attachments":[picture]}})));
}

#[test]
fn an_unknown_kind_is_refused() {
    let json = json!({"id":"prt_1","sessionID":"ses_1","messageID":"msg_1","type":"hologram"});
    assert!(serde_json::from_value::<Part>(json).is_err());
}
