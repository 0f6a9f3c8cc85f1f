//! `flotilla messages`: the conversation of a session; and the messages that other commands name.

use super::render::Renderer;
use crate::{
    client::{Client, Paged, all_pages, call, first_pages},
    exit::{Exit, coded},
    lookup::{self, Fit},
    stream::item::{Event, Item},
    terminal::{
        output::Output,
        paint::{Paint, one_line},
        table::{Side, Table},
    },
};
use anyhow::{Context as _, Result};
use rpc::v1::{ErrorCode, ListMessagesRequest, Message, Page};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

/// Characters of a text in the list of ids.
const TEXT_CHARS: usize = 60;
const USER: &str = "user";

/// `flotilla messages`.
#[derive(Debug, clap::Args)]
pub(crate) struct MessagesArgs {
    /// The session.
    pub(crate) id: String,
    /// One line for each message, with its id, for `revert`, `fork --before` and `diff --message`.
    #[arg(long, conflicts_with = "json")]
    ids: bool,
}

pub(crate) async fn run(client: &Client, output: &Output, arguments: MessagesArgs) -> Result<Exit> {
    let messages = load(client, &arguments.id).await?;
    if arguments.ids {
        let lines = messages.iter().map(IdLine::of).collect::<Result<Vec<_>>>()?;
        output.page(&ids(&lines, output.paint()))?;
        return Ok(Exit::Done);
    }
    if output.is_json() {
        messages.iter().try_for_each(|message| output.write(&message_json(message)?))?;
        return Ok(Exit::Done);
    }
    let mut renderer = Renderer::new(output.paint());
    let texts = messages.iter().map(|message| message_text(&mut renderer, message));
    output.page(&texts.collect::<Result<String>>()?)?;
    Ok(Exit::Done)
}

/// Loads a whole conversation, from its beginning.
///
/// # Errors
/// The refusal of the gateway.
pub(super) async fn load(client: &Client, session_id: &str) -> Result<Vec<Message>> {
    let mut messages = all_pages(async |page| list(client, session_id, page).await).await?;
    messages.reverse();
    Ok(messages)
}

/// Loads a page of a conversation, the newest message first.
async fn list(client: &Client, session_id: &str, page: Page) -> Result<Paged<Message>> {
    let request = ListMessagesRequest { session_id: session_id.to_owned(), page: Some(page) };
    let list = async || client.messages().list_messages(request.clone()).await;
    let answer = call("list messages", list).await?;
    // Pages arrive newest first, each in the order of the conversation.
    let entries = answer.messages.into_iter().rev().collect();
    Ok(Paged { entries, next_cursor: answer.next_cursor })
}

/// The id of the message that a person names by it, or by the beginning or the end of it.
///
/// # Errors
/// `message_not_found`, `message_ambiguous`; the refusal of the gateway.
pub(super) async fn find(client: &Client, session_id: &str, named: &str) -> Result<String> {
    if lookup::is_whole(named) {
        return Ok(named.to_owned());
    }
    let messages = load(client, session_id).await?;
    match lookup::fit(&messages, |message| &message.id, named) {
        Fit::One(message) => Ok(message.id.clone()),
        Fit::Several(_) => Err(coded("message_ambiguous", format!("several messages fit {named:?}"))),
        Fit::Nothing => Err(coded(
            ErrorCode::MessageNotFound,
            format!("no message fits {named:?}; `flotilla messages {session_id} --ids` lists them"),
        )),
    }
}

/// Like [`find`]; empty if nobody names a message.
///
/// # Errors
/// Those of [`find`].
pub(super) async fn find_or_none(client: &Client, session_id: &str, named: Option<&str>) -> Result<String> {
    match named {
        Some(named) => find(client, session_id, named).await,
        None => Ok(String::new()),
    }
}

/// The id of the last prompt of a session. Says which it is.
///
/// # Errors
/// `message_not_found`; the refusal of the gateway.
pub(super) async fn last_prompt(client: &Client, output: &Output, session_id: &str) -> Result<String> {
    let is_prompt = |message: &Message| {
        message.role == USER && message.parts.iter().any(|part| part.kind != "compaction")
    };
    let prompts = first_pages(1, async |page| {
        let mut page = list(client, session_id, page).await?;
        page.entries.retain(is_prompt);
        Ok(page)
    });
    let last = prompts.await?.entries.pop();
    let last =
        last.ok_or_else(|| coded(ErrorCode::MessageNotFound, "the session has no prompt to revert"))?;
    output.note(&format!("the last prompt is {}  {}", last.id, IdLine::of(&last)?.text));
    Ok(last.id)
}

