//! The catalogue: one row per model, the newest of a family first.
//! Limits are `[context, answer]` in tokens. Prices are `[input, output, cache read, cache write]` in micro-dollars per
//! million tokens; where a vendor lists no cache price, the input price is used.
//! Source: models.dev (MIT) as of July 2026. An operator overrides a wrong row in `flotilla.toml`.

use super::facts::{Facts, model, rates};
use crate::model::{
    Effort::{self, High, Low, Max, Medium, Minimal, Off, XHigh},
    Family::{Anthropic, Google, OpenAi, Other},
    Thinking,
};

/// Anthropic's newest models.
const TO_MAX: &[Effort] = &[Low, Medium, High, XHigh, Max];
/// Models whose effort is set as a number of thinking tokens, which may be zero.
const BUDGET: &[Effort] = &[Off, Low, Medium, High, Max];
/// OpenAI's newer models.
const TO_XHIGH: &[Effort] = &[Off, Low, Medium, High, XHigh];
const FROM_OFF: &[Effort] = &[Off, Low, Medium, High];
const FROM_MINIMAL: &[Effort] = &[Minimal, Low, Medium, High];
const FROM_LOW: &[Effort] = &[Low, Medium, High];
const LOW_OR_HIGH: &[Effort] = &[Low, High];

