//! Reads files.

use crate::{
    paths::{Access, Kind, PathHandle, Roots},
    service::Failure,
};
use domain::{limits, text};
use encoding_rs_io::DecodeReaderBytesBuilder;
use sandbox_wire::v1::FailureCode;
use sha2::{Digest as _, Sha256};
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom},
};
use wire::v1;

/// The default number of bytes that a read of a file returns.
const FILE_READ_BYTES: usize = 1024 * 1024;
/// The default number of lines that a read of lines returns.
const LINES: u32 = 2_000;
/// The default number of bytes of all lines of one read.
const LINES_BYTES: u32 = 50 * 1024;
/// Bytes that a read may skip to reach its first line: about a second of reading. Beyond it: `file_too_large`.
const LINES_SKIP_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Bytes at the start of a file that decide whether it is text.
const SNIFFED_BYTES: usize = 8 * 1024;
const BUFFER_BYTES: usize = 64 * 1024;

/// Reads bytes of a file.
pub(super) fn file(roots: &Roots, request: &v1::ReadFileRequest) -> Result<v1::ReadFileResponse, Failure> {
    let bytes_max = usize_or(request.bytes_max, FILE_READ_BYTES);
    if bytes_max > limits::FILE_BYTES_MAX {
        let text = format!("the read is too large; the limit is {} bytes", limits::FILE_BYTES_MAX);
        return Err(Failure::new(FailureCode::FileTooLarge, text));
    }
    let path = &request.path;
    let found = roots.find(path, Access::Read)?;
    let mut file = found.open_file(path)?;
    let mut data = Vec::new();
    let read = |file: &mut File, data: &mut Vec<u8>| -> io::Result<()> {
        file.seek(SeekFrom::Start(request.offset_bytes))?;
        file.take(bytes_max as u64).read_to_end(data).map(drop)
    };
    read(&mut file, &mut data).map_err(|error| unreadable(path, &error))?;
    let size_bytes = found
        .size()
        .max(request.offset_bytes.saturating_add(data.len() as u64) * u64::from(!data.is_empty()));
    let whole = request.offset_bytes == 0 && data.len() as u64 == size_bytes;
    let sha256 = if whole { hex_digest(&data) } else { String::new() };
    Ok(v1::ReadFileResponse { data, size_bytes, sha256 })
}

/// Reads lines of a text file, or the entries of a directory.
pub(super) fn lines(roots: &Roots, request: &v1::ReadLinesRequest) -> Result<v1::ReadLinesResponse, Failure> {
    let path = &request.path;
    let found = roots.find(path, Access::Read)?;
    let page = Page {
        skip: request.first_line.saturating_sub(1),
        lines: usize_or(request.lines_max, LINES as usize).min(limits::LINES_MAX as usize),
        chars: usize_or(request.line_chars_max, limits::LINE_CHARS as usize),
        bytes: usize_or(request.bytes_max, LINES_BYTES as usize).min(limits::FILE_BYTES_MAX),
    };
    let mut response = v1::ReadLinesResponse { size_bytes: found.size(), ..Default::default() };
    match found.kind() {
        Kind::Directory => {
            entries(&found, &page, &mut response).map_err(|error| unreadable(path, &error))?;
            response.set_kind(v1::FileKind::Directory);
        }
        Kind::File | Kind::Other => {
            let mut input = BufReader::with_capacity(BUFFER_BYTES, found.open_file(path)?);
            let head = input.fill_buf().map_err(|error| unreadable(path, &error))?;
            let head = &head[..head.len().min(SNIFFED_BYTES)];
            let binary = || Failure::new(FailureCode::FileIsBinary, format!("{path} is a binary file"));
            if is_utf16(head) {
                if decode_utf16(head).is_none_or(|text| is_binary(text.as_bytes())) {
                    return Err(binary());
                }
                let decoded = DecodeReaderBytesBuilder::new().strip_bom(true).build(input);
                let mut input = BufReader::with_capacity(BUFFER_BYTES, decoded);
                (response.lines, response.more) = page.read(&mut input, path)?;
            } else if is_binary(head) {
                return Err(binary());
            } else {
                (response.lines, response.more) = page.read(&mut input, path)?;
            }
            response.set_kind(v1::FileKind::Text);
        }
    }
    Ok(response)
}

fn entries(found: &PathHandle, page: &Page, response: &mut v1::ReadLinesResponse) -> io::Result<()> {
    let all = found.entries()?;
    let skip = usize::try_from(page.skip).unwrap_or(usize::MAX);
    response.more = all.len().saturating_sub(skip) > page.lines;
    let names = all.into_iter().skip(skip).take(page.lines);
    response.lines = names.map(|(name, directory)| if directory { name + "/" } else { name }).collect();
    Ok(())
}

/// The lines of a file that a caller wants.
struct Page {
    skip: u64,
    lines: usize,
    chars: usize,
    bytes: usize,
}