/// A message in the list of ids.
struct IdLine<'a> {
    message: &'a Message,
    /// How it begins, or the tools that it calls.
    text: String,
}

impl<'a> IdLine<'a> {
    fn of(message: &'a Message) -> Result<Self> {
        let parts = message.parts.iter().map(|part| serde_json::from_str::<Value>(&part.json));
        let parts = parts.collect::<Result<Vec<_>, _>>().context("read a message")?;
        let text = parts.iter().find(|part| part["type"] == "text" && part["synthetic"] != true);
        let text = match text {
            Some(part) => part["text"].as_str().unwrap_or_default().trim().to_owned(),
            None => {
                let tools = parts.iter().filter_map(|part| part["tool"].as_str());
                format!("({})", tools.collect::<Vec<_>>().join(", "))
            }
        };
        Ok(Self { message, text: one_line(&text, TEXT_CHARS) })
    }
}

fn ids(lines: &[IdLine<'_>], paint: Paint) -> String {
    let mut table = Table::new([("MESSAGE", Side::Left), ("ROLE", Side::Left), ("TEXT", Side::Left)]);
    for IdLine { message, text } in lines {
        table.push([message.id.clone(), message.role.clone(), text.clone()]);
    }
    table.text(paint)
}

fn message_json(message: &Message) -> Result<String> {
    // Raw: OpenCode's objects, as the server sends them.
    #[derive(Serialize)]
    struct Line<'a> {
        r#type: &'static str,
        info: &'a RawValue,
        parts: Vec<&'a RawValue>,
    }
    let raw = |json| serde_json::from_str(json).context("read a message");
    let parts = message.parts.iter().map(|part| raw(&part.json)).collect::<Result<Vec<_>>>()?;
    let line = Line { r#type: "message", info: raw(&message.info_json)?, parts };
    Ok(format!("{}\n", serde_json::to_string(&line).context("write a message")?))
}

/// Shows a stored message as the stream would show it.
fn message_text(renderer: &mut Renderer, message: &Message) -> Result<String> {
    let event = |kind: &str, properties: Value| {
        let (kind, at_ms) = (kind.to_owned(), 0);
        Item::Event(Event { seq: 0, epoch: 0, kind, properties, at_ms })
    };
    let parse = |json: &str| serde_json::from_str::<Value>(json).context("read a message");
    let mut text = renderer.feed(&event("message.updated", json!({"info": parse(&message.info_json)?})));
    for part in &message.parts {
        text.push_str(&renderer.feed(&event("message.part.updated", json!({"part": parse(&part.json)?}))));
    }
    text.push_str(&renderer.finish());
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::tests::fake::{Fake, SESSION};

    #[tokio::test]
    async fn the_ids_of_messages_stand_beside_their_texts() {
        let (fake, output) = (Fake::default(), Output::kept(false));
        fake.run(&output, &["messages", SESSION, "--ids"]).await.unwrap();
        let lines: Vec<String> = output.take().lines().map(str::to_owned).collect();
        assert!(lines[1].starts_with("msg_1ffcce3d00015Oy45kUL559D51  user  1"), "{lines:?}");
        assert_eq!(lines.len(), 5);
    }

    #[tokio::test]
    async fn a_message_is_named_by_its_end_and_the_last_prompt_needs_no_name() {
        let (fake, output) = (Fake::default(), Output::kept(false));
        let client = fake.serve().await;
        let find = async |named: &str| {
            find(&client, SESSION, named).await.map_err(|error| crate::exit::code(&error))
        };
        assert_eq!(find("9D53").await.unwrap(), "msg_1ffcce3d00015Oy45kUL559D53");
        assert_eq!(find("1ffcce3d").await.unwrap_err(), "message_ambiguous");
        assert_eq!(find("nope").await.unwrap_err(), "message_not_found");
        let json = Output::kept(true);
        fake.run(&json, &["diff", SESSION, "--message", "9D53"]).await.unwrap();
        assert!(json.take().contains(r#""message_id":"msg_1ffcce3d00015Oy45kUL559D53""#));
        fake.run(&output, &["revert", SESSION]).await.unwrap();
        assert_eq!(fake.0.lock().unwrap().orders, ["revert msg_1ffcce3d00015Oy45kUL559D54"]);
        assert!(output.take_notes().starts_with("the last prompt is msg_1ffcce3d00015Oy45kUL559D54  4"));
    }
}
