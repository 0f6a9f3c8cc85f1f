//! One tool call from its check to its bounded answer.

use super::output;
use crate::tools::{
    context::{Call, CallContext},
    outcome::{Output, ToolError, UNCERTAIN},
    registry,
    tool::{Performer, Repeat, Tool},
};
use futures::{FutureExt as _, future::BoxFuture};

/// Checks a call, runs it in an open workspace, and bounds its answer.
///
/// # Errors
/// Those of the check, of the tool and of [`output::bounded`].
pub(crate) async fn perform(ctx: &CallContext) -> Result<Output, ToolError> {
    let Call { tool, input, resumed, .. } = &ctx.call;
    let tool = registry::find(tool).map_err(ToolError::Model)?;
    registry::check(ctx.converter(), tool, input).await?;
    // Only the intent is stored. It is unknown whether a call that an earlier worker began took effect.
    if *resumed && registry::repeat(tool, input) == Repeat::Unknown {
        return Err(ToolError::Model(UNCERTAIN.to_owned()));
    }
    let output = registry::run(tool, ctx, input.clone()).await?;
    output::bounded(ctx, output).await
}

/// Performs a call inside another call.
pub(super) fn perform_inner(ctx: &CallContext) -> BoxFuture<'_, Result<Output, ToolError>> {
    async {
        let tool = registry::find(&ctx.call.tool).map_err(ToolError::Model)?;
        if tool == Tool::Batch || tool.performer() == Performer::Loop {
            return Err(ToolError::Model(format!(
                "{} cannot be called in a batch; call it by itself.",
                tool.name()
            )));
        }
        perform(ctx).await
    }
    .boxed()
}