impl Page {
    /// Returns the lines and whether more follow. However long a line is, only the wanted characters of it are in
    /// memory.
    fn read(&self, input: &mut impl BufRead, path: &str) -> Result<(Vec<String>, bool), Failure> {
        let failed = |error: io::Error| unreadable(path, &error);
        let mut passed = 0;
        for _ in 0..self.skip {
            let (bytes, _) = next_line(input, 0).map_err(failed)?;
            if bytes == 0 {
                return Ok((Vec::new(), false));
            }
            passed += bytes;
            if passed > LINES_SKIP_BYTES_MAX {
                let text = format!("line {} of {path} is too far from the start of the file", self.skip + 1);
                return Err(Failure::new(FailureCode::FileTooLarge, text));
            }
        }
        let (mut lines, mut total) = (Vec::new(), 0);
        while lines.len() < self.lines {
            // A character has at most four bytes.
            let (bytes, line) = next_line(input, self.chars.saturating_mul(4)).map_err(failed)?;
            if bytes == 0 {
                return Ok((lines, false));
            }
            let line: String = String::from_utf8_lossy(&line).chars().take(self.chars).collect();
            total += line.len() + 1;
            if total > self.bytes && !lines.is_empty() {
                return Ok((lines, true));
            }
            lines.push(line);
        }
        let more = !input.fill_buf().map_err(failed)?.is_empty();
        Ok((lines, more))
    }
}

/// Consumes one line. Returns the number of bytes consumed (0 at the end) and the first `keep` bytes of the line,
/// without its line end.
fn next_line(input: &mut impl BufRead, keep: usize) -> io::Result<(u64, Vec<u8>)> {
    let (mut taken, mut line) = (0, Vec::new());
    loop {
        let buffer = input.fill_buf()?;
        if buffer.is_empty() {
            break;
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = &buffer[..end.unwrap_or(buffer.len())];
        line.extend_from_slice(&part[..part.len().min(keep - line.len())]);
        let used = end.map_or(buffer.len(), |end| end + 1);
        taken += used as u64;
        input.consume(used);
        if end.is_some() {
            break;
        }
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok((taken, line))
}

/// Whether a file begins with a byte order mark of UTF-16. That of UTF-32 is two zero bytes longer.
fn is_utf16(head: &[u8]) -> bool {
    head.starts_with(&[0xfe, 0xff])
        || head.starts_with(&[0xff, 0xfe]) && !head.starts_with(&[0xff, 0xfe, 0, 0])
}

/// The text of bytes that begin with a byte order mark of UTF-16; `None`: they do not.
pub(super) fn decode_utf16(bytes: &[u8]) -> Option<String> {
    let mut text = vec![];
    let mut decoded = DecodeReaderBytesBuilder::new().strip_bom(true).build(bytes);
    (is_utf16(bytes) && decoded.read_to_end(&mut text).is_ok())
        .then(|| String::from_utf8_lossy(&text).into_owned())
}

/// A zero byte, or more than three in ten control characters: OpenCode's rule.
pub(super) fn is_binary(head: &[u8]) -> bool {
    let control = head.iter().filter(|b| **b < 9 || (**b > 13 && **b < 32)).count();
    head.contains(&0) || control * 10 > head.len() * 3
}

pub(super) fn hex_digest(data: &[u8]) -> String {
    text::hex(&Sha256::digest(data))
}

fn unreadable(path: &str, error: &io::Error) -> Failure {
    Failure::new(FailureCode::FileNotPermitted, format!("{path} cannot be read: {error}"))
}

/// `value`, or `default` if the caller sent 0.
pub(super) fn usize_or(value: u32, default: usize) -> usize {
    if value == 0 { default } else { value as usize }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn check(text: &str, skip: u64, lines: usize, expected: (&[&str], bool)) {
        let page = Page { skip, lines, chars: 5, bytes: 12 };
        let (got, more) = page.read(&mut text.as_bytes(), "f").unwrap();
        assert_eq!(
            (got.iter().map(String::as_str).collect::<Vec<_>>().as_slice(), more),
            expected,
            "{text:?}"
        );
    }

    #[test]
    fn a_page_holds_the_requested_lines() {
        check("", 0, 9, (&[], false));
        check("a\nb\n", 0, 9, (&["a", "b"], false));
        check("a\r\nb", 0, 1, (&["a"], true));
        check("a\nb", 1, 9, (&["b"], false));
        check("a\nb", 7, 9, (&[], false));
        check("äöüäöü\nb", 0, 1, (&["äöüäö"], true));
        check("12345\n12345\n1", 0, 9, (&["12345", "12345"], true));
    }

    #[test]
    fn utf16_is_decoded_by_its_mark() {
        let bytes = |mark: &[u8], unit: fn(u16) -> [u8; 2], text: &str| {
            [mark, &text.encode_utf16().flat_map(unit).collect::<Vec<_>>()].concat()
        };
        let text = "IDS_HELLO \"héllo 🚀\"\r\nnext";
        for file in
            [bytes(&[0xff, 0xfe], u16::to_le_bytes, text), bytes(&[0xfe, 0xff], u16::to_be_bytes, text)]
        {
            assert_eq!(decode_utf16(&file).as_deref(), Some(text));
            let mut input = BufReader::new(DecodeReaderBytesBuilder::new().strip_bom(true).build(&file[..]));
            let page = Page { skip: 0, lines: 9, chars: 100, bytes: 1_000 };
            let (lines, more) = page.read(&mut input, "f").unwrap();
            assert_eq!((lines, more), (vec!["IDS_HELLO \"héllo 🚀\"".to_owned(), "next".to_owned()], false));
        }
        assert_eq!(decode_utf16(b"\xff\xfe\0\0a\0\0\0"), None, "UTF-32");
        assert_eq!(decode_utf16(b"plain"), None);
    }

    #[test]
    fn binary_files_are_recognised_by_their_first_bytes() {
        assert!(is_binary(b"\x7fELF\x00"));
        assert!(is_binary(b"\x01\x02\x03a"));
        assert!(!is_binary("fn main() {}\n\tñ".as_bytes()));
        assert!(!is_binary(b""));
    }
}
