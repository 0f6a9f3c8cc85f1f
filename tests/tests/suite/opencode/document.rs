//! The gateway's description of its API. [`super::client`] checks that each answer follows it.

use super::client::Client;
use e2e::Stack;
use reqwest::Method;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

#[tokio::test]
async fn the_description_is_a_valid_openapi_document() {
    let stack = Stack::gateway_alone().await;
    let client = Client::new(&stack, "/home/me/project");
    let document = client.own().await.document.clone();
    assert_eq!(document["openapi"], "3.1.0");
    for member in ["title", "version"] {
        assert!(document["info"][member].is_string(), "{member}");
    }
    let components = document["components"].as_object().unwrap();
    for schema in components["schemas"].as_object().unwrap().values() {
        assert!(jsonschema::meta::is_valid(schema), "{schema}");
    }
    let schemes =
        document["security"].as_array().unwrap().iter().flat_map(|it| it.as_object().unwrap().keys());
    for scheme in schemes {
        assert!(components["securitySchemes"][scheme]["type"].is_string(), "{scheme}");
    }
    visit(&document, &mut |members| {
        if let Some(name) = members.get("$ref") {
            let name = name.as_str().unwrap().strip_prefix('#').unwrap();
            assert!(document.pointer(name).is_some(), "{name}");
        }
        if let Some(schema) = members.get("schema") {
            assert!(jsonschema::meta::is_valid(schema), "{schema}");
        }
    });
    operations(&document);
    let stranger = Client { key: "flk_nobody".to_owned(), ..client.clone() };
    let refused = stranger.request(Method::GET, "/doc").send().await.unwrap();
    assert_eq!(refused.status(), 401);
}

fn operations(document: &Value) {
    let tags = document["tags"].as_array().unwrap().iter();
    let declared: BTreeSet<&str> = tags.map(|tag| tag["name"].as_str().unwrap()).collect();
    let mut ids = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let call = format!("{method} {path}");
            assert!(["get", "post", "put", "patch", "delete"].contains(&method.as_str()), "{call}");
            assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{call}: two have this id");
            assert!(declared.contains(operation["tags"][0].as_str().unwrap()), "{call}");
            assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{call}");
            let parameters = operation["parameters"].as_array().unwrap().iter();
            let named: BTreeSet<&str> = parameters
                .filter(|parameter| parameter["in"] == "path")
                .map(|parameter| {
                    assert!(parameter["required"] == true && parameter["schema"].is_object(), "{call}");
                    parameter["name"].as_str().unwrap()
                })
                .collect();
            let braced = path.split('/').filter_map(|piece| piece.strip_prefix('{')?.strip_suffix('}'));
            assert_eq!(named, braced.collect(), "{call}");
            for (status, answer) in operation["responses"].as_object().unwrap() {
                assert!(
                    status == "default" || (100..600).contains(&status.parse::<u16>().unwrap()),
                    "{call}"
                );
                assert!(answer["description"].is_string(), "{call} {status}");
            }
        }
    }
}

/// Calls `look` with every object in a value.
fn visit(value: &Value, look: &mut impl FnMut(&Map<String, Value>)) {
    match value {
        Value::Object(members) => {
            look(members);
            members.values().for_each(|member| visit(member, look));
        }
        Value::Array(items) => items.iter().for_each(|item| visit(item, look)),
        _ => {}
    }
}
