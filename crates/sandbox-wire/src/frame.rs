//! Frames: four bytes of length (little endian), then one protobuf message.

use prost::Message;
use std::io::{self, Read, Write};

/// Largest frame: a 10 MiB file and its envelope. At least the largest message of the gRPC port. A larger one ends the connection.
pub const FRAME_BYTES_MAX: usize = 12 * 1024 * 1024;

/// Bytes of one piece of the output of a command or a terminal: the size of a pipe. The service ends a sandbox that sends a larger one.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Gives `message` as a frame.
pub fn encode(message: &impl Message) -> Vec<u8> {
    let length = message.encoded_len();
    let mut bytes = Vec::with_capacity(length + 4);
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(&message.encode_to_vec());
    bytes
}

/// Gives the length that four bytes announce.
///
/// # Errors
/// `InvalidData` above [`FRAME_BYTES_MAX`]: the other end does not speak this protocol, or the stream is out of step.
pub fn length(head: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_le_bytes(head) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes")));
    }
    Ok(length)
}

/// Writes one frame. Blocks while the other end does not read.
///
/// # Errors
/// Those of `out`; part of the frame may have been written.
pub fn write(out: &mut impl Write, message: &impl Message) -> io::Result<()> {
    out.write_all(&encode(message))
}

/// Reads one frame; `None` if the other end closed the stream between two frames. Blocks.
///
/// # Errors
/// Those of `from`; `UnexpectedEof` inside a frame; `InvalidData` for bytes that are not a message.
pub fn read<M: Message + Default>(from: &mut impl Read) -> io::Result<Option<M>> {
    let mut head = [0; 4];
    match from.read_exact(&mut head[..1]) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    from.read_exact(&mut head[1..])?;
    let mut body = vec![0; length(head)?];
    from.read_exact(&mut body)?;
    M::decode(body.as_slice()).map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::v1::{Hello, Reply, reply::Body};

    fn hello() -> Reply {
        Reply { id: 0, body: Some(Body::Hello(Hello { landlock: "fully enforced".to_owned() })) }
    }

    #[test]
    fn a_stream_of_frames_gives_the_messages_and_a_clean_end() {
        let mut stream = vec![];
        write(&mut stream, &hello()).unwrap();
        write(&mut stream, &Reply::default()).unwrap();
        let mut from = stream.as_slice();
        assert_eq!(read::<Reply>(&mut from).unwrap(), Some(hello()));
        assert_eq!(read::<Reply>(&mut from).unwrap(), Some(Reply::default()));
        assert_eq!(read::<Reply>(&mut from).unwrap(), None);
    }

    #[test]
    fn a_cut_or_foreign_frame_is_an_error() {
        let whole = encode(&hello());
        let kind = |mut bytes: &[u8]| read::<Reply>(&mut bytes).unwrap_err().kind();
        assert_eq!(kind(&whole[..whole.len() - 1]), io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(&whole[..3]), io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(b"GET / HTTP/1.1\r\n"), io::ErrorKind::InvalidData);
        assert_eq!(kind(b"\x02\0\0\0\xff\xff"), io::ErrorKind::InvalidData);
    }
}
