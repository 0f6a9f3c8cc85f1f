//! `flotilla approvals`: lists and revokes the "always" answers for projects and for the tenant.

use crate::{
    client::{Client, call},
    exit::Exit,
    terminal::{
        out,
        paint::{harmless, one_line},
    },
};
use anyhow::Result;
use domain::limits;
use rpc::v1::{Approval, DeleteApprovalRequest, ListApprovalsRequest, Page, PermissionScope};
use serde_json::json;

/// `flotilla approvals`.
#[derive(Debug, clap::Args)]
pub(crate) struct ApprovalsArgs {
    /// Revoke the answer to this request; sessions that need the permission ask again.
    #[arg(long, value_name = "REQUEST")]
    delete: Option<String>,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(client: &Client, arguments: ApprovalsArgs) -> Result<Exit> {
    if let Some(permission_id) = arguments.delete {
        let request = || DeleteApprovalRequest { permission_id: permission_id.clone() };
        call("revoke the answer", || async { client.permissions().delete_approval(request()).await }).await?;
        out::line(&format!("the answer to {permission_id} is revoked"))?;
        return Ok(Exit::Done);
    }
    let mut cursor = String::new();
    let mut is_empty = true;
    loop {
        let page = Page { limit: limits::PAGE_MAX, cursor };
        let request = || ListApprovalsRequest { page: Some(page.clone()) };
        let answer =
            call("list the answers", || async { client.permissions().list_approvals(request()).await })
                .await?;
        for approval in &answer.approvals {
            is_empty = false;
            out::line(&if arguments.json { to_json(approval) } else { line(approval) })?;
        }
        cursor = answer.next_cursor;
        if cursor.is_empty() {
            break;
        }
    }
    if is_empty && !arguments.json {
        out::line("no \"always\" answers for a project or the tenant")?;
    }
    Ok(Exit::Done)
}

/// Characters of a pattern on a line.
const PATTERN_CHARS: usize = 60;

fn line(approval: &Approval) -> String {
    let whose = match approval.scope() {
        PermissionScope::Project => format!("project {}", approval.project_id),
        _ => "tenant".to_owned(),
    };
    let pattern = one_line(&harmless(&approval.pattern), PATTERN_CHARS);
    format!(
        "{}  {whose}  {} {pattern}  by {}",
        approval.permission_id, approval.permission, approval.approved_by
    )
}

fn to_json(approval: &Approval) -> String {
    json!({
        "permission_id": approval.permission_id, "scope": approval.scope().as_str_name(),
        "project_id": approval.project_id, "permission": approval.permission, "pattern": approval.pattern,
        "approved_by": approval.approved_by, "approved_at_ms": approval.approved_at_ms,
    })
    .to_string()
}
