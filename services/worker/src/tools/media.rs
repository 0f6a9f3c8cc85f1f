//! Images and documents in tool answers. Their bytes determine their type, and one call may return only a bounded
//! amount. `lower` and each protocol decide how a model sees them.

use super::{
    context::CallContext,
    outcome::{Output, ToolError, sandbox_error},
    path::relative,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    conversation::{media, part::attached::File},
    limits,
};
use rpc::v1;
use serde_json::Map;

/// Bytes of the pictures and documents that the tools of one step return, in their encoded form. Together with its texts
/// the step still fits into one gRPC message. A text takes the place of each further one.
const STEP_MEDIA_WRITTEN_BYTES_MAX: usize = 6 * 1024 * 1024;

pub(crate) async fn read(ctx: &CallContext, path: &str) -> Result<Output, ToolError> {
    let request = v1::ReadFileRequest {
        fence: ctx.identity.fence(),
        path: path.to_owned(),
        offset_bytes: 0,
        bytes_max: u32::try_from(limits::TOOL_MEDIA_BYTES_MAX).unwrap_or(u32::MAX),
    };
    let read = ctx.deps.sandbox.call(|mut client| {
        let request = request.clone();
        async move { client.read_file(request).await }
    });
    let read = read.await.map_err(|status| sandbox_error(&status))?;
    let mut output = shown(path, &read.data, read.size_bytes)?;
    output.title = relative(path);
    Ok(output)
}

/// Returns a file of `size_bytes` that begins with `data` as media.
///
/// # Errors
/// A sentence for the model: the file is neither an image nor a document, or is too large.
pub(crate) fn shown(name: &str, data: &[u8], size_bytes: u64) -> Result<Output, ToolError> {
    if media::of_bytes(data).is_none() {
        return Err(ToolError::Model(format!(
            "{name} cannot be shown: it is neither text nor a picture (PNG, JPEG, GIF, WebP) nor a PDF document."
        )));
    }
    if size_bytes > limits::TOOL_MEDIA_BYTES_MAX as u64 || size_bytes > data.len() as u64 {
        return Err(ToolError::Model(format!(
            "{name} cannot be shown: it is {size_bytes} bytes, and the limit for a picture or document is {}. Make a smaller one \
             of it, or inspect it in another way.",
            limits::TOOL_MEDIA_BYTES_MAX
        )));
    }
    let mime = media::check(data)
        .map_err(|defect| ToolError::Model(format!("{name} cannot be shown: {defect}.")))?;
    let mut metadata = Map::new();
    metadata.insert("mime".to_owned(), mime.into());
    metadata.insert("bytes".to_owned(), size_bytes.into());
    let text = if mime.starts_with("image/") { "Image read successfully" } else { "PDF read successfully" };
    let filename = name.rsplit('/').next().filter(|name| !name.is_empty()).map(ToOwned::to_owned);
    let url = format!("data:{mime};base64,{}", STANDARD.encode(data));
    let file = File { mime: mime.to_owned(), filename, url, source: None };
    Ok(Output {
        title: name.to_owned(),
        text: text.to_owned(),
        metadata,
        media: vec![file],
        ..Output::default()
    })
}

/// Whether the tools of one step may return `files` in addition to `earlier_files`.
pub(crate) fn fits<'a>(earlier_files: impl Iterator<Item = &'a File>, files: &'a [File]) -> bool {
    let (mut count, mut bytes) = (0, 0);
    for file in earlier_files.chain(files) {
        count += 1;
        bytes += file.url.len();
    }
    files.is_empty() || count <= limits::STEP_MEDIA_MAX && bytes <= STEP_MEDIA_WRITTEN_BYTES_MAX
}

/// Replaces an image for which the step has no room.
pub(crate) const TOO_MANY: &str = "Not shown: together with the other pictures and documents of this step it is more than one \
     step can return. Read it separately in the next step.";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    /// Pictures of one pixel and of 9000.
    const DOT: &[u8] = b"GIF89a\x01\0\x01\0\0\0\0;";
    const LINE: &[u8] = b"GIF89a\x28\x23\x01\0\0\0\0;";
    const PDF: &[u8] = b"%PDF-1.4\n1 0 obj";

    #[test]
    fn a_picture_or_document_is_shown_by_its_content_and_refused_when_it_is_neither_or_too_large() {
        let most = limits::TOOL_MEDIA_BYTES_MAX as u64;
        for (name, data, size, want) in [
            ("/workspace/a.gif", DOT, 14, Ok(("image/gif", "Image read successfully"))),
            ("/workspace/a.txt", DOT, 14, Ok(("image/gif", "Image read successfully"))),
            ("/workspace/a", PDF, 16, Ok(("application/pdf", "PDF read successfully"))),
            ("/workspace/a.gif", &DOT[..10], 10, Err("it is damaged or incomplete")),
            ("/workspace/a.gif", LINE, 14, Err("it is 9000 × 1 pixels, and the limit of a side is 8000")),
            ("/workspace/a.png", b"\x7fELF\0\0\0\0", 8, Err("neither text nor a picture")),
            (
                "/workspace/a.png",
                DOT,
                most + 1,
                Err("bytes, and the limit for a picture or document is 3932160"),
            ),
        ] {
            let got = shown(name, data, size).map(|output| (output.media[0].mime.clone(), output.text));
            match (got, want) {
                (Ok((mime, text)), Ok(want)) => assert_eq!((mime.as_str(), text.as_str()), want, "{name}"),
                (Err(ToolError::Model(text)), Err(want)) => assert!(text.contains(want), "{name}: {text}"),
                (got, want) => panic!("{name}: {got:?}, not {want:?}"),
            }
        }
        let file = shown("/workspace/dir/a.gif", DOT, 14).unwrap().media.remove(0);
        assert_eq!(
            (file.filename.as_deref(), file.url.as_str()),
            (Some("a.gif"), "data:image/gif;base64,R0lGODlhAQABAAAAADs=")
        );
    }

    #[test]
    fn one_step_gives_a_bounded_number_and_size() {
        let file = |bytes: usize| File {
            mime: "image/png".to_owned(),
            filename: None,
            url: "x".repeat(bytes),
            source: None,
        };
        let fits = |known: &[File], files: &[File]| super::fits(known.iter(), files);
        let half = STEP_MEDIA_WRITTEN_BYTES_MAX / 2;
        assert!(fits(&[file(half)], &[file(half)]) && !fits(&[file(half)], &[file(half + 1)]));
        let many = vec![file(1); limits::STEP_MEDIA_MAX];
        assert!(fits(&many[1..], &[file(1)]) && !fits(&many, &[file(1)]) && fits(&many, &[]));
        let one = limits::TOOL_MEDIA_BYTES_MAX.div_ceil(3) * 4 + 100;
        assert!(fits(&[], &[file(one)]), "the largest one fits alone");
    }
}
