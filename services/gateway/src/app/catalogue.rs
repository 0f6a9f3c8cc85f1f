//! The models and tools that the workers offer.

use super::gateway::Gateway;
use crate::{auth::principal::Principal, errors::error::Error, scope::Scope};
use domain::{conversation::message::ModelRef, model::Facts, policy::tool::Spec};

/// A model that prompts may name, with the facts that the workers report about it.
#[derive(Debug, Clone)]
pub(crate) struct ServedModel {
    pub(crate) model: ModelRef,
    pub(crate) facts: Option<Facts>,
}

/// Lists the models that prompts may name; the first is the default.
///
/// # Errors
/// `store_unavailable`.
pub(crate) async fn list_models(gateway: &Gateway, principal: &Principal) -> Result<Vec<ServedModel>, Error> {
    principal.require(Scope::Read)?;
    let facts = gateway.state.store.list_models().await?;
    let served = |model: &ModelRef| {
        let facts = facts.iter().find(|facts| &facts.model == model).cloned();
        ServedModel { model: model.clone(), facts }
    };
    Ok(gateway.state.models.iter().map(served).collect())
}

/// Lists the tools as the workers offer them to models. The agent and the rules of a session may allow fewer.
///
/// # Errors
/// `store_unavailable`.
pub(crate) async fn list_tools(gateway: &Gateway, principal: &Principal) -> Result<Vec<Spec>, Error> {
    principal.require(Scope::Read)?;
    Ok(gateway.state.store.list_tools().await?)
}
