//! Cuts tool outputs to what a model should read. The sandbox keeps the whole output, which the model can read with its tools.

use crate::{
    process::clean,
    tools::{
        context::{Bounds, CallContext},
        outcome::{OUTPUT_PATH, Output, TRUNCATED, ToolError, completed_metadata, sandbox_error},
        registry::find,
        tool::Tool,
    },
};
use domain::{limits, text};
use rpc::v1;

/// A title is one line in a list. A longer one is cut.
const TITLE_BYTES_MAX: usize = 200;

/// Cuts an answer that is too long at the end of a line, stores the whole answer and tells the model where it is. Removes
/// characters that Postgres cannot store.
///
/// # Errors
/// `Fenced`: another worker owns the session. If the whole answer cannot be stored, the cut answer is still returned.
pub(crate) async fn bounded(ctx: &CallContext, output: Output) -> Result<Output, ToolError> {
    let mut output = cleaned(output);
    if find(&ctx.call.tool).is_ok_and(gives_pages) {
        return Ok(output);
    }
    let Some(excerpt) = cut(&output.text, ctx.bounds).map(ToOwned::to_owned) else { return Ok(output) };
    let whole = std::mem::replace(&mut output.text, excerpt);
    let (lines, bytes) = (whole.lines().count(), whole.len());
    output.metadata.insert(TRUNCATED.to_owned(), true.into());
    let rest = match keep(ctx, &whole).await {
        Ok(path) => {
            output.metadata.insert(OUTPUT_PATH.to_owned(), path.clone().into());
            format!("It is in {path}: search it with grep, or read parts of it with offset and limit.")
        }
        Err(ToolError::Fenced) => return Err(ToolError::Fenced),
        Err(ToolError::Model(_) | ToolError::Broken(_)) => "Request less, or another part.".to_owned(),
    };
    output.text.push_str(&format!("\n\n(Cut: the whole answer has {lines} lines and {bytes} bytes. {rest})"));
    Ok(output)
}

/// Whether a tool returns its answers in pages within the bounds, and tells the model itself how to continue.
fn gives_pages(tool: Tool) -> bool {
    [Tool::Bash, Tool::Read].contains(&tool)
}

/// Stores an answer in the sandbox, where the tools of the session can read it, and returns its path.
async fn keep(ctx: &CallContext, whole: &str) -> Result<String, ToolError> {
    let most = usize::try_from(limits::EXEC_OUTPUT_BYTES_MAX).unwrap_or(usize::MAX);
    let request = v1::KeepOutputRequest {
        fence: ctx.identity.fence(),
        output_id: ctx.call.exec_id.clone(),
        data: text::head(whole, most).as_bytes().to_vec(),
    };
    let answer = ctx.deps.sandbox.call(|mut client| {
        let request = request.clone();
        async move { client.keep_output(request).await }
    });
    match answer.await {
        Ok(answer) => Ok(answer.path),
        Err(status) => {
            tracing::warn!("cannot keep the whole answer of a tool: {}", status.message());
            Err(sandbox_error(&status))
        }
    }
}

/// An answer without characters that Postgres cannot store, and with a title of one line.
pub(crate) fn cleaned(mut output: Output) -> Output {
    output.text = text::without_nul(&output.text).into_owned();
    output.metadata = completed_metadata(clean::map(output.metadata));
    output.title = text::without_nul(text::head(&output.title, TITLE_BYTES_MAX)).into_owned();
    output
}

/// The beginning of a text that is too long; `None` if it is short enough.
fn cut(full: &str, bounds: Bounds) -> Option<&str> {
    let by_lines = full.match_indices('\n').nth(bounds.lines - 1).map(|(end, _)| &full[..end]);
    // A line break at the end of a text does not start another line.
    let by_lines = by_lines.filter(|lines| lines.len() + 1 < full.len());
    let lines = by_lines.unwrap_or(full);
    if lines.len() <= bounds.bytes {
        return by_lines;
    }
    let head = text::head(lines, bounds.bytes);
    Some(head.rfind('\n').map_or(head, |end| &head[..end]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use settings::{Settings, ToolOutput};

    #[test]
    fn short_answers_stay_as_they_are() {
        for text in ["", "a\nb\n", &"line\n".repeat(limits::TOOL_OUTPUT_LINES_MAX)] {
            assert_eq!(cut(text, Bounds::default()), None, "{}", text.len());
        }
        let output = cleaned(Output { text: "a\0b".to_owned(), ..Output::default() });
        assert_eq!(output.text, "a\u{fffd}b");
    }

    #[test]
    fn long_answers_are_cut_at_a_line() {
        let lines = "line\n".repeat(limits::TOOL_OUTPUT_LINES_MAX + 5);
        let excerpt = cut(&lines, Bounds::default()).unwrap();
        assert_eq!(excerpt.lines().count(), limits::TOOL_OUTPUT_LINES_MAX);
        let bytes = format!("{}\n{}", "é".repeat(10_000), "x".repeat(60_000));
        assert_eq!(cut(&bytes, Bounds::default()), Some("é".repeat(10_000).as_str()));
        let one = "y".repeat(200_000);
        assert_eq!(cut(&one, Bounds::default()).unwrap().len(), limits::TOOL_OUTPUT_BYTES_MAX);
        assert_eq!(cut("a\nb\nc", Bounds { lines: 2, bytes: 100 }), Some("a\nb"));
        assert_eq!(cut("ab\ncd\nef", Bounds { lines: 9, bytes: 4 }), Some("ab"));
    }

    #[test]
    fn settings_say_how_much_is_shown() {
        let of = |max_lines, max_bytes| {
            let tool_output = ToolOutput { max_lines, max_bytes };
            Bounds::of(&Settings { tool_output, ..Settings::default() })
        };
        assert_eq!(of(None, None), Bounds::default());
        assert_eq!(of(Some(7), Some(100)), Bounds { lines: 7, bytes: 100 });
    }
}
