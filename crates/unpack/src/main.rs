//! `flotilla-unpack`: reads a layer of an image from its input and unpacks it into a directory. It raises its walls before it reads the first
//! byte. Its output is one line of JSON: what was unpacked, or the code and the text of the refusal. It exits with 0 in both cases, and
//! otherwise only when it could not do its work at all.

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use serde_json::json;
use std::{
    error::Error,
    io::{self, Write as _},
    path::PathBuf,
};
use unpack::{
    blob::Compression,
    bounds::Bounds,
    layer::{Layer, unpack},
    walls,
};

/// Unpacks one layer of an image.
#[derive(Debug, Parser)]
struct Arguments {
    /// The directory, which exists and is empty.
    directory: PathBuf,
    /// SHA-256 of the blob; hexadecimal.
    #[arg(long)]
    digest: String,
    /// SHA-256 of the archive in it; hexadecimal.
    #[arg(long)]
    diff_id: String,
    /// How the archive is compressed.
    #[arg(long)]
    compression: CompressionName,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CompressionName {
    None,
    Gzip,
    Zstd,
}

impl From<CompressionName> for Compression {
    fn from(name: CompressionName) -> Self {
        match name {
            CompressionName::None => Self::None,
            CompressionName::Gzip => Self::Gzip,
            CompressionName::Zstd => Self::Zstd,
        }
    }
}

fn main() -> anyhow::Result<()> {
    let Arguments { directory, digest, diff_id, compression } = Arguments::parse();
    let bounds = Bounds::default();
    walls::raise(&directory, bounds.bytes).context("raise the walls")?;
    let layer = Layer { digest, diff_id, compression: compression.into() };
    let line = match unpack(io::stdin().lock(), &layer, &directory, bounds) {
        Ok(summary) => json!({"unpacked": summary}),
        Err(refusal) => {
            let mut message = refusal.to_string();
            let mut cause = refusal.source();
            while let Some(error) = cause {
                message = format!("{message}: {error}");
                cause = error.source();
            }
            json!({"refused": {"code": refusal.code(), "message": message}})
        }
    };
    writeln!(io::stdout(), "{line}").context("write the result")
}
