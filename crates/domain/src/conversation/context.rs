//! How much of a conversation fits into a model: when the worker must summarize it, what stays unchanged after the summary, and which old
//! tool outputs it leaves out. OpenCode's rules and numbers.

use crate::money::Tokens;

/// Longest answer that the worker asks for; tokens. OpenCode's number. The provider cuts a longer one.
const OUTPUT_TOKENS_MAX: u64 = 32_000;
/// Room left below the longest prompt of a model, at most; tokens. OpenCode's number.
const COMPACTION_RESERVED_TOKENS: u64 = 20_000;
/// Least tokens of the newest messages that stay unchanged after a summary. OpenCode's number.
const TAIL_TOKENS_MIN: u64 = 2_000;
/// Most tokens of the newest messages that stay unchanged after a summary. OpenCode's number. The summary replaces older messages.
const TAIL_TOKENS_MAX: u64 = 15_000;
/// Newest tool output that always stays; tokens. OpenCode's number.
const PRUNE_PROTECT_TOKENS: u64 = 40_000;
/// Least old output that is worth leaving out, because doing so loses the provider's cache; tokens. OpenCode's number.
const PRUNE_MINIMUM_TOKENS: u64 = 20_000;
/// Most old output that the end of one turn leaves out, because each part is written again; tokens. Later turns do the rest.
const PRUNE_WRITTEN_TOKENS_MAX: u64 = 1_000_000;

/// The token limits of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Prompt and answer together; 0 if unknown.
    pub context_tokens: u64,
    /// Longest prompt, where it is smaller.
    pub input_tokens: Option<u64>,
    /// Longest answer; 0 if unknown.
    pub output_tokens: u64,
    /// Room that settings reserve for an answer, if the prompt has a limit of its own.
    pub reserved_tokens: Option<u64>,
    /// Tokens of the newest messages that settings keep unchanged after a summary.
    pub tail_tokens: Option<u64>,
    /// The newest turns that settings keep at most.
    pub tail_turns: Option<u64>,
}

impl Window {
    /// The longest answer that the worker asks for.
    pub fn answer_tokens(&self) -> u64 {
        match self.output_tokens.min(OUTPUT_TOKENS_MAX) {
            0 => OUTPUT_TOKENS_MAX,
            tokens => tokens,
        }
    }

    /// Tokens that a conversation may use before the worker summarizes it.
    pub fn usable_tokens(&self) -> u64 {
        let answer = self.answer_tokens();
        match self.input_tokens.filter(|input| *input > 0) {
            Some(input) => {
                let reserved = self.reserved_tokens.unwrap_or(answer.min(COMPACTION_RESERVED_TOKENS));
                input.saturating_sub(reserved)
            }
            None => self.context_tokens.saturating_sub(answer),
        }
    }

    /// Whether a step that used `tokens` left no room for another one.
    pub fn is_filled_by(&self, tokens: &Tokens) -> bool {
        let usable = self.usable_tokens();
        self.context_tokens > 0 && usable > 0 && used(tokens) >= usable
    }

    /// Tokens of the newest messages that stay unchanged after a summary.
    pub fn tail_tokens(&self) -> u64 {
        let default = || (self.usable_tokens() / 4).clamp(TAIL_TOKENS_MIN, TAIL_TOKENS_MAX);
        self.tail_tokens.unwrap_or_else(default)
    }
}

fn used(tokens: &Tokens) -> u64 {
    tokens.prompt().saturating_add(tokens.output).saturating_add(tokens.reasoning)
}

/// Estimates the tokens of a text: four characters are one.
pub fn estimate(text: &str) -> u64 {
    u64::try_from(text.chars().count() / 4).unwrap_or(u64::MAX)
}

/// Returns the number of messages that a summary replaces; the others stay. `sizes` are the messages, oldest first: their
/// tokens, about, and whether they begin a turn. The kept tail begins with a turn if one fits.
pub fn tail_start(sizes: &[(u64, bool)], window: &Window) -> Option<usize> {
    let (budget_tokens, turns_max) = (window.tail_tokens(), window.tail_turns.unwrap_or(u64::MAX));
    let (mut used, mut turns, mut any, mut turn) = (0_u64, 0, None, None);
    for (at, (tokens, begins)) in sizes.iter().enumerate().rev() {
        used = used.saturating_add(*tokens);
        if used > budget_tokens || turns >= turns_max {
            break;
        }
        turns += u64::from(*begins);
        any = Some(at);
        if *begins {
            turn = any;
        }
    }
    // A tail of all messages leaves nothing to summarize.
    turn.or(any).filter(|at| *at > 0)
}

