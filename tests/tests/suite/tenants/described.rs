//! Every rpc of the protocol's description, including streams: each field with an id is tried with an id of another tenant,
//! alone and together with the caller's other ids. New fields and rpcs are tested automatically.

use super::{ForeignIds, INNER_SERVICES};
use e2e::{Stack, api::Api, turn::run};
use prost::Message as _;
use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};
use std::collections::HashMap;

/// Fields whose ids belong to no tenant: models, and ids that the call creates.
const NO_NAMES: [&str; 5] = [
    "ModelRef.provider_id",
    "ModelRef.model_id",
    "AcceptPromptRequest.message_id",
    "PromptPart.id",
    "CreateKeyRequest.prefix",
];
/// Messages that are not searched: the parts of a prompt contain no further ids.
const LEAVES: [&str; 2] = ["ModelRef", "PromptPart"];

/// The ids of one tenant, by field.
type Names = HashMap<&'static str, String>;

/// A public rpc.
struct Rpc {
    path: String,
    request: DescriptorProto,
}

struct Protocol {
    messages: HashMap<String, DescriptorProto>,
    rpcs: Vec<Rpc>,
}

impl Protocol {
    fn read() -> Self {
        let files = FileDescriptorSet::decode(rpc::DESCRIPTORS).unwrap().file;
        let named = |message: &DescriptorProto| (message.name().to_owned(), message.clone());
        let messages: HashMap<_, _> =
            files.iter().flat_map(|file| file.message_type.iter().map(named)).collect();
        let mut rpcs = vec![];
        for file in files.iter().filter(|file| file.package() == "flotilla.v1") {
            // Clients cannot reach the services of the sandbox.
            let public = file.service.iter().filter(|it| !INNER_SERVICES.contains(&it.name()));
            for service in public {
                for method in &service.method {
                    let request = messages[short(method.input_type())].clone();
                    let path = format!("flotilla.v1.{}/{}", service.name(), method.name());
                    rpcs.push(Rpc { path, request });
                }
            }
        }
        Self { messages, rpcs }
    }

    /// Lists the fields of a message that contain ids, and those of nested messages with their path.
    fn naming(&self, message: &DescriptorProto) -> Vec<String> {
        let mut found = vec![];
        for field in &message.field {
            let full = format!("{}.{}", message.name(), field.name());
            if field.r#type() == Type::Message && !LEAVES.contains(&short(field.type_name())) {
                // Maps and the standard messages of protobuf contain no ids.
                let inner = self.messages.get(short(field.type_name())).map(|inner| self.naming(inner));
                found.extend(
                    inner.unwrap_or_default().into_iter().map(|path| format!("{}.{path}", field.name())),
                );
            } else if is_name(field) && !NO_NAMES.contains(&&*full) {
                found.push(field.name().to_owned());
            }
        }
        found
    }

    /// Builds a message in which `names` decides each field with an id. The other fields have typical values.
    fn encode(&self, message: &DescriptorProto, names: &dyn Fn(&str) -> Option<String>) -> Vec<u8> {
        let mut bytes = vec![];
        for field in &message.field {
            let full = format!("{}.{}", message.name(), field.name());
            let value = match field.r#type() {
                Type::String if is_name(field) && !NO_NAMES.contains(&&*full) => {
                    names(field.name()).map(String::into_bytes)
                }
                Type::String if field.label() != Label::Repeated => {
                    usual(field.name()).map(|text| text.as_bytes().to_vec())
                }
                Type::Message if field.name() == "update_mask" => {
                    Some(prost_types::FieldMask { paths: vec!["title".to_owned()] }.encode_to_vec())
                }
                Type::Message if !LEAVES.contains(&short(field.type_name())) => {
                    let inner = self.messages.get(short(field.type_name()));
                    let within = |name: &str| names(&format!("{}.{name}", field.name()));
                    inner.map(|inner| self.encode(inner, &within)).filter(|inner| !inner.is_empty())
                }
                Type::Enum | Type::Uint32
                    if ["answer", "weight", "running_max", "role"].contains(&field.name()) =>
                {
                    bytes.extend([varint_tag(field), 1]);
                    None
                }
                _ => None,
            };
            if let Some(value) = value {
                bytes.push(varint_tag(field) | 2);
                prost::encode_length_delimiter(value.len(), &mut bytes).unwrap();
                bytes.extend(value);
            }
        }
        bytes
    }
}

