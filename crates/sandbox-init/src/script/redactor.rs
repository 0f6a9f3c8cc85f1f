//! Takes the values of secrets out of a stream of output. A value may come in pieces: the end of a piece waits while a value can begin with it.

use super::needles::Needles;

/// What stands in place of a value.
const MASK: &[u8] = b"***";

/// The output of one script.
pub(super) struct Redactor<'a> {
    needles: &'a Needles,
    /// What was printed and is not shown yet.
    held: Vec<u8>,
    /// How much of its beginning belongs to a value whose mask was shown.
    covered: usize,
}

impl<'a> Redactor<'a> {
    /// For a script that has printed nothing.
    pub(super) fn new(needles: &'a Needles) -> Self {
        Self { needles, held: Vec::new(), covered: 0 }
    }

    /// Takes the next piece, and gives what can be shown.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        self.release(self.held.len() - self.needles.open_end(&self.held))
    }

    /// A text without values.
    pub(super) fn redacted(needles: &'a Needles, text: &str) -> String {
        let mut redactor = Self::new(needles);
        let mut shown = redactor.push(text.as_bytes());
        shown.extend(redactor.finish());
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Gives the rest.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.release(self.held.len())
    }

    /// Gives the first bytes without values.
    fn release(&mut self, bytes: usize) -> Vec<u8> {
        let (mut shown, mut at) = (Vec::with_capacity(bytes), self.covered);
        for (begin, end) in self.needles.spans(&self.held) {
            if begin >= bytes {
                break;
            }
            if begin >= at {
                shown.extend_from_slice(&self.held[at..begin]);
                shown.extend_from_slice(MASK);
            }
            at = at.max(end);
        }
        shown.extend_from_slice(self.held.get(at..bytes).unwrap_or_default());
        self.covered = at.saturating_sub(bytes);
        self.held.drain(..bytes);
        shown
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn needles(values: &[String]) -> Needles {
        let variables: Vec<_> = values.iter().map(|value| ("V".to_owned(), value.clone())).collect();
        Needles::of_output(&variables).unwrap()
    }

    fn redacted<'a>(needles: &Needles, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut redactor = Redactor::new(needles);
        let mut shown: Vec<u8> = pieces.into_iter().flat_map(|piece| redactor.push(piece)).collect();
        shown.extend(redactor.finish());
        shown
    }

    #[test]
    fn a_value_is_masked_and_the_rest_is_shown_at_once() {
        let needles = needles(&["token-12345".to_owned()]);
        let mut redactor = Redactor::new(&needles);
        assert_eq!(redactor.push(b"login: tok"), b"login: ");
        assert_eq!(redactor.push(b"en-1234"), b"");
        assert_eq!(redactor.push(b"5\nwith tokens"), b"***\nwith tokens");
        assert_eq!(redactor.push(b" token-12"), b" ");
        assert_eq!(redactor.finish(), b"token-12", "a part of it is not the value");
        let text = b"token-12345token-12345!";
        assert_eq!(redacted(&needles, [&text[..]]), b"******!");
    }

    proptest! {
        #[test]
        fn the_pieces_of_the_output_change_nothing(
            // Few letters, so that values overlap and begin with each other.
            values in prop::collection::vec("[ab]{8,12}", 1..4),
            text in "[ab]{0,80}",
            cuts in prop::collection::vec(0..80_usize, 0..8),
        ) {
            let needles = needles(&values);
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]);
            let shown = redacted(&needles, pieces);
            prop_assert_eq!(&shown, &redacted(&needles, [bytes]));
            let is_hidden = |at: &usize| {
                needles.spans(bytes).iter().any(|(begin, end)| (begin..end).contains(&at))
            };
            let left: Vec<u8> = (0..bytes.len()).filter(|at| !is_hidden(at)).map(|at| bytes[at]).collect();
            let plain: Vec<u8> = shown.into_iter().filter(|byte| *byte != b'*').collect();
            prop_assert_eq!(plain, left, "every byte of a value is hidden, and no other");
        }
    }
}
