//! Tokens, prices and exact cost. A price is in micro-dollars for a million tokens, so tokens × price is in
//! pico-dollars (10^-12 USD) without any rounding.

use serde::{Deserialize, Serialize};

/// Tokens of one step or more, in five counts that do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens {
    /// Prompt tokens that were neither read from nor written to the cache.
    pub input: u64,
    /// Answer tokens without reasoning.
    pub output: u64,
    /// Reasoning tokens; billed as output.
    pub reasoning: u64,
    /// Prompt tokens read from the provider's cache.
    pub cache_read: u64,
    /// Prompt tokens written to the provider's cache.
    pub cache_write: u64,
}

impl Tokens {
    /// The whole prompt, cached or not. It selects the price tier.
    pub fn prompt(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

    /// Adds each count; a sum saturates at the largest number.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            reasoning: self.reasoning.saturating_add(other.reasoning),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
        }
    }
}

/// OpenCode's JSON: `{"input":1,"output":2,"reasoning":0,"cache":{"read":0,"write":0}}`.
#[derive(Serialize, Deserialize)]
struct TokensJson {
    #[serde(default)]
    input: u64,
    #[serde(default)]
    output: u64,
    #[serde(default)]
    reasoning: u64,
    #[serde(default)]
    cache: CacheJson,
}

#[derive(Serialize, Deserialize, Default)]
struct CacheJson {
    read: u64,
    write: u64,
}

impl Serialize for Tokens {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let cache = CacheJson { read: self.cache_read, write: self.cache_write };
        TokensJson { input: self.input, output: self.output, reasoning: self.reasoning, cache }
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = TokensJson::deserialize(deserializer)?;
        Ok(Self {
            input: json.input,
            output: json.output,
            reasoning: json.reasoning,
            cache_read: json.cache.read,
            cache_write: json.cache.write,
        })
    }
}

/// Prices of one model, in micro-dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// Uncached prompt tokens.
    pub input: u64,
    /// Answer and reasoning tokens.
    pub output: u64,
    /// Prompt tokens read from the cache.
    #[serde(default)]
    pub cache_read: u64,
    /// Prompt tokens written to the cache.
    #[serde(default)]
    pub cache_write: u64,
}

/// The prices of a model. The tier with the largest threshold that the whole prompt exceeds reprices the whole request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Price {
    /// Prices for prompts below every tier.
    pub base: Rates,
    /// `(above_tokens, rates)`, in any order.
    #[serde(default)]
    pub tiers: Vec<(u64, Rates)>,
}

/// Exact money in 10^-12 US dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct UsdPicos(pub i64);

impl UsdPicos {
    /// The amount in dollars, for display and OpenCode's JSON; not for arithmetic.
    #[expect(clippy::cast_precision_loss, reason = "display only")]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e12
    }

    /// The nearest amount to a number of dollars; `None` if the number is not finite or too large.
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        let picos = (dollars * 1e12).round();
        (picos.is_finite() && picos.abs() < 9.2e18).then_some(Self(picos as i64))
    }

    /// Adds; the sum saturates at the largest number.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Price {
    pub fn cost(&self, tokens: &Tokens) -> UsdPicos {
        let prompt = tokens.prompt();
        let tier = self.tiers.iter().filter(|(above, _)| prompt > *above).max_by_key(|(above, _)| *above);
        let rates = tier.map_or(&self.base, |(_, rates)| rates);
        let parts = [
            (tokens.input, rates.input),
            (tokens.output, rates.output),
            (tokens.reasoning, rates.output),
            (tokens.cache_read, rates.cache_read),
            (tokens.cache_write, rates.cache_write),
        ];
        let picos: u128 = parts.iter().map(|(count, rate)| u128::from(*count) * u128::from(*rate)).sum();
        UsdPicos(i64::try_from(picos).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Rates =
        Rates { input: 3_000_000, output: 15_000_000, cache_read: 300_000, cache_write: 3_750_000 };

    #[test]
    fn cost_is_exact_and_reasoning_is_billed_as_output() {
        let tokens = Tokens { input: 800, output: 40, reasoning: 10, cache_read: 200, cache_write: 0 };
        let price = Price { base: BASE, tiers: vec![] };
        assert_eq!(price.cost(&tokens), UsdPicos(3_210_000_000), "0.00321 USD");
    }

    #[test]
    fn the_largest_exceeded_tier_reprices_the_whole_request() {
        let twice = Rates { input: 6_000_000, ..BASE };
        let thrice = Rates { input: 9_000_000, ..BASE };
        let price = Price { base: BASE, tiers: vec![(500_000, thrice), (200_000, twice)] };
        let tokens = |input, cache_read| Tokens { input, cache_read, ..Tokens::default() };
        for (tokens, want) in [
            (tokens(200_000, 0), 200_000 * 3_000_000),
            (tokens(200_001, 0), 200_001 * 6_000_000),
            (tokens(1, 200_000), 6_000_000 + 200_000 * 300_000),
            (tokens(500_001, 0), 500_001 * 9_000_000),
        ] {
            assert_eq!(price.cost(&tokens), UsdPicos(want), "{tokens:?}");
        }
    }

    #[test]
    fn absurd_counts_saturate() {
        let tokens = Tokens { input: u64::MAX, output: u64::MAX, ..Tokens::default() };
        let price = Price { base: BASE, tiers: vec![] };
        assert_eq!(price.cost(&tokens.plus(tokens)), UsdPicos(i64::MAX));
    }

    #[test]
    fn tokens_have_opencodes_json() {
        let tokens = Tokens { input: 1, output: 2, reasoning: 3, cache_read: 4, cache_write: 5 };
        let json = serde_json::json!({"input":1,"output":2,"reasoning":3,"cache":{"read":4,"write":5}});
        assert_eq!(serde_json::to_value(tokens).ok(), Some(json.clone()));
        assert_eq!(serde_json::from_value::<Tokens>(json).ok(), Some(tokens));
    }
}
