//! `flotilla approvals`: lists and revokes the "always" answers for projects and for the tenant.

use crate::{
    client::{Client, Paged, all_pages, call},
    exit::Exit,
    terminal::{
        output::{ListText, Output},
        paint::{Paint, harmless, one_line},
    },
};
use anyhow::Result;
use rpc::v1::{Approval, DeleteApprovalRequest, ListApprovalsRequest, PermissionScope};
use serde_json::{Value, json};

/// `flotilla approvals`.
#[derive(Debug, clap::Args)]
pub(crate) struct ApprovalsArgs {
    /// Revoke the answer to this request; sessions that need the permission ask again.
    #[arg(long, value_name = "REQUEST")]
    delete: Option<String>,
}

pub(crate) async fn run(client: &Client, output: &Output, arguments: ApprovalsArgs) -> Result<Exit> {
    if let Some(permission_id) = arguments.delete {
        let request = || DeleteApprovalRequest { permission_id: permission_id.clone() };
        call("revoke the answer", || async { client.permissions().delete_approval(request()).await }).await?;
        let object = json!({"type": "deletion", "id": permission_id, "is_deleted": true});
        output.result(&format!("the answer to {permission_id} is revoked"), &object)?;
        return Ok(Exit::Done);
    }
    let approvals = all_pages(async |page| {
        let request = ListApprovalsRequest { page: Some(page) };
        let list = async || client.permissions().list_approvals(request.clone()).await;
        let answer = call("list the answers", list).await?;
        Ok(Paged { entries: answer.approvals, next_cursor: answer.next_cursor })
    });
    let table = |approvals: &[Approval], _: Paint| approvals.iter().map(|it| line(it) + "\n").collect();
    let none = "no \"always\" answers for a project or the tenant";
    output.list(&approvals.await?, &ListText { to_json, table: &table, none })?;
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

fn to_json(approval: &Approval) -> Value {
    json!({
        "type": "approval", "permission_id": approval.permission_id, "scope": approval.scope().as_str_name(),
        "project_id": approval.project_id, "permission": approval.permission, "pattern": approval.pattern,
        "approved_by": approval.approved_by, "approved_at_ms": approval.approved_at_ms,
    })
}
