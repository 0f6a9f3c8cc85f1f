#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{gemini, moonshot, object};
use serde_json::{Value, json};

/// `schema` as the only argument of a tool, in Gemini's dialect.
fn argument(schema: Value) -> Value {
    gemini(&json!({"type":"object","properties":{"x":schema}})).unwrap()["properties"]["x"].take()
}

#[test]
fn the_top_of_a_schema_is_a_plain_object() {
    for (schema, want) in [
        (json!(null), json!({"type":"object","properties":{}})),
        (json!({"description":"d"}), json!({"description":"d","type":"object","properties":{}})),
        (
            json!({"anyOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":true}}]}),
            json!({"type":"object","properties":{"a":{"type":"string"},"b":true}}),
        ),
        (
            json!({"type":"object","properties":{"a":true},"required":["a"],
                "allOf":[{"properties":{"b":true},"required":["b"]}]}),
            json!({"type":"object","required":["a","b"],"properties":{"a":true,"b":true}}),
        ),
    ] {
        assert_eq!(object(&schema), want, "{schema}");
    }
}

#[test]
fn gemini_gets_its_dialect() {
    for (schema, want) in [
        (json!({"type":"integer","enum":[1,2],"minimum":1}), json!({"type":"string","enum":["1","2"]})),
        (json!({"const":"a"}), json!({"type":"string","enum":["a"]})),
        (json!({"type":"array"}), json!({"type":"array","items":{"type":"string"}})),
        (
            json!({"type":"array","items":[{"type":"integer"}]}),
            json!({"type":"array","items":{"type":"string"}}),
        ),
        (json!({"type":["string","null"]}), json!({"nullable":true,"type":"string"})),
        (
            json!({"type":["string","integer"],"description":"d"}),
            json!({"description":"d","anyOf":[{"description":"d","type":"string"},{"description":"d","type":"integer"}]}),
        ),
        (
            json!({"oneOf":[{"type":"null"},{"type":"boolean","title":"t"}],"default":false}),
            json!({"nullable":true,"title":"t","type":"boolean"}),
        ),
        (json!({"type":"string","format":"uri","$comment":"c"}), json!({"type":"string"})),
        (json!({"type":"string","format":"date-time"}), json!({"format":"date-time","type":"string"})),
        (
            json!({"properties":{"a":{"type":"number"}},"required":["a","ghost"],"additionalProperties":false}),
            json!({"type":"object","required":["a"],"properties":{"a":{"type":"number"}}}),
        ),
        (
            json!({"allOf":[{"properties":{"a":{"type":"number"}}},{"properties":{"b":{"type":"string"}}}]}),
            json!({"type":"object","properties":{"a":{"type":"number"},"b":{"type":"string"}}}),
        ),
        (json!({"type":"object"}), json!({"type":"object"})),
        (json!(true), json!({"type":"string"})),
        (json!({"$ref":"#/nowhere"}), json!({"type":"string"})),
    ] {
        assert_eq!(argument(schema.clone()), want, "{schema}");
    }
    assert_eq!(gemini(&json!({"type":"object","properties":{}})), None, "a tool without arguments");
}

#[test]
fn references_are_followed_and_cycles_are_broken() {
    let schema = json!({
        "type":"object",
        "properties":{"node":{"$ref":"#/$defs/node"}},
        "$defs":{"node":{"type":"object","properties":{"next":{"$ref":"#/$defs/node"},"name":{"type":"string"}}}},
    });
    let lowered = gemini(&schema).unwrap();
    assert_eq!(lowered.pointer("/properties/node/properties/name"), Some(&json!({"type":"string"})));
    assert!(!lowered.to_string().contains("$ref") && lowered.to_string().len() < 10_000, "{lowered}");
    let twice = json!({"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},
        "$defs":{"n":{"properties":{"l":{"$ref":"#/$defs/n"},"r":{"$ref":"#/$defs/n"}}}}});
    assert!(
        gemini(&twice).unwrap().to_string().len() < 1_000_000,
        "a tree that doubles at each level ends too"
    );
    // A reference to itself.
    let circle = json!({"type":"object","properties":{"a":{"$ref":"#/properties/a"}}});
    assert_eq!(gemini(&circle).unwrap()["properties"]["a"], json!({"type":"string"}));
}

#[test]
fn moonshot_gets_bare_references_and_one_item_schema() {
    let schema = json!({"properties":{"a":{"$ref":"#/x","description":"d"},"b":{"type":"array","items":[{"type":"string"},true]}}});
    let want = json!({"properties":{"a":{"$ref":"#/x"},"b":{"type":"array","items":{"type":"string"}}}});
    assert_eq!(moonshot(&schema), want);
}