/// Returns the tag of a field without its wire type.
fn varint_tag(field: &FieldDescriptorProto) -> u8 {
    let number = u8::try_from(field.number()).unwrap();
    assert!(number < 16, "{} has a tag of one byte", field.name());
    number << 3
}

fn is_name(field: &FieldDescriptorProto) -> bool {
    field.r#type() == Type::String && (field.name().ends_with("_id") || field.name() == "prefix")
}

fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap()
}

/// Returns a non-empty value for a field that a valid call needs.
fn usual(name: &str) -> Option<&'static str> {
    match name {
        "text" => Some("@text taken"),
        "title" | "name" | "reason" => Some("taken"),
        "document" => Some("{}"),
        "path" => Some("/run/sbx/out/x/output"),
        _ => None,
    }
}

/// Creates the resources of the attacker that are needed in addition to those of the other tenant.
async fn own_names(api: &Api) -> Names {
    let session = api.session(None).await;
    assert_eq!(run(api, &session, "@tool bash {\"command\":\"true\"}\n@text own").await.0, "done");
    let talk = api.conversation(&session).await;
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    Names::from([
        ("message_id", text(&talk[0].0["id"])),
        ("part_id", text(&talk[0].1[0]["id"])),
        ("session_id", session),
        ("project_id", api.project_id.clone()),
        ("tenant_id", api.tenant_id.clone()),
    ])
}

fn their_names(theirs: &ForeignIds) -> Names {
    Names::from([
        ("session_id", theirs.session.clone()),
        ("message_id", theirs.message.clone()),
        ("part_id", theirs.part.clone()),
        ("pty_id", theirs.pty.clone()),
        ("permission_id", theirs.permission.clone()),
        ("question_id", theirs.question.clone()),
        ("project_id", theirs.project.clone()),
        ("tenant_id", theirs.tenant.clone()),
        ("bundle_id", theirs.bundle.sha256.clone()),
        ("prefix", theirs.key_prefix.clone()),
    ])
}

/// Calls with one message, and returns the gRPC status of the refusal.
async fn call(api: &Api, url: &str, path: &str, message: &[u8]) -> String {
    let client = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let request = client
        .post(format!("{url}/{path}"))
        .bearer_auth(&api.key)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body([&[0], &length[..], message].concat());
    let response = testkit::within("an answer", request.send()).await.unwrap();
    // The status of a refusal is in the headers.
    let status = response.headers().get("grpc-status");
    status.map_or_else(|| "answered".to_owned(), |status| status.to_str().unwrap().to_owned())
}

/// Tries every field of every rpc; returns the number of tries.
pub(super) async fn attack(stack: &Stack, api: &Api, theirs: &ForeignIds) -> usize {
    let (own, foreign, protocol) = (own_names(api).await, their_names(theirs), Protocol::read());
    let mut tried = 0;
    for Rpc { path, request } in &protocol.rpcs {
        let naming = protocol.naming(request);
        let theirs_at = |name: &str| {
            let known = foreign.get(short(name));
            known.unwrap_or_else(|| panic!("{path}: say what {name} is, or that it names nothing")).clone()
        };
        let together = (naming.len() > 1).then_some(None);
        for alone in naming.iter().map(Some).chain(together) {
            let message = protocol.encode(request, &|name| match alone {
                Some(alone) if alone != name => own.get(short(name)).cloned(),
                _ => Some(theirs_at(name)),
            });
            let status = call(api, stack.gateway_url(), path, &message).await;
            let what = alone.map_or("all", String::as_str);
            let is_operators = ["AdminService", "/BindInstallation", "/UpdateTenant", "/DeleteTenant"]
                .iter()
                .any(|part| path.contains(part));
            let want = if is_operators { "7" } else { "5" };
            assert_eq!(status, want, "{path} with {what} of theirs");
            tried += 1;
        }
    }
    tried
}
