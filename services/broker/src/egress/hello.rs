//! The name that TLS asks for: the first message of a tunnel must ask for the host of the request. Otherwise a host that serves many names would
//! be a way to one that is not allowed.

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes of the first message with its records. Large keys take some 2 KiB. Beyond it the tunnel is cut.
const HELLO_BYTES_MAX: usize = 32 * 1024;
/// Bytes of one record, as TLS bounds them.
const RECORD_BYTES_MAX: usize = 16 * 1024;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
/// Encrypted Client Hello: it carries the real name in a form that this proxy cannot read.
const ENCRYPTED_HELLO: u16 = 0xfe0d;
const ENCRYPTED_SERVER_NAME: u16 = 0xffce;
const HOST_NAME: u8 = 0;

/// Reads the first message of a tunnel, and returns its bytes, after what was already `read`.
///
/// # Errors
/// Why the message is not one for `host`.
pub(super) async fn check(
    stream: &mut (impl AsyncRead + Unpin),
    read: Vec<u8>,
    host: &str,
) -> Result<Vec<u8>, &'static str> {
    let mut bytes = read;
    loop {
        if let Some(message) = message(&bytes)? {
            return check_name(&message, host).map(|()| bytes);
        }
        if bytes.len() >= HELLO_BYTES_MAX {
            return Err("its first message is too long");
        }
        let room = HELLO_BYTES_MAX - bytes.len();
        let count = (&mut *stream).take(room as u64).read_buf(&mut bytes).await;
        if count.unwrap_or(0) == 0 {
            return Err("it ends before its first message does");
        }
    }
}

/// The first message, put together from its records; `None`: more bytes are needed.
fn message(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let mut message = vec![];
    loop {
        if let [kind, high, middle, low, ..] = message[..] {
            if kind != CLIENT_HELLO {
                return Err("its first message is not that of a TLS client");
            }
            let length = 4 + u32::from_be_bytes([0, high, middle, low]) as usize;
            if length > HELLO_BYTES_MAX {
                return Err("its first message is too long");
            }
            if message.len() >= length {
                message.truncate(length);
                return Ok(Some(message));
            }
        }
        let [kind, rest @ ..] = bytes else { return Ok(None) };
        if *kind != HANDSHAKE {
            return Err("it is no TLS");
        }
        let [major, _, high, low, rest @ ..] = rest else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if *major != 3 || length == 0 || length > RECORD_BYTES_MAX {
            return Err("it is no TLS");
        }
        if rest.len() < length {
            // A part of the record is enough to know that the message is not finished.
            return Ok(None);
        }
        message.extend(&rest[..length]);
        bytes = &rest[length..];
    }
}

/// Reads fields one after another.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// A field with its length in front of it.
    fn field(&mut self, length_bytes: usize) -> Option<&'a [u8]> {
        let length = self.number(length_bytes)?;
        self.take(length)
    }
}

fn check_name(message: &[u8], host: &str) -> Result<(), &'static str> {
    let names = names(message).ok_or("its first message is damaged")??;
    match &names[..] {
        [] => Err("it names no host"),
        [name] if name.eq_ignore_ascii_case(host.as_bytes()) => Ok(()),
        [_] => Err("it asks for another host"),
        _ => Err("it names several hosts"),
    }
}

