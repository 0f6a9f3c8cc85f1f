//! The scripted model: a real HTTP server that speaks Anthropic Messages (`POST /v1/messages`), OpenAI Chat Completions
//! (`POST /v1/chat/completions`), OpenAI Responses (`POST /v1/responses`) and Gemini (`POST /v1beta/models/…`), streaming
//! or not, and answers by a script. It is what Flotilla uses when no model key is set, and the far end in tests. It is
//! not a model.
//!
//! # What it answers
//!
//! 1. A request for a title (its prompt says `title generator` or begins with `generate a title`): what the lines `@title …` of
//!    the prompt say, for example `@title @status 500`, or its first words.
//! 2. A request for a summary (its system prompt begins with `You sum up a conversation`): what the lines `@summary …` of the
//!    conversation say, for example `@summary @status 413`, or a short summary.
//! 3. A prompt with directives: what they say.
//! 4. A prompt that a rule of the [`script::Script`] matches: that rule's steps.
//! 5. Everything else: one sentence that says what this is.
//!
//! It keeps no conversation: the step to play is the number of assistant messages after the newest prompt of the user
//! in the request. After the last step it says a closing text. Only the attempts at steps with faults are counted.
//!
//! # Directives: lines of a prompt that begin with `@`
//!
//! ```text
//! @text I will look around. {{last_tool_result}} is replaced by the newest tool output.
//! @reason The user wants a test run.
//! @tool bash {"command":"true"}      ends its step: the next thing said or called is a new step
//! @tools                             the calls that follow belong to one step
//! @tool read {"filePath":"/workspace/a"}
//! @tool read {"filePath":"/workspace/b"}
//! @step                              begins a step
//! @delay 20                          milliseconds before each piece, from this step on
//! @chunk 5                           characters of a piece, from this step on
//! @finish length                     stop, tool-calls, length, content-filter, or the provider's own word
//! @usage input=10 output=5 reasoning=0 cache_read=0 cache_write=0
//! ```
//!
//! Faults belong to the step that they stand in, and hit every attempt, or the first `times`; several faults take
//! turns. What does not fit is answered with status 400 and the reason; other lines are prose.
//!
//! ```text
//! @status 429 retry-after-ms=50 times=2     also: retry-after=1
//! @cut 3 times=1                     breaks the connection after 3 pieces; `@cut 3 clean` ends it properly
//! @stall                             never answers; `@stall 3` falls silent after 3 pieces
//! @html                              a web page in place of an answer
//! @garbage 2                         after 2 pieces, bytes that are no protocol
//! ```
//!
//! # Scripts: TOML
//!
//! ```toml
//! closing = "That is all."                 # optional
//!
//! [[rule]]
//! match = ["fix", "test"]                  # all of them occur in the prompt, in any case; or one text; or left out
//! [[rule.step]]
//! delay_ms = 15
//! chunk = 12
//! reasoning = "Let me run the tests."
//! text = "I run them."
//! tool = [{ name = "bash", input = { command = "./test.sh" } }]
//! [[rule.step]]
//! fault = [{ status = 429, retry_after_ms = 50, times = 2 }, { cut = 3, times = 1 }]
//! text = "They say: {{last_tool_result}}"
//! finish = "stop"
//! usage = { input = 10, output = 5 }
//! ```

pub mod journal;
pub mod limits;
pub mod script;

mod anthropic;
mod body;
mod conversation;
mod directives;
mod gemini;
mod openai;
mod play;
mod responses;
mod server;

use script::Script;
use std::future::Future;
use std::io;
use tokio::net::TcpListener;

/// Answers requests on `listener` by `script` until `stop` is ready; then running answers break off.
///
/// # Errors
/// The listener's.
///
/// Dropped midway: no new connections are taken, and running answers break off.
pub async fn serve(
    listener: TcpListener,
    script: Script,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    server::serve(listener, script, stop).await
}

#[cfg(test)]
mod tests;
