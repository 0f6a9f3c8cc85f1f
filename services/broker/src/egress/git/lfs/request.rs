//! What a client of Git LFS asks the door for.

use crate::egress::git::{refusal::GitRefusal, request};
use domain::egress::{
    git::{GIT_DOOR, GitAddress},
    lfs::{
        batch::{LFS_BATCH, LFS_OBJECTS_PATH},
        pointer::LfsPointer,
    },
};
use hyper::{Method, Uri};

/// Before the length of an object in a link.
const SIZE: &str = "size=";

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::egress::git) enum LfsRequest {
    /// Which objects the server gives. The body names them.
    Batch(GitAddress),
    /// The content of an object.
    Object { repository: GitAddress, pointer: LfsPointer },
}

/// Reads a request. `None`: it is none of Git LFS.
pub(in crate::egress::git) fn parse(method: &Method, uri: &Uri) -> Option<Result<LfsRequest, GitRefusal>> {
    let (repository, name) = uri.path().rsplit_once(LFS_OBJECTS_PATH)?;
    if uri.authority().is_some() {
        return Some(Err(GitRefusal::Request));
    }
    Some(match (name, uri.query()) {
        (LFS_BATCH, None) if method == Method::POST => request::address(repository).map(LfsRequest::Batch),
        (oid, Some(query)) if method == Method::GET => {
            // Every other spelling of the number would be one more link to the same object.
            let size = query.strip_prefix(SIZE).and_then(|size| size.parse().ok());
            let pointer = size.and_then(|size| LfsPointer::new(oid, size));
            let pointer = pointer.filter(|pointer| query == format!("{SIZE}{}", pointer.size()));
            pointer.ok_or(GitRefusal::Request).and_then(|pointer| {
                Ok(LfsRequest::Object { repository: request::address(repository)?, pointer })
            })
        }
        _ => Err(GitRefusal::Request),
    })
}

/// Where a client reads an object at the door.
pub(super) fn link(repository: &GitAddress, pointer: &LfsPointer) -> String {
    let (authority, path, oid) = (repository.authority(), repository.path(), pointer.oid());
    format!("{GIT_DOOR}{authority}{path}{LFS_OBJECTS_PATH}{oid}?{SIZE}{}", pointer.size())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn read(request: &str) -> Option<String> {
        let (method, uri) = request.split_once(' ').unwrap();
        parse(&method.parse().unwrap(), &uri.parse().unwrap()).map(|read| match read {
            Ok(LfsRequest::Batch(repository)) => format!("batch {repository}"),
            Ok(LfsRequest::Object { repository, pointer }) => {
                format!("{repository} {} {}", &pointer.oid()[..2], pointer.size())
            }
            Err(refusal) => refusal.code().as_str().to_owned(),
        })
    }

    #[test]
    fn only_batches_and_objects_are_asked_for() {
        let oid = "ab".repeat(32);
        let objects = "/h.org/a/b.git/info/lfs/objects";
        for (request, want) in [
            (format!("POST {objects}/batch"), "batch https://h.org/a/b.git"),
            (format!("GET {objects}/{oid}?size=7"), "https://h.org/a/b.git ab 7"),
            (format!("GET {objects}/{oid}?size=07"), "git_request_refused"),
            (format!("GET {objects}/{oid}?size=+7"), "git_request_refused"),
            (format!("GET {objects}/{oid}?size=7&x=y"), "git_request_refused"),
            (format!("GET {objects}/{oid}"), "git_request_refused"),
            (format!("GET {objects}/{}?size=7", &oid[2..]), "git_request_refused"),
            (format!("GET {objects}/../{oid}?size=7"), "git_request_refused"),
            (format!("PUT {objects}/{oid}?size=7"), "git_request_refused"),
            (format!("GET {objects}/batch"), "git_request_refused"),
            (format!("POST {objects}/batch?x"), "git_request_refused"),
            (format!("POST {objects}/verify"), "git_request_refused"),
            (format!("POST http://h.org{objects}/batch"), "git_request_refused"),
            ("POST /h.org/a/../b.git/info/lfs/objects/batch".to_owned(), "git_address_invalid"),
            ("POST /127.0.0.1/b.git/info/lfs/objects/batch".to_owned(), "git_address_invalid"),
            ("POST /h.org/a/b.git//info/lfs/objects/batch".to_owned(), "git_request_refused"),
        ] {
            assert_eq!(read(&request).as_deref(), Some(want), "{request}");
        }
        for other in ["POST /h.org/a/info/lfs/locks", "GET /h.org/a/info/refs?service=git-upload-pack"] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn a_link_leads_back_to_its_object() {
        let repository = GitAddress::parse("h.org:8443", "/a/b.git").unwrap();
        let pointer = LfsPointer::new(&"ab".repeat(32), 7).unwrap();
        let link = link(&repository, &pointer);
        let target = format!("/{}", link.strip_prefix(GIT_DOOR).unwrap());
        let read = parse(&Method::GET, &target.parse().unwrap()).unwrap();
        assert_eq!(read, Ok(LfsRequest::Object { repository, pointer }));
    }
}
