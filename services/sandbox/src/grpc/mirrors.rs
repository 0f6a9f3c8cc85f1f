//! Calls about the mirrors of repositories, which belong to no session.

use super::call::id;
use crate::{error::Error, session::shared::Shared};
use rpc::v1;

/// Projects of one page: some 100 KB. The next page has the others.
const PAGE_MAX: usize = 1_000;

/// Lists the projects with mirrors after a cursor.
pub(super) fn list(shared: &Shared, after: &str) -> v1::ListMirrorsResponse {
    let named = shared.mirrors.projects().into_iter().map(|((tenant, project), size_bytes)| {
        let (tenant_id, project_id) = (tenant.to_string(), project.to_string());
        (format!("{tenant_id}/{project_id}"), v1::MirroredProject { tenant_id, project_id, size_bytes })
    });
    let mut rest: Vec<_> = named.filter(|(cursor, _)| cursor.as_str() > after).collect();
    rest.sort_by(|(one, _), (other, _)| one.cmp(other));
    rest.truncate(PAGE_MAX);
    let last = rest.last().filter(|_| rest.len() == PAGE_MAX);
    let next_cursor = last.map(|(cursor, _)| cursor.clone()).unwrap_or_default();
    v1::ListMirrorsResponse { projects: rest.into_iter().map(|(_, project)| project).collect(), next_cursor }
}

/// Removes the mirrors of a project.
pub(super) fn remove(
    shared: &Shared,
    request: &v1::DropMirrorsRequest,
) -> Result<v1::DropMirrorsResponse, Error> {
    let tenant = id("tenant_id", &request.tenant_id)?;
    let project = id("project_id", &request.project_id)?;
    shared.mirrors.forget_project(tenant, &project);
    Ok(v1::DropMirrorsResponse {})
}
