//! The descriptions of the API that answers and events must follow: OpenCode's description, if it is available, and the
//! gateway's.

use jsonschema::Validator;
use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
    fs,
    path::Path,
    sync::{Arc, LazyLock, Mutex},
};

/// The path of the description, from the root of this repository.
const PLACE: &str = "../shared/contract/openapi.json";
/// Statuses that any operation may return here, but that OpenCode, which serves one person, does not declare.
const OURS: [u16; 4] = [401, 403, 429, 503];

/// The description, read once.
static CONTRACT: LazyLock<Option<Contract>> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let Ok(text) = fs::read(root.join(PLACE)) else {
        e2e::left_out::leave_unchecked(
            "OpenCode's description is missing: answers and events are not checked against it",
        );
        return None;
    };
    Some(Contract::of(serde_json::from_slice(&text).unwrap()))
});

pub(super) struct Contract {
    pub(super) document: Value,
    compiled: Mutex<HashMap<String, Arc<Validator>>>,
}

/// Returns OpenCode's description, if it is available.
pub(super) fn find() -> Option<&'static Contract> {
    CONTRACT.as_ref()
}

impl Contract {
    pub(super) fn of(document: Value) -> Self {
        Self { document, compiled: Mutex::default() }
    }

    /// Lists the method and path of every operation.
    pub(super) fn listed(&self) -> Vec<(String, String)> {
        let paths = self.document["paths"].as_object().unwrap().iter();
        let of_path = |(path, operations): (&String, &Value)| {
            let methods = operations.as_object().unwrap().keys();
            methods.map(|method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
        };
        paths.flat_map(of_path).collect()
    }

    /// Lists the members of the body of an operation.
    pub(super) fn members(&self, method: &str, template: &str) -> Vec<String> {
        let operation = &self.document["paths"][template][method.to_lowercase()];
        let mut schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        if let Some(named) = schema["$ref"].as_str() {
            schema = self.document.pointer(named.trim_start_matches('#')).unwrap();
        }
        schema["properties"].as_object().into_iter().flat_map(serde_json::Map::keys).cloned().collect()
    }

    /// Asserts that an operation declares this answer.
    #[track_caller]
    pub(super) fn check(
        &self,
        (method, path): (&str, &str),
        status: u16,
        (content_type, body): (&str, &Value),
    ) {
        let call = format!("{method} {path} answered {status}");
        let (template, operations) = self.operations(path).unwrap_or_else(|| panic!("{call}: no such path"));
        let operation = &operations[method.to_lowercase()];
        assert!(operation.is_object(), "{call}: {template} has no such method");
        let answers = &operation["responses"];
        let answer = answers.get(status.to_string()).unwrap_or(&answers["default"]);
        if answer.is_null() && OURS.contains(&status) {
            return;
        }
        assert!(answer.is_object(), "{call}: no such answer is declared: {body}");
        let content = answer["content"].as_object();
        let Some((kind, declared)) = content.and_then(|content| content.iter().next()) else {
            assert_eq!((content_type, body), ("", &Value::Null), "{call}: it is declared without a body");
            return;
        };
        assert_eq!(kind, content_type, "{call}: {body}");
        let key = format!("{method} {template} {status}");
        self.hold(&key, &declared["schema"], body);
    }

    /// Asserts that OpenCode declares this event.
    #[track_caller]
    pub(super) fn check_event(&self, event: &Value) {
        // OpenCode sends this event, but does not list it.
        if event["type"] != "server.heartbeat" {
            self.check_listed("Event", event);
        }
    }

    /// As [`Contract::check_event`], for an event of the newer API.
    #[track_caller]
    pub(super) fn check_native_event(&self, event: &Value) {
        self.check_listed("V2Event", event);
    }

    #[track_caller]
    fn check_listed(&self, list: &str, event: &Value) {
        let schemas = &self.document["components"]["schemas"];
        let listed = schemas[list]["anyOf"].as_array().unwrap().iter();
        let own = listed.filter_map(|one| one["$ref"].as_str()?.rsplit('/').next());
        let own = own.map(|name| &schemas[name]).find(|one| {
            let kinds = &one["properties"]["type"];
            kinds["const"] == event["type"]
                || kinds["enum"].as_array().is_some_and(|it| it.contains(&event["type"]))
        });
        let schema = own.unwrap_or_else(|| panic!("OpenCode knows no such event: {event}"));
        self.hold(&format!("{list} {}", event["type"]), schema, event);
    }

    /// Finds the operations of a concrete path. If several match, returns the one with the fewest parameters.
    fn operations(&self, path: &str) -> Option<(&str, &Value)> {
        let paths = self.document["paths"].as_object().unwrap();
        let fitting = paths.iter().filter(|(template, _)| fits(template, path));
        fitting
            .min_by_key(|(template, _)| template.matches('{').count())
            .map(|(name, it)| (name.as_str(), it))
    }

    /// Adds the schemas that a schema refers to, at any depth. Compiling all of them would take seconds each time.
    fn gather(&self, schema: &Value, needed: &mut Map<String, Value>) {
        match schema {
            Value::Object(members) => {
                if let Some(name) = members.get("$ref").and_then(Value::as_str) {
                    let name = name.rsplit('/').next().unwrap();
                    let target = &self.document["components"]["schemas"][name];
                    if needed.insert(name.to_owned(), target.clone()).is_none() {
                        self.gather(target, needed);
                    }
                }
                members.values().for_each(|member| self.gather(member, needed));
            }
            Value::Array(items) => items.iter().for_each(|item| self.gather(item, needed)),
            _ => {}
        }
    }

    #[track_caller]
    fn hold(&self, key: &str, schema: &Value, value: &Value) {
        let known = self.compiled.lock().unwrap().get(key).cloned();
        let validator = known.unwrap_or_else(|| {
            let mut needed = Map::new();
            self.gather(schema, &mut needed);
            let whole = json!({"allOf": [schema], "components": {"schemas": needed}});
            let validator = Arc::new(jsonschema::validator_for(&whole).unwrap());
            self.compiled.lock().unwrap().insert(key.to_owned(), Arc::clone(&validator));
            validator
        });
        let wrong: Vec<String> = validator
            .iter_errors(value)
            .map(|error| format!("{} at {}", error, error.instance_path()))
            .collect();
        assert!(wrong.is_empty(), "{key}: {}\n{value}", wrong.join("\n"));
    }
}

/// Returns whether a path matches a template.
pub(super) fn fits(template: &str, path: &str) -> bool {
    if let Some(above) = template.strip_suffix("/*") {
        return path.strip_prefix(above).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'));
    }
    let (template, path): (Vec<&str>, Vec<&str>) = (template.split('/').collect(), path.split('/').collect());
    template.len() == path.len()
        && template
            .iter()
            .zip(&path)
            .all(|(want, is)| want == is || (want.starts_with('{') && !is.is_empty()))
}