/// The names of hosts in a first message; `None`: it is damaged.
fn names(message: &[u8]) -> Option<Result<Vec<&[u8]>, &'static str>> {
    let mut fields = Fields(message.get(4..)?);
    // The version and the random bytes.
    fields.take(34)?;
    fields.field(1)?;
    fields.field(2)?;
    fields.field(1)?;
    if fields.0.is_empty() {
        return Some(Ok(vec![]));
    }
    let mut extensions = Fields(fields.field(2)?);
    let mut found = vec![];
    while !extensions.0.is_empty() {
        let kind = u16::try_from(extensions.number(2)?).ok()?;
        let mut body = Fields(extensions.field(2)?);
        match kind {
            ENCRYPTED_HELLO | ENCRYPTED_SERVER_NAME => return Some(Err("it hides the name of the host")),
            SERVER_NAME => {
                let mut list = Fields(body.field(2)?);
                while !list.0.is_empty() {
                    let kind = list.number(1)?;
                    let name = list.field(2)?;
                    if kind == usize::from(HOST_NAME) {
                        found.push(name);
                    }
                }
            }
            _ => {}
        }
    }
    Some(Ok(found))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    fn sized(length_bytes: usize, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u64).to_be_bytes();
        [&length[8 - length_bytes..], body].concat()
    }

    fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &sized(2, body)].concat()
    }

    fn server_name(names: &[&str]) -> Vec<u8> {
        let list: Vec<u8> =
            names.iter().flat_map(|name| [vec![HOST_NAME], sized(2, name.as_bytes())].concat()).collect();
        extension(SERVER_NAME, &sized(2, &list))
    }

    fn hello(extensions: &[Vec<u8>]) -> Vec<u8> {
        let body = [
            &[3, 3][..],
            &[7; 32],
            &sized(1, &[]),
            &sized(2, &[0x13, 1]),
            &sized(1, &[0]),
            &sized(2, &extensions.concat()),
        ];
        [vec![CLIENT_HELLO], sized(3, &body.concat())].concat()
    }

    /// The message in records of so many bytes.
    fn records(message: &[u8], bytes: usize) -> Vec<u8> {
        message.chunks(bytes).flat_map(|piece| [vec![HANDSHAKE, 3, 1], sized(2, piece)].concat()).collect()
    }

    async fn result(bytes: &[u8]) -> Result<(), &'static str> {
        check(&mut &*bytes, vec![], "pypi.org").await.map(|read| assert!(bytes.starts_with(&read)))
    }

    #[tokio::test]
    async fn only_a_hello_for_the_host_passes() {
        let plain = hello(&[extension(10, &[0, 2, 0, 29]), server_name(&["PyPI.org"])]);
        for bytes in [1, 5, 100, 10_000] {
            assert_eq!(result(&records(&plain, bytes)).await, Ok(()), "records of {bytes} bytes");
        }
        let followed = [records(&plain, 10_000), vec![20, 3, 3, 0, 1, 1]].concat();
        assert_eq!(result(&followed).await, Ok(()));
        for (extensions, reason) in [
            (vec![server_name(&["evil.com"])], "it asks for another host"),
            (vec![server_name(&["pypi.org.evil.com"])], "it asks for another host"),
            (vec![server_name(&["pypi.org", "evil.com"])], "it names several hosts"),
            (vec![server_name(&["pypi.org"]), server_name(&["evil.com"])], "it names several hosts"),
            (vec![], "it names no host"),
            (
                vec![server_name(&["pypi.org"]), extension(ENCRYPTED_HELLO, &[0])],
                "it hides the name of the host",
            ),
            (vec![extension(SERVER_NAME, &[0, 9, 0])], "its first message is damaged"),
        ] {
            assert_eq!(result(&records(&hello(&extensions), 10_000)).await, Err(reason));
        }
        for (bytes, reason) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "it is no TLS"),
            (b"SSH-2.0-x\r\n", "it is no TLS"),
            (&[22, 3, 1, 0, 4, 2, 0, 0, 0], "its first message is not that of a TLS client"),
            (&[22, 3, 1, 0, 4, 1, 255, 255, 255], "its first message is too long"),
            (&[22, 3, 1, 0, 0], "it is no TLS"),
            (&[22, 3, 1], "it ends before its first message does"),
        ] {
            assert_eq!(result(bytes).await, Err(reason), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn a_real_client_passes() {
        let roots = rustls::RootCertStore::empty();
        let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let name = "pypi.org".try_into().unwrap();
        let mut client = rustls::ClientConnection::new(config.into(), name).unwrap();
        let mut bytes = vec![];
        client.write_tls(&mut bytes).unwrap();
        assert_eq!(result(&bytes).await, Ok(()));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0..200usize) {
            let _ = message(&bytes);
            let mut damaged = hello(&[server_name(&["pypi.org"])]);
            damaged.splice(at.min(damaged.len()).., bytes);
            let _ = check_name(&damaged, "pypi.org");
        }
    }
}