/// Returns the old outputs that the worker leaves out, as indexes of `outputs`: the tokens of tool outputs, newest first, without
/// those of the last turns. The newest outputs stay, and a small saving is not worth losing the provider's cache.
pub fn prunable(outputs: &[u64]) -> Vec<usize> {
    let (mut total, mut freed, mut places) = (0_u64, 0_u64, vec![]);
    for (place, tokens) in outputs.iter().enumerate() {
        total = total.saturating_add(*tokens);
        if total > PRUNE_PROTECT_TOKENS {
            freed = freed.saturating_add(*tokens);
            places.push(place);
        }
    }
    if freed <= PRUNE_MINIMUM_TOKENS {
        return vec![];
    }
    // The oldest first: the next pass stops at the first output that was left out.
    let mut written = 0_u64;
    let fits = places.iter().rev().take_while(|place| {
        written = written.saturating_add(outputs[**place]);
        written <= PRUNE_WRITTEN_TOKENS_MAX
    });
    places.split_off(places.len() - fits.count().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(context_tokens: u64, input_tokens: Option<u64>, output_tokens: u64) -> Window {
        Window {
            context_tokens,
            input_tokens,
            output_tokens,
            reserved_tokens: None,
            tail_tokens: None,
            tail_turns: None,
        }
    }

    #[test]
    fn a_window_leaves_room_for_the_answer() {
        for (window, usable) in [
            (window(200_000, None, 64_000), 168_000),
            (window(100_000, None, 8_000), 92_000),
            (window(400_000, Some(272_000), 128_000), 252_000),
            (window(100_000, Some(90_000), 8_000), 82_000),
            (window(100_000, None, 0), 68_000),
            (window(4_000, None, 8_000), 0),
        ] {
            assert_eq!(window.usable_tokens(), usable, "{window:?}");
        }
        let reserving =
            |tokens| Window { reserved_tokens: Some(tokens), ..window(400_000, Some(272_000), 128_000) };
        assert_eq!(reserving(2_000).usable_tokens(), 270_000);
        assert_eq!(reserving(u64::MAX).usable_tokens(), 0, "no summary before a model refuses");
    }

    #[test]
    fn what_came_from_the_cache_counts() {
        let window = window(100_000, None, 8_000);
        let tokens = |input, cache_read| Tokens { input, output: 10, cache_read, ..Tokens::default() };
        assert!(!window.is_filled_by(&tokens(91_989, 0)));
        assert!(window.is_filled_by(&tokens(91_990, 0)));
        assert!(window.is_filled_by(&tokens(2_000, 89_990)));
        let unknown = Window { context_tokens: 0, ..window };
        assert!(!unknown.is_filled_by(&tokens(1_000_000, 0)), "the limit is unknown");
        let tiny = Window { context_tokens: 4_000, ..window };
        assert!(!tiny.is_filled_by(&tokens(1, 0)), "a summary would not help");
    }

    #[test]
    fn a_tail_is_a_quarter_within_bounds() {
        let tail = |context| window(context, None, 1_000).tail_tokens();
        assert_eq!((tail(5_000), tail(21_000), tail(1_000_000)), (2_000, 5_000, 15_000));
        let custom = Window { tail_tokens: Some(7), ..window(5_000, None, 1_000) };
        assert_eq!(custom.tail_tokens(), 7);
    }

    #[test]
    fn a_tail_begins_with_a_turn_if_one_fits() {
        let (turn, step) = (true, false);
        for (sizes, want) in [
            (vec![(50, turn), (50, step), (10, turn), (10, step)], Some(2)),
            (vec![(50, turn), (10, step), (10, turn), (10, step)], Some(2)),
            (vec![(50, turn), (50, step), (10, step)], Some(2)),
            (vec![(50, turn), (50, step)], None),
            (vec![(5, turn), (5, step)], None),
            (vec![], None),
        ] {
            let window = Window { tail_tokens: Some(40), ..window(100_000, None, 1_000) };
            assert_eq!(tail_start(&sizes, &window), want, "{sizes:?}");
        }
        let turns = [(9, turn), (1, step), (9, turn), (1, step), (9, turn), (1, step)];
        for (most, want) in [(0, None), (1, Some(4)), (2, Some(2)), (3, None)] {
            let window = Window { tail_turns: Some(most), ..window(100_000, None, 1_000) };
            assert_eq!(tail_start(&turns, &window), want, "{most} turns");
        }
    }

    #[test]
    fn only_enough_old_output_is_worth_pruning() {
        assert_eq!(prunable(&[30_000, 10_000, 20_000]), [0; 0], "not more than the least");
        assert_eq!(prunable(&[30_000, 10_000, 20_000, 1]), [2, 3]);
        assert_eq!(prunable(&[70_000]), [0]);
        assert_eq!(estimate("ééééx"), 1);
    }

    #[test]
    fn the_oldest_outputs_are_left_out_first_when_there_are_too_many() {
        let outputs = [40_000, 600_000, 600_000, 300_000];
        assert_eq!(prunable(&outputs), [2, 3]);
        assert_eq!(prunable(&outputs[..2]), [1], "the rest, at the end of the next turn");
        assert_eq!(prunable(&[40_000, PRUNE_WRITTEN_TOKENS_MAX + 1]), [1], "one in any case");
    }
}
