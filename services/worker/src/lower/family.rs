//! Families of models, and the advice that each gets in the system prompt in addition to the common text. A family makes the
//! same mistakes under every provider's name, so the name of the model decides.

/// Models that need the same advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Claude,
    Gemini,
    Gpt,
    /// All others; most of them have open weights.
    Open,
}

impl Family {
    /// The family of the model with this id, for example `claude-opus-4-7` or `openai/gpt-5.1`.
    pub(super) fn of(model_id: &str) -> Self {
        let id = model_id.to_lowercase();
        let name = id.rsplit('/').next().unwrap_or(&id);
        let is_any = |words: &[&str]| words.iter().any(|word| name.contains(word));
        let is_reasoner = ["o1", "o3", "o4"].iter().any(|version| name.starts_with(version));
        if is_any(&["claude"]) {
            Self::Claude
        } else if is_any(&["gemini"]) {
            Self::Gemini
        } else if is_any(&["gpt", "codex"]) || is_reasoner {
            Self::Gpt
        } else {
            Self::Open
        }
    }

    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::Claude => include_str!("../prompt/family/claude.txt"),
            Self::Gemini => include_str!("../prompt/family/gemini.txt"),
            Self::Gpt => include_str!("../prompt/family/gpt.txt"),
            Self::Open => include_str!("../prompt/family/open.txt"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_model_tells_its_family() {
        for (id, want) in [
            ("claude-opus-4-7", Family::Claude),
            ("anthropic/claude-sonnet-4.5", Family::Claude),
            ("us.anthropic.claude-haiku-4-5-v1:0", Family::Claude),
            ("gemini-3-pro-preview", Family::Gemini),
            ("GPT-5.1", Family::Gpt),
            ("openai/gpt-oss-120b", Family::Gpt),
            ("codex-mini-latest", Family::Gpt),
            ("o3-mini", Family::Gpt),
            ("qwen3-coder", Family::Open),
            ("moonshotai/kimi-k2", Family::Open),
            ("gemma-3-27b", Family::Open),
            ("solo1", Family::Open),
            ("", Family::Open),
        ] {
            assert_eq!(Family::of(id), want, "{id}");
        }
    }

    #[test]
    fn each_family_has_its_own_advice() {
        let all = [Family::Claude, Family::Gemini, Family::Gpt, Family::Open].map(Family::advice);
        for (at, advice) in all.iter().enumerate() {
            assert!(advice.starts_with("Advice for you") && !all[..at].contains(advice), "{advice}");
        }
    }
}
