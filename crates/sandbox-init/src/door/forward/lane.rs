//! One direction of a connection: bytes that were read and not yet written, and the end of them.

use std::io::{self, Read, Write};

/// Bytes that one direction holds: 256 connections hold at most 32 MiB in a sandbox. A clone of a gigabyte takes a quarter of the calls that 16 KiB would.
const BUFFER_BYTES: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Empty while there is nothing to write: an idle connection takes no memory.
    buffer: Vec<u8>,
    written: usize,
    state: State,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    /// The source has ended; the rest is to be written.
    Ending,
    /// Everything was written and the target knows the end, or one of the two is gone.
    Over,
}

impl Lane {
    /// Whether it waits for bytes of its source.
    pub(super) fn reads(&self) -> bool {
        self.state == State::Open && self.buffer.is_empty()
    }

    /// Whether it waits for room in its target.
    pub(super) fn writes(&self) -> bool {
        self.state != State::Over && !self.buffer.is_empty()
    }

    /// Whether nothing more will be carried.
    pub(super) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Carries what can be carried without waiting. `close` tells the target that the source has ended.
    pub(super) fn carry<T: Write>(
        &mut self,
        from: impl Read,
        mut to: T,
        close: impl FnOnce(&mut T) -> io::Result<()>,
    ) {
        let is_broken = self.state != State::Over && self.step(from, &mut to).is_err();
        if is_broken || self.state == State::Ending && self.buffer.is_empty() {
            // A target that is gone knows it.
            drop(close(&mut to));
            self.state = State::Over;
        }
    }

    fn step(&mut self, mut from: impl Read, to: &mut impl Write) -> io::Result<()> {
        if self.reads() {
            self.buffer.resize(BUFFER_BYTES, 0);
            let read = ready(from.read(&mut self.buffer));
            self.buffer.truncate(*read.as_ref().ok().and_then(Option::as_ref).unwrap_or(&0));
            if read? == Some(0) {
                self.state = State::Ending;
            }
        }
        if self.writes() {
            self.written += ready(to.write(&self.buffer[self.written..]))?.unwrap_or(0);
            if self.written == self.buffer.len() {
                (self.buffer, self.written) = (Vec::new(), 0);
            }
        }
        if self.buffer.is_empty() {
            self.buffer = Vec::new();
        }
        Ok(())
    }
}

/// The result of a call that does not block; `None`: it would.
fn ready(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use std::{net::Shutdown, os::unix::net::UnixStream};

    fn pair() -> (UnixStream, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        (near, far)
    }

    #[test]
    fn it_carries_everything_and_then_the_end() {
        let ((from, mut source), (to, mut target)) = (pair(), pair());
        let mut lane = Lane::default();
        let carry = |lane: &mut Lane| lane.carry(&from, &to, |to| to.shutdown(Shutdown::Write));
        carry(&mut lane);
        assert!(lane.reads() && !lane.writes() && !lane.is_over(), "nothing has come yet");
        let sent: Vec<u8> = (0..100_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let (bytes, mut received) = (sent.clone(), vec![]);
        let writer = std::thread::spawn(move || source.write_all(&bytes));
        while received.len() < sent.len() {
            carry(&mut lane);
            let mut buffer = [0; 4096];
            target.set_nonblocking(true).unwrap();
            let count = ready(target.read(&mut buffer)).unwrap().unwrap_or(0);
            received.extend_from_slice(&buffer[..count]);
        }
        writer.join().unwrap().unwrap();
        while !lane.is_over() {
            carry(&mut lane);
        }
        assert!(received == sent && target.read(&mut [0; 1]).unwrap() == 0);
    }

    #[test]
    fn a_target_that_is_gone_ends_it() {
        let ((from, mut source), (to, target)) = (pair(), pair());
        drop(target);
        source.write_all(b"x").unwrap();
        let mut lane = Lane::default();
        lane.carry(&from, &to, |_| Ok(()));
        assert!(lane.is_over() && !lane.reads() && !lane.writes());
    }
}
