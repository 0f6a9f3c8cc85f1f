#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use serde_json::json;

struct Numbers(u32);

impl IdSource for Numbers {
    fn message(&mut self) -> MessageId {
        self.0 += 1;
        format!("msg_new{}", self.0).parse().unwrap()
    }

    fn part(&mut self) -> PartId {
        self.0 += 1;
        format!("prt_new{}", self.0).parse().unwrap()
    }
}

fn entry(info: Value, parts: &[Value]) -> MessageWithParts {
    let part = |(number, part): (usize, &Value)| {
        let mut part = part.clone();
        part["id"] = json!(format!("prt_{}{number}", info["id"].as_str().unwrap().replace("msg_", "")));
        (part["messageID"], part["sessionID"]) = (info["id"].clone(), json!("ses_old"));
        (number as u64, serde_json::from_value(part).unwrap())
    };
    let parts = parts.iter().enumerate().map(part).collect();
    MessageWithParts { seq: 1, message: serde_json::from_value(info).unwrap(), parts }
}

fn talk() -> Vec<MessageWithParts> {
    let user = |id: &str| {
        json!({"role": "user", "id": id, "sessionID": "ses_old", "time": {"created": 1}, "agent": "build",
               "model": {"providerID": "p", "modelID": "m"}})
    };
    let step = |id: &str, time: Value| {
        json!({"role": "assistant", "id": id, "sessionID": "ses_old", "time": time, "agent": "build",
               "providerID": "p", "modelID": "m", "mode": "build", "path": {"cwd": "/", "root": "/"}, "cost": 0,
               "parentID": "msg_1", "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}})
    };
    vec![
        entry(
            user("msg_1"),
            &[
                json!({"type": "file", "mime": "text/plain", "url": "file:///workspace/a"}),
                json!({"type": "text", "text": "read", "synthetic": true, "metadata": {"file": "prt_10"}}),
            ],
        ),
        entry(
            step("msg_2", json!({"created": 1, "completed": 2})),
            &[
                json!({"type": "step-start", "snapshot": "aa"}),
                json!({"type": "text", "text": "said"}),
                json!({"type": "patch", "hash": "aa", "files": []}),
            ],
        ),
        entry(user("msg_3"), &[json!({"type": "compaction", "auto": false, "tail_start_id": "msg_1"})]),
        entry(step("msg_4", json!({"created": 1})), &[json!({"type": "text", "text": "still running"})]),
    ]
}

/// The outline of [`talk`].
fn outline() -> Vec<MessageOutline> {
    let outline = (1..).zip(talk()).map(|(seq, entry)| {
        let is_prompt = matches!(entry.message, Message::User(_));
        MessageOutline { seq, id: entry.message.id().clone(), is_prompt, parts: vec![] }
    });
    outline.collect()
}

fn copied(end: &CopyEnd<'_>) -> Vec<Value> {
    let talk = talk();
    let count = end.before_seq(&outline()).unwrap() - 1;
    let session = "ses_new".parse().unwrap();
    let end = CopyEnd { message: end.message, part: end.part };
    let mut copier = Copier::new(&session, end, Numbers(0), Timestamp(5));
    let (first, rest) = talk[..usize::try_from(count).unwrap()].split_at(1);
    let events = [copier.events(first), copier.events(rest)].concat();
    let copied = events.iter().map(|event| {
        let properties = event.properties(&session);
        let (info, part) = (properties["info"].clone(), properties["part"].clone());
        if info.is_null() { part } else { info }
    });
    copied.collect()
}

#[test]
fn a_copy_has_new_ids_everywhere_and_no_snapshots() {
    let all = copied(&CopyEnd { message: None, part: None });
    let names: Vec<&str> = all.iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["msg_new1", "prt_new2", "prt_new3", "msg_new4", "prt_new5", "prt_new6", "msg_new8", "prt_new9"]
    );
    assert!(all.iter().all(|it| it["sessionID"] == "ses_new"), "{all:?}");
    assert_eq!(all[2]["metadata"]["file"], "prt_new2");
    assert_eq!(all[3]["parentID"], "msg_new1");
    assert_eq!((&all[4]["snapshot"], &all[5]["messageID"]), (&Value::Null, &json!("msg_new4")));
    assert_eq!(all[7]["tail_start_id"], "msg_new1");
}

#[test]
fn a_copy_ends_before_a_message_or_a_part() {
    let (message, part) = ("msg_2".parse().unwrap(), "prt_21".parse().unwrap());
    let kinds =
        |end: &CopyEnd<'_>| -> Vec<Value> { copied(end).iter().map(|it| it["type"].clone()).collect() };
    let prompt = [Value::Null, json!("file"), json!("text")];
    assert_eq!(kinds(&CopyEnd { message: Some(&message), part: None }), prompt);
    let with_part = [&prompt[..], &[Value::Null, json!("step-start")]].concat();
    assert_eq!(kinds(&CopyEnd { message: Some(&message), part: Some(&part) }), with_part);
    let missing = "msg_9".parse().unwrap();
    assert_eq!(CopyEnd { message: Some(&missing), part: None }.before_seq(&outline()), None);
}

#[test]
fn titles_count_forks() {
    assert_eq!(title("Fix it"), "Fix it (fork #1)");
    assert_eq!(title("Fix it (fork #1)"), "Fix it (fork #2)");
    assert_eq!(title("Fix it (fork #x)"), "Fix it (fork #x) (fork #1)");
    assert!(title(&"ä".repeat(5_000)).len() <= domain::limits::NAME_BYTES_MAX);
}
