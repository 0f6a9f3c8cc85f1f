use super::*;
use convert_client::converter::Converter;
use domain::ids::TenantId;
use serde_json::json;

#[test]
fn tools_are_sorted_and_their_schemas_are_valid() {
    let skill = rpc::v1::Skill { name: "pdf".into(), description: "reads PDF".into(), path: "p".into() };
    let (nothing, hosts) = (BTreeSet::new(), BTreeSet::from(["*.acme.dev", "preset:npm"]));
    let lists = ToolLists { skills: &[], subagents: &[], askable_hosts: &nothing };
    let names = |specs: Vec<tool::Spec>| specs.into_iter().map(|spec| spec.name).collect::<Vec<_>>();
    let few = names(offered(&lists, |_| false));
    let left_out = |name: &&str| !few.iter().any(|offered| offered == name);
    let left_out: Vec<&str> = domain::policy::tool::NAMES.into_iter().filter(left_out).collect();
    assert_eq!(left_out, ["network", "skill"], "they have nothing to list");
    let lists = ToolLists { skills: std::slice::from_ref(&skill), askable_hosts: &hosts, ..lists };
    let all = offered(&lists, |_| false);
    for (name, want) in [("skill", "pdf: reads PDF"), ("network", "allow: *.acme.dev, preset:npm.")] {
        assert!(all.iter().any(|spec| spec.name == name && spec.description.contains(want)), "{name}");
    }
    let names = names(all);
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(names, sorted);
    assert_eq!(names, domain::policy::tool::NAMES);
    assert!(REGISTRY.iter().all(|registered| registered.schema.is_some()), "every schema compiles");
}

#[test]
fn unknown_tools_are_named_and_other_cases_forgiven() {
    assert_eq!(find("BASH"), Ok(Tool::Bash));
    let error = find("teleport").expect_err("no such tool");
    assert!(error.contains("\"teleport\"") && error.contains("bash, batch, edit, glob"), "{error}");
}

#[tokio::test]
async fn arguments_that_do_not_fit_the_schema_are_told_to_the_model() {
    let program = chassis::programs::find(convert_client::converter::PROGRAM).unwrap();
    let converter = Converter::new(program);
    let converter = converter.of(TenantId(uuid::Uuid::nil()));
    for (tool, input, want) in [
        (Tool::Bash, json!({}), "command"),
        (Tool::Bash, json!({"command": 7}), "/command"),
        (Tool::Bash, json!({"command": "true", "sudo": true}), "sudo"),
        (Tool::Read, json!({"filePath": "/a", "offset": -1}), "/offset"),
        (
            Tool::TodoWrite,
            json!({"todos": [{"content": "a", "status": "maybe", "priority": "low"}]}),
            "/todos/0/status",
        ),
        (Tool::Edit, json!([]), "object"),
    ] {
        match check(converter, tool, &input).await {
            Err(ToolError::Model(text)) => {
                assert!(text.contains(want) && text.contains("nothing was done"), "{text}")
            }
            other => panic!("{input}: {other:?}"),
        }
    }
    assert!(check(converter, Tool::Bash, &json!({"command": "true"})).await.is_ok());
}

#[tokio::test]
async fn arguments_that_are_clear_are_read_whatever_their_type() {
    let program = chassis::programs::find(convert_client::converter::PROGRAM).unwrap();
    let converter = Converter::new(program);
    let converter = converter.of(TenantId(uuid::Uuid::nil()));
    let todo = json!({"content": "a", "status": "pending", "priority": "low"});
    let (read_one, read_two) =
        (json!({"filePath": "/a", "offset": "1"}), json!({"filePath": "/a", "offset": 1}));
    for (tool, input, want) in [
        (Tool::Grep, json!({"pattern": "foo", "path": null, "include": null}), json!({"pattern": "foo"})),
        (
            Tool::Read,
            json!({"filePath": "/a", "offset": "1", "limit": 2.0}),
            json!({"filePath": "/a", "offset": 1, "limit": 2}),
        ),
        (Tool::Read, json!({"filePath": "/a", "limit": 5000}), json!({"filePath": "/a", "limit": 2000})),
        (
            Tool::Bash,
            json!({"command": "x", "timeout": 1_200_000.0, "run_in_background": false}),
            json!({"command": "x", "timeout": domain::limits::EXEC_TIMEOUT_MAX_MS}),
        ),
        (Tool::TodoWrite, json!({"todos": json!([todo]).to_string()}), json!({"todos": [todo]})),
        (
            Tool::Edit,
            json!({"file_path": "/a", "old_string": "a", "new_string": "b", "replace_all": "false"}),
            json!({"filePath": "/a", "oldString": "a", "newString": "b", "replaceAll": false}),
        ),
        (
            Tool::Batch,
            json!({"tool_calls": [{"tool": "Read", "parameters": read_one.to_string()}]}),
            json!({"tool_calls": [{"tool": "Read", "parameters": read_two}]}),
        ),
    ] {
        let input = read(tool, input);
        assert_eq!(input, want);
        assert!(check(converter, tool, &input).await.is_ok(), "{input}");
    }
    for (tool, input) in [
        (Tool::Bash, json!({"command": "x", "run_in_background": true})),
        (Tool::Bash, json!({"command": null})),
        (Tool::Read, json!({"filePath": "/a", "offset": "first"})),
        (Tool::TodoWrite, json!({"todos": "buy milk"})),
    ] {
        assert!(check(converter, tool, &read(tool, input.clone())).await.is_err(), "{input}");
    }
}
