//! Default sampling parameters as the models' makers recommend them. For other models the provider's defaults apply.

use crate::{model::Model, request::Request};

/// Recommended values. `None` keeps the provider's default.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Sampling {
    pub(crate) temperature: Option<f64>,
    pub(crate) top_p: Option<f64>,
    /// Only Gemini's protocol has this field.
    pub(crate) top_k: Option<u32>,
}

/// `(temperature, top_p)` of a request to `model`: the request's values, else the recommended ones. Both are `None` for
/// a model that refuses them.
pub(crate) fn of_request(request: &Request, model: &Model) -> (Option<f64>, Option<f64>) {
    if !model.temperature {
        return (None, None);
    }
    let usual = of(&model.id);
    (request.temperature.or(usual.temperature), request.top_p.or(usual.top_p))
}

/// The recommended values for the model `id`. The family name may stand anywhere in the id, because gateways prefix a
/// vendor.
pub(crate) fn of(id: &str) -> Sampling {
    let id = id.to_lowercase();
    let has = |name: &str| id.contains(name);
    let sampling = |temperature, top_p, top_k| Sampling { temperature, top_p, top_k };
    if has("qwen") {
        return sampling(Some(0.55), Some(1.0), None);
    }
    if has("gemini") {
        return sampling(Some(1.0), Some(0.95), Some(64));
    }
    if has("minimax-m2") {
        return sampling(Some(1.0), Some(0.95), None);
    }
    if has("glm-4.6") || has("glm-4.7") {
        return sampling(Some(1.0), None, None);
    }
    if has("kimi-k2") {
        // Thinking models want higher values than the plain model.
        let is_plain = !(has("thinking") || has("kimi-k2.") || has("kimi-k2p"));
        return sampling(Some(if is_plain { 0.6 } else { 1.0 }), None, None);
    }
    Sampling::default()
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn families_are_found_behind_a_vendor() {
        let temperature = |id: &str| of(id).temperature;
        let got = [
            "qwen/Qwen3-Coder",
            "gemini-2.5-pro",
            "zai/glm-4.7",
            "kimi-k2",
            "kimi-k2-thinking",
            "claude-opus-4-5",
        ]
        .map(temperature);
        assert_eq!(got, [Some(0.55), Some(1.0), Some(1.0), Some(0.6), Some(1.0), None]);
        assert_eq!((of("gemini-3-pro").top_p, of("gemini-3-pro").top_k), (Some(0.95), Some(64)));
    }
}
