//! The models that may be called, and their token limits. Each level narrows the models of the deployment, and all levels bind. Only
//! the operator sets addresses, keys and prices: an address receives a key, and a wrong price would defeat a budget.

use domain::conversation::message::ModelRef;
use std::collections::{BTreeMap, BTreeSet};

/// The restriction of one level.
///
/// ```json
/// {"enabled_providers":["anthropic"],"provider":{"anthropic":{"models":{"claude":{"limit":{"context":100000}}}}}}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Models {
    /// Only these providers; `None`: all.
    pub enabled: Option<BTreeSet<String>>,
    /// None of these providers.
    pub disabled: BTreeSet<String>,
    pub providers: BTreeMap<String, ProviderModels>,
}

/// The restriction of one provider.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderModels {
    /// Only these models; `None`: all.
    pub whitelist: Option<BTreeSet<String>>,
    /// None of these models.
    pub blacklist: BTreeSet<String>,
    /// Token limits of models.
    pub limits: BTreeMap<String, Limit>,
}

/// Limits of a model, in tokens. `None`: the model's own limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limit {
    /// Prompt and answer together.
    pub context: Option<u64>,
    pub input: Option<u64>,
    pub output: Option<u64>,
}

impl Models {
    /// Whether this level permits calls of `model`.
    pub(crate) fn allows(&self, model: &ModelRef) -> bool {
        let (provider, id) = (&model.provider_id, &model.model_id);
        let is_listed =
            |list: &Option<BTreeSet<String>>, name| list.as_ref().is_none_or(|it| it.contains(name));
        is_listed(&self.enabled, provider)
            && !self.disabled.contains(provider)
            && self
                .providers
                .get(provider)
                .is_none_or(|narrowed| is_listed(&narrowed.whitelist, id) && !narrowed.blacklist.contains(id))
    }

    pub(crate) fn limit(&self, model: &ModelRef) -> Limit {
        let of_provider = self.providers.get(&model.provider_id);
        of_provider.and_then(|narrowed| narrowed.limits.get(&model.model_id)).copied().unwrap_or_default()
    }
}

impl Limit {
    /// The smaller value of each pair.
    pub(crate) fn and(self, other: Self) -> Self {
        let least = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        Self {
            context: least(self.context, other.context),
            input: least(self.input, other.input),
            output: least(self.output, other.output),
        }
    }
}