/// All models, family by family. A provider without a configured model uses the first one of its family.
pub(super) const MODELS: &[Facts] = &[
    model(Anthropic, "claude-sonnet-5", "Claude Sonnet 5")
        .limits([1_000_000, 128_000])
        .price([2_000_000, 10_000_000, 200_000, 2_500_000])
        .reasons(Thinking::Adaptive, &[Off, Low, Medium, High, XHigh, Max])
        .own_temperature()
        .documents(),
    model(Anthropic, "claude-fable-5", "Claude Fable 5")
        .limits([1_000_000, 128_000])
        .price([10_000_000, 50_000_000, 1_000_000, 12_500_000])
        .reasons(Thinking::Adaptive, TO_MAX)
        .own_temperature()
        .documents(),
    model(Anthropic, "claude-opus-4-8", "Claude Opus 4.8")
        .limits([1_000_000, 128_000])
        .price([5_000_000, 25_000_000, 500_000, 6_250_000])
        .reasons(Thinking::Adaptive, TO_MAX)
        .own_temperature()
        .documents(),
    model(Anthropic, "claude-opus-4-7", "Claude Opus 4.7")
        .limits([1_000_000, 128_000])
        .price([5_000_000, 25_000_000, 500_000, 6_250_000])
        .reasons(Thinking::Adaptive, TO_MAX)
        .own_temperature()
        .documents(),
    model(Anthropic, "claude-opus-4-5", "Claude Opus 4.5 (latest)")
        .limits([200_000, 64_000])
        .price([5_000_000, 25_000_000, 500_000, 6_250_000])
        .reasons(Thinking::Budget, BUDGET)
        .documents(),
    model(Anthropic, "claude-sonnet-4-6", "Claude Sonnet 4.6")
        .limits([1_000_000, 64_000])
        .price([3_000_000, 15_000_000, 300_000, 3_750_000])
        .reasons(Thinking::Budget, BUDGET)
        .documents(),
    model(Anthropic, "claude-sonnet-4-5", "Claude Sonnet 4.5 (latest)")
        .limits([200_000, 64_000])
        .price([3_000_000, 15_000_000, 300_000, 3_750_000])
        .reasons(Thinking::Budget, BUDGET)
        .documents(),
    model(Anthropic, "claude-sonnet-4-20250514", "Claude Sonnet 4")
        .limits([200_000, 64_000])
        .price([3_000_000, 15_000_000, 300_000, 3_750_000])
        .reasons(Thinking::Budget, BUDGET)
        .documents(),
    model(Anthropic, "claude-haiku-4-5", "Claude Haiku 4.5 (latest)")
        .small()
        .limits([200_000, 64_000])
        .price([1_000_000, 5_000_000, 100_000, 1_250_000])
        .reasons(Thinking::Budget, BUDGET)
        .documents(),
    model(OpenAi, "gpt-5.5", "GPT-5.5")
        .limits([1_050_000, 128_000])
        .price([5_000_000, 30_000_000, 500_000, 5_000_000])
        .input(922_000)
        .tiers(&[(272_000, rates([10_000_000, 45_000_000, 1_000_000, 10_000_000]))])
        .reasons(Thinking::Effort, TO_XHIGH)
        .own_temperature()
        .documents(),
    model(OpenAi, "gpt-5.4", "GPT-5.4")
        .limits([1_050_000, 128_000])
        .price([2_500_000, 15_000_000, 250_000, 2_500_000])
        .input(922_000)
        .tiers(&[(272_000, rates([5_000_000, 22_500_000, 500_000, 5_000_000]))])
        .reasons(Thinking::Effort, TO_XHIGH)
        .own_temperature()
        .documents(),
    model(OpenAi, "gpt-5.4-mini", "GPT-5.4 mini")
        .limits([400_000, 128_000])
        .price([750_000, 4_500_000, 75_000, 750_000])
        .input(272_000)
        .reasons(Thinking::Effort, TO_XHIGH)
        .own_temperature()
        .documents(),
    model(OpenAi, "gpt-5.3-codex", "GPT-5.3 Codex")
        .limits([400_000, 128_000])
        .price([1_750_000, 14_000_000, 175_000, 1_750_000])
        .input(272_000)
        .reasons(Thinking::Effort, TO_XHIGH)
        .own_temperature()
        .documents(),
    model(OpenAi, "gpt-5.2", "GPT-5.2")
        .limits([400_000, 128_000])
        .price([1_750_000, 14_000_000, 175_000, 1_750_000])
        .input(272_000)
        .reasons(Thinking::Effort, TO_XHIGH)
        .own_temperature()
        .documents(),
    model(OpenAi, "gpt-5.1", "GPT-5.1")
        .limits([400_000, 128_000])
        .price([1_250_000, 10_000_000, 125_000, 1_250_000])
        .input(272_000)
        .reasons(Thinking::Effort, FROM_OFF)
        .own_temperature()
        .documents(),
    model(OpenAi, "gpt-5-mini", "GPT-5 Mini")
        .small()
        .limits([400_000, 128_000])
        .price([250_000, 2_000_000, 25_000, 250_000])
        .input(272_000)
        .reasons(Thinking::Effort, FROM_MINIMAL)
        .own_temperature()
        .documents(),
    model(OpenAi, "gpt-5", "GPT-5")
        .limits([400_000, 128_000])
        .price([1_250_000, 10_000_000, 125_000, 1_250_000])
        .input(272_000)
        .reasons(Thinking::Effort, FROM_MINIMAL)
        .own_temperature()
        .documents(),
    model(OpenAi, "gpt-4.1", "GPT-4.1")
        .limits([1_047_576, 32_768])
        .price([2_000_000, 8_000_000, 500_000, 2_000_000])
        .documents(),
    model(OpenAi, "gpt-4o", "GPT-4o")
        .limits([128_000, 16_384])
        .price([2_500_000, 10_000_000, 1_250_000, 2_500_000])
        .documents(),
    model(OpenAi, "o4-mini", "o4-mini")
        .limits([200_000, 100_000])
        .price([1_100_000, 4_400_000, 275_000, 1_100_000])
        .reasons(Thinking::Effort, FROM_LOW)
        .own_temperature()
        .documents(),
    model(Google, "gemini-3.1-pro-preview", "Gemini 3.1 Pro Preview")
        .limits([1_048_576, 65_536])
        .price([2_000_000, 12_000_000, 200_000, 2_000_000])
        .tiers(&[(200_000, rates([4_000_000, 18_000_000, 400_000, 4_000_000]))])
        .reasons(Thinking::Effort, FROM_LOW)
        .documents(),
    model(Google, "gemini-3-pro-preview", "Gemini 3 Pro Preview")
        .limits([1_048_576, 65_536])
        .price([2_000_000, 12_000_000, 200_000, 2_000_000])
        .tiers(&[(200_000, rates([4_000_000, 18_000_000, 400_000, 4_000_000]))])
        .reasons(Thinking::Effort, LOW_OR_HIGH)
        .documents(),
    model(Google, "gemini-3.5-flash", "Gemini 3.5 Flash")
        .limits([1_048_576, 65_536])
        .price([1_500_000, 9_000_000, 150_000, 1_500_000])
        .reasons(Thinking::Effort, FROM_MINIMAL)
        .documents(),
    model(Google, "gemini-3-flash-preview", "Gemini 3 Flash Preview")
        .small()
        .limits([1_048_576, 65_536])
        .price([500_000, 3_000_000, 50_000, 500_000])
        .reasons(Thinking::Effort, FROM_MINIMAL)
        .documents(),
    model(Google, "gemini-2.5-pro", "Gemini 2.5 Pro")
        .limits([1_048_576, 65_536])
        .price([1_250_000, 10_000_000, 125_000, 1_250_000])
        .tiers(&[(200_000, rates([2_500_000, 15_000_000, 250_000, 2_500_000]))])
        .reasons(Thinking::Budget, &[Low, Medium, High, Max])
        .documents(),
    model(Google, "gemini-2.5-flash", "Gemini 2.5 Flash")
        .limits([1_048_576, 65_536])
        .price([300_000, 2_500_000, 30_000, 300_000])
        .reasons(Thinking::Budget, BUDGET)
        .documents(),
    model(Other, "deepseek-v4-pro", "DeepSeek V4 Pro")
        .limits([1_000_000, 384_000])
        .price([435_000, 870_000, 3_625, 435_000])
        .reasons(Thinking::Fixed, &[])
        .sends_back("reasoning_content"),
    model(Other, "deepseek-v4-flash", "DeepSeek V4 Flash")
        .small()
        .limits([1_000_000, 384_000])
        .price([140_000, 280_000, 2_800, 140_000])
        .reasons(Thinking::Fixed, &[])
        .sends_back("reasoning_content"),
    model(Other, "deepseek-chat", "DeepSeek Chat")
        .limits([1_000_000, 384_000])
        .price([140_000, 280_000, 2_800, 140_000])
        .images(),
    model(Other, "deepseek-reasoner", "DeepSeek Reasoner")
        .limits([1_000_000, 384_000])
        .price([140_000, 280_000, 2_800, 140_000])
        .reasons(Thinking::Fixed, &[])
        .images()
        .sends_back("reasoning_content"),
    model(Other, "qwen3.7-max", "Qwen3.7 Max")
        .limits([1_000_000, 65_536])
        .price([2_500_000, 7_500_000, 500_000, 3_125_000])
        .reasons(Thinking::Fixed, &[]),
    model(Other, "qwen3-coder-plus", "Qwen3 Coder Plus")
        .limits([1_048_576, 65_536])
        .price([1_000_000, 5_000_000, 1_000_000, 1_000_000]),
    model(Other, "qwen3-max", "Qwen3 Max")
        .limits([262_144, 65_536])
        .price([1_200_000, 6_000_000, 1_200_000, 1_200_000]),
    model(Other, "mistral-large-latest", "Mistral Large (latest)")
        .limits([262_144, 262_144])
        .price([500_000, 1_500_000, 500_000, 500_000])
        .images(),
    model(Other, "devstral-latest", "Devstral 2")
        .limits([262_144, 262_144])
        .price([400_000, 2_000_000, 400_000, 400_000]),
    model(Other, "codestral-latest", "Codestral (latest)")
        .limits([256_000, 4_096])
        .price([300_000, 900_000, 300_000, 300_000]),
    model(Other, "mistral-medium-latest", "Mistral Medium (latest)")
        .limits([262_144, 262_144])
        .price([400_000, 2_000_000, 400_000, 400_000])
        .images(),
    model(Other, "glm-5.2", "GLM-5.2")
        .limits([1_000_000, 131_072])
        .price([1_400_000, 4_400_000, 260_000, 0])
        .reasons(Thinking::Fixed, &[])
        .sends_back("reasoning_content"),
    model(Other, "glm-5.1", "GLM-5.1")
        .limits([200_000, 131_072])
        .price([1_400_000, 4_400_000, 260_000, 0])
        .reasons(Thinking::Fixed, &[])
        .sends_back("reasoning_content"),
    model(Other, "glm-4.7", "GLM-4.7")
        .limits([204_800, 131_072])
        .price([600_000, 2_200_000, 110_000, 0])
        .reasons(Thinking::Fixed, &[])
        .sends_back("reasoning_content"),
    model(Other, "glm-4.6", "GLM-4.6")
        .limits([204_800, 131_072])
        .price([600_000, 2_200_000, 110_000, 0])
        .reasons(Thinking::Fixed, &[]),
    model(Other, "kimi-k2.7-code", "Kimi K2.7 Code")
        .limits([262_144, 262_144])
        .price([950_000, 4_000_000, 190_000, 950_000])
        .reasons(Thinking::Fixed, &[])
        .own_temperature()
        .images()
        .sends_back("reasoning_content"),
    model(Other, "kimi-k2.6", "Kimi K2.6")
        .limits([262_144, 262_144])
        .price([950_000, 4_000_000, 160_000, 950_000])
        .reasons(Thinking::Fixed, &[])
        .images()
        .sends_back("reasoning_content"),
    model(Other, "kimi-k2-thinking", "Kimi K2 Thinking")
        .limits([262_144, 262_144])
        .price([600_000, 2_500_000, 150_000, 600_000])
        .reasons(Thinking::Fixed, &[])
        .sends_back("reasoning_content"),
    model(Other, "grok-4.3", "Grok 4.3")
        .limits([1_000_000, 30_000])
        .price([1_250_000, 2_500_000, 200_000, 1_250_000])
        .tiers(&[(200_000, rates([2_500_000, 5_000_000, 400_000, 2_500_000]))])
        .reasons(Thinking::Effort, FROM_OFF)
        .images(),
];
