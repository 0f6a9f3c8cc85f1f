//! Who may call each method of the API: the option `access` of the methods in `proto/flotilla/v1`.

use crate::v1::{Access, Scope};
use prost::{DecodeError, Message};
use std::collections::BTreeMap;

/// The services that the gateway does not serve. Their callers are services, which have tokens and no scopes.
const INTERNAL_SERVICES: [&str; 4] = ["BrokerService", "ForgeService", "SandboxService", "TerminalService"];

/// The methods of the gateway by path, such as `/flotilla.v1.SessionService/GetSession`.
///
/// # Errors
/// If the compiled files of the API cannot be read.
pub fn methods() -> Result<BTreeMap<String, Access>, DecodeError> {
    let files = FileSet::decode(wire::DESCRIPTORS)?.file;
    let mut methods = BTreeMap::new();
    for file in files {
        for service in file.service.iter().filter(|service| !INTERNAL_SERVICES.contains(&&*service.name)) {
            for method in &service.method {
                let access = method.options.and_then(|options| options.access);
                // What nobody decided about is the operator's.
                let access = access.unwrap_or(Access { scope: Scope::Operate.into(), by_operator: false });
                methods.insert(format!("/{}.{}/{}", file.package, service.name, method.name), access);
            }
        }
    }
    Ok(methods)
}

/// `google.protobuf.FileDescriptorSet`, reduced to what leads to the option. The published type drops options that it does not know.
#[derive(Clone, PartialEq, Message)]
struct FileSet {
    #[prost(message, repeated, tag = "1")]
    file: Vec<File>,
}

#[derive(Clone, PartialEq, Message)]
struct File {
    #[prost(string, tag = "2")]
    package: String,
    #[prost(message, repeated, tag = "6")]
    service: Vec<Service>,
}

#[derive(Clone, PartialEq, Message)]
struct Service {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    method: Vec<Method>,
}

#[derive(Clone, PartialEq, Message)]
struct Method {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "4")]
    options: Option<Options>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Options {
    #[prost(message, optional, tag = "51717")]
    access: Option<Access>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_of_the_gateway_says_who_may_call_it() -> Result<(), DecodeError> {
        let methods = methods()?;
        let scope = |path: &str| methods.get(path).map(|access| (access.scope(), access.by_operator));
        assert_eq!(scope("/flotilla.v1.SessionService/GetSession"), Some((Scope::Read, false)));
        assert_eq!(scope("/flotilla.v1.TenantService/CreateKey"), Some((Scope::Manage, true)));
        assert_eq!(scope("/flotilla.v1.BrokerService/Push"), None);
        // Only these services are the operator's: elsewhere it would be a method that nobody decided about.
        let operators = methods.iter().filter(|(_, access)| access.scope() == Scope::Operate);
        let services = [".AdminService/", ".GithubService/", ".TenantService/"];
        let is_operators = |path: &str| services.iter().any(|service| path.contains(service));
        assert_eq!(operators.filter(|(path, _)| !is_operators(path)).collect::<Vec<_>>(), []);
        Ok(())
    }
}
