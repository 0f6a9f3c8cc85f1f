//! `flotilla-convert`: converts foreign content (pages of the web, shell text, edits, patches, diffs, schemas) in a process of its
//! own. It waits for one request on its input, writes the reply to its output, and ends. The content may be hostile: the program
//! raises its walls before it reads the first byte, holds no secret, and tells its parent by its exit status which wall ended it.

mod diff;
mod edit;
mod lines;
mod page;
mod patch;
mod rewrite;
mod schema;
mod shell;
mod walls;

use anyhow::Context as _;
use convert_client::{
    bounds::REQUEST_BYTES_MAX,
    reply::{Change, Commands, READ_MARK},
    request::{FileEdits, FilePatch, Request},
};
use rewrite::Rewritten;
use std::io::{Read as _, Write as _};

fn main() -> anyhow::Result<()> {
    walls::raise().context("raise the walls")?;
    let mut request = vec![];
    std::io::stdin().take(REQUEST_BYTES_MAX as u64).read_to_end(&mut request).context("read the request")?;
    let mut output = std::io::stdout();
    output.write_all(&[READ_MARK]).and_then(|()| output.flush()).context("note that the request is read")?;
    let request: Request = postcard::from_bytes(&request).context("decode the request")?;
    let reply = reply(request).context("encode the reply")?;
    output.write_all(&reply).context("write the reply")
}

/// Performs a conversion and encodes its reply.
fn reply(request: Request) -> Result<Vec<u8>, postcard::Error> {
    match request {
        Request::Page(page) => postcard::to_allocvec(&page::convert(&page)),
        Request::Commands(lines) => {
            let commands: Vec<Commands> = lines.iter().map(|line| shell::commands(line)).collect();
            postcard::to_allocvec(&commands)
        }
        Request::Edits(FileEdits { path, before, edits }) => {
            let after = edit::apply(&before, &edits);
            postcard::to_allocvec(&after.map(|after| change(&path, &before, after)))
        }
        Request::Patch(FilePatch { path, before, hunks }) => {
            let after = patch::apply(&path, &before, &hunks);
            postcard::to_allocvec(&after.map(|after| change(&path, &before, after)))
        }
        Request::Diff(file) => postcard::to_allocvec(&diff::compare(&file.path, &file.before, &file.after)),
        Request::Schema(check) => postcard::to_allocvec(&schema::check(&check)),
    }
}

fn change(path: &str, before: &str, after: Rewritten) -> Change {
    let Rewritten { text: after, inexact_lines } = after;
    Change { diff: diff::compare(path, before, &after), after, inexact_lines }
}
