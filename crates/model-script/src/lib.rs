//! The scripted model: a real HTTP server that speaks Anthropic Messages (`POST /v1/messages`), OpenAI Chat Completions
//! (`POST /v1/chat/completions`), OpenAI Responses (`POST /v1/responses`) and Gemini (`POST /v1beta/models/…`), with or
//! without streaming, and answers from a script. Flotilla uses it if no model key is set, and tests use it as the
//! remote end. It contains no language model.
//!
//! # Answers
//!
//! 1. A request for a title (its prompt contains `title generator` or begins with `generate a title`) gets the lines
//!    `@title …` of the prompt, for example `@title @status 500`, or the prompt's first words.
//! 2. A request for a summary (its system prompt begins with `You sum up a conversation`) gets the lines `@summary …`
//!    of the conversation, for example `@summary @status 413`, or a short summary.
//! 3. A prompt with directives gets the steps that they define.
//! 4. A prompt that matches a rule of the [`script::Script`] gets that rule's steps.
//! 5. Any other prompt gets one sentence that explains the scripted model.
//!
//! The server keeps no conversation. The number of assistant messages after the newest user prompt in the request
//! selects the step. After the last step the answer is a closing text. Only the attempts of steps with faults are
//! counted.
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
//! Faults apply to their step. They hit every attempt, or the first `times`; several faults take turns. An invalid line
//! is answered with status 400 and the reason; lines without a directive are prose.
//!
//! ```text
//! @status 429 retry-after-ms=50 times=2     also: retry-after=1
//! @cut 3 times=1                     breaks the connection after 3 pieces; `@cut 3 clean` ends it properly
//! @stall                             never answers; `@stall 3` falls silent after 3 pieces
//! @html                              a web page instead of an answer
//! @garbage 2                         after 2 pieces, bytes that match no protocol
//! @blind                             status 400 for a request with pictures or documents
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

/// Answers requests on `listener` from `script` until `stop` is ready; running answers then break off.
///
/// # Errors
/// The listener's.
///
/// Dropped midway: the server accepts no further connections, and running answers break off.
pub async fn serve(
    listener: TcpListener,
    script: Script,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    server::serve(listener, script, stop).await
}

#[cfg(test)]
mod tests;
