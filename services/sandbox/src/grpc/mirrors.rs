//! Calls about the mirrors of repositories, which belong to no session.

use crate::{code::Code, error::Error, session::shared::Shared};
use rpc::v1;
use std::fmt::Display;

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
    let tenant = request.tenant_id.parse().map_err(|error| invalid("tenant_id", &error))?;
    let project = request.project_id.parse().map_err(|error| invalid("project_id", &error))?;
    shared.mirrors.forget_project(tenant, &project);
    Ok(v1::DropMirrorsResponse {})
}

fn invalid(name: &str, error: &dyn Display) -> Error {
    Error::refused(Code::ArgumentInvalid, format!("{name}: {error}"))
}
