//! One file: what it says, and what is wrong with it.

use super::{agent, json, merged, problems, settings};
use crate::{
    Agent, Compaction, LevelHosts, LostWorkspace, Settings, SubtaskFiles, ToolOutput,
    document::Document,
    markdown::{Kind, Subject, subject_of},
    models::{Limit, Models, ProviderModels},
    substitute::Refusal,
};
use domain::{
    conversation::{command::Command, message::ModelRef},
    limits::{
        SETTINGS_AGENTS_MAX, SETTINGS_BYTES_MAX, SETTINGS_DEPTH_MAX, SETTINGS_FILE_BYTES_MAX,
        SETTINGS_PROBLEMS_MAX, SETTINGS_VALUES_MAX,
    },
    policy::{
        agent::Mode,
        level::Level,
        permission::Verdict::{self, Allow, Ask, Deny},
        reference::Reference,
    },
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn model(provider: &str, model: &str) -> ModelRef {
    ModelRef { provider_id: provider.to_owned(), model_id: model.to_owned() }
}

/// `permission pattern action`, in order.
fn rules(settings: &Settings, agent: &str) -> Vec<(String, String, Verdict)> {
    let lists = settings.rules(agent);
    lists
        .into_iter()
        .flat_map(|rules| rules.0)
        .map(|rule| (rule.permission, rule.pattern, rule.action))
        .collect()
}

fn rule(permission: &str, pattern: &str, action: Verdict) -> (String, String, Verdict) {
    (permission.to_owned(), pattern.to_owned(), action)
}

#[test]
fn everything_that_has_an_effect_is_read() {
    let text = r#"{
        // who answers
        "model": "anthropic/claude", "small_model": "router/vendor/tiny", "default_agent": "plan",
        "agent": {"plan": {
            "model": "a/b", "variant": "high", "prompt": "Plan.", "description": "plans", "mode": "all",
            "hidden": true, "files": "fork", "steps": 7, "maxSteps": 9, "temperature": 0.5, "top_p": 1, "disable": false,
            "color": "red", "options": {"a": 1}, "reasoningEffort": "high",
        }},
        "command": {"go": {"template": "Go $1", "description": "goes", "agent": "plan", "model": "a/b", "variant": "x", "subtask": true}},
        "provider": {"mock": {"options": {"apiKey": "k"}, "models": {"m": {"limit": {"context": 5}}}}},
        "instructions": ["CONTRIBUTING.md"], /* and */ "snapshot": false, "subagent_depth": 2, "lost_workspace": "restart",
        "compaction": {"auto": true, "prune": false, "reserved": 1000, "preserve_recent_tokens": 2e3, "tail_turns": 0},
        "tool_output": {"max_lines": 100, "max_bytes": 2000.0}, "environment": {"network": {"allow": ["preset:npm"]}},
    }"#;
    let got = settings(text);
    let plan = Agent {
        model: Some(model("a", "b")),
        variant: Some("high".into()),
        prompt: Some("Plan.".into()),
        description: Some("plans".into()),
        mode: Some(Mode::All),
        files: Some(SubtaskFiles::Fork),
        hidden: Some(true),
        steps: Some(7),
        temperature: Some(0.5),
        top_p: Some(1.0),
        permission: vec![],
        disable: Some(false),
        options: got.agents["plan"].options.clone(),
    };
    assert_eq!(Value::Object(plan.options.0.clone()), json!({"a": 1, "reasoningEffort": "high"}));
    let go = Command {
        template: "Go $1".into(),
        description: Some("goes".into()),
        agent: Some("plan".into()),
        model: Some(model("a", "b")),
        variant: Some("x".into()),
        subtask: Some(true),
    };
    let limit = Limit { context: Some(5), ..Limit::default() };
    let mock = ProviderModels { limits: [("m".to_owned(), limit)].into(), ..ProviderModels::default() };
    let want = Settings {
        model: Some(model("anthropic", "claude")),
        small_model: Some(model("router", "vendor/tiny")),
        default_agent: Some("plan".into()),
        agents: [("plan".to_owned(), plan)].into(),
        commands: [("go".to_owned(), go)].into(),
        permission: vec![],
        models: vec![Models { providers: [("mock".to_owned(), mock)].into(), ..Models::default() }],
        instructions: vec!["CONTRIBUTING.md".into()],
        compaction: Compaction {
            auto: Some(true),
            prune: Some(false),
            reserved: Some(1000),
            preserve_recent_tokens: Some(2000),
            tail_turns: Some(0),
        },
        tool_output: ToolOutput { max_lines: Some(100), max_bytes: Some(2000) },
        snapshot: Some(false),
        subagent_depth: Some(2),
        lost_workspace: Some(LostWorkspace::Restart),
        network: vec![LevelHosts { level: Level::Repository, allow: vec!["preset:npm".into()], ask: vec![] }],
        // `environment` has tests of its own.
        ..Settings::default()
    };
    assert_eq!(got, want);
}

#[test]
fn secrets_are_not_in_debug_output() {
    let text = r#"{"provider": {"p": {"options": {"apiKey": "hush"}}}, "agent": {"a": {"apiKey": "hush"}}}"#;
    let document = json(text);
    assert!(!format!("{document:?} {:?}", merged(std::slice::from_ref(&document))).contains("hush"));
}

#[test]
fn permissions_keep_the_order_of_their_keys() {
    let text = r#"{"permission": {"*": "ask", "bash": {"*": "deny", "git *": "allow", "a*": "ask"}, "read": "allow"},
        "tools": {"jira_*": false}, "agent": {"a": {"permission": "deny", "tools": {"patch": true}}}}"#;
    let all = [
        rule("jira_*", "*", Deny),
        rule("*", "*", Ask),
        rule("bash", "*", Deny),
        rule("bash", "git *", Allow),
        rule("bash", "a*", Ask),
        rule("read", "*", Allow),
    ];
    let settings = settings(text);
    assert_eq!(rules(&settings, "other"), all);
    let own = [rule("edit", "*", Allow), rule("write", "*", Allow), rule("*", "*", Deny)];
    assert_eq!(rules(&settings, "a"), [&all[..], &own].concat());
    assert_eq!(settings.rules("a").len(), 1, "one level, one list");
}

#[test]
fn what_may_not_be_edited_may_not_be_written() {
    for (text, write) in [
        (r#"{"permission": {"edit": "deny"}}"#, Deny),
        (r#"{"permission": {"edit": {"src/*": "ask"}}}"#, Ask),
        (r#"{"permission": {"ed*": "deny"}}"#, Deny),
        (r#"{"permission": {"edit": "deny", "write": "allow"}}"#, Allow),
        (r#"{"permission": {"read": "deny"}}"#, Allow),
        (r#"{"tools": {"write": false}}"#, Deny),
    ] {
        let rules = settings(text).rules("build");
        assert_eq!(rules[0].verdict("write", "src/a"), write, "{text}");
    }
}

#[test]
fn keys_without_effect_are_told() {
    let text = r#"{"$schema": "x", "mcp": {"a": {"headers": {"b": 1}}},
        "agent": {"a b": {"color": "red", "promt": "slip"}}}"#;
    let ignored = merged(&[json(text)]).ignored;
    let lines: Vec<_> =
        ignored.iter().map(|ignored| format!("{} {}", ignored.origin, ignored.path)).collect();
    let want = [
        "opencode.json:1:2 $schema",
        "opencode.json:1:18 mcp",
        "opencode.json:2:27 agent.\"a b\".color",
        "opencode.json:2:43 agent.\"a b\".promt",
    ];
    assert_eq!(lines, want);
}

#[test]
fn every_mistake_is_told_with_its_place() {
    let text = r#"{
  "modle": "a/b",
  "model": "claude",
  "small_model": null,
  "agent": {"é": {"steps": 0, "mode": "main", "temperature": "hot", "permission": {"bash": {"rm *": "never"}}, "files": "own"}},
  "command": {"c": {"description": "no template"}, "": {}},
  "permission": ["deny"],
  "instructions": "one",
  "provider": {"p": {"optoins": {}, "models": []}},
  "compaction": {"reserved": -1}, "tool_output": {"max_lines": 1.5, "max_bytes": 99999999},
  "snapshot": "yes",
  "environment": {"imgae": "x", "network": {"allow": ["*", "pypi.org"], "deny": []}}
}"#;
    let want = r#"opencode.json:2:3: modle: expected one of agent, command, compaction, default_agent, disabled_providers, enabled_providers, environment, instructions, lost_workspace, mode, model, permission, permissions, provider, small_model, snapshot, subagent_depth, tool_output, tools, found an unknown key
opencode.json:3:12: model: expected a model as "provider/model", found "claude"
opencode.json:4:18: small_model: expected a text, found null
opencode.json:5:28: agent.é.steps: expected a whole number from 1 to 4294967295, found 0
opencode.json:5:39: agent.é.mode: expected "subagent", "primary" or "all", found "main"
opencode.json:5:62: agent.é.temperature: expected a number, found "hot"
opencode.json:5:101: agent.é.permission.bash."rm *": expected "allow", "ask" or "deny", found "never"
opencode.json:5:121: agent.é.files: expected "share" or "fork", found "own"
opencode.json:6:20: command.c: expected a template, found none
opencode.json:6:52: command."": expected a name of 1 to 200 bytes, found ""
opencode.json:7:17: permission: expected an object, found a list
opencode.json:8:19: instructions: expected a list of texts, found "one"
opencode.json:9:22: provider.p.optoins: expected one of api, env, id, name, npm, options, blacklist, models, whitelist, found an unknown key
opencode.json:9:47: provider.p.models: expected an object, found a list
opencode.json:10:30: compaction.reserved: expected a whole number from 0, found -1
opencode.json:10:64: tool_output.max_lines: expected a whole number from 1 to 50000, found 1.5
opencode.json:10:82: tool_output.max_bytes: expected a whole number from 1 to 1048576, found 99999999
opencode.json:11:15: snapshot: expected true or false, found "yes"
opencode.json:12:19: environment.imgae: expected one of allow_ptrace, allow_user_namespaces, env, git, image, image_credential, install, network, secrets, setup, start, found an unknown key
opencode.json:12:55: environment.network.allow[0]: expected a host, *. and a host, or a preset (preset:crates, preset:debian, preset:github, preset:go, preset:maven, preset:npm, preset:pypi, preset:ubuntu), found "*"
opencode.json:12:73: environment.network.deny: expected one of allow, ask, setup, found an unknown key"#;
    assert_eq!(problems(text), want);
}

#[test]
fn only_json_with_comments_and_trailing_commas_is_read() {
    for text in [
        "",
        " // nothing\n",
        "{}",
        "\u{feff}{}",
        "{/**/\"snapshot\": true,}",
        "{\"instructions\": [\"a\",],}",
    ] {
        settings(text);
    }
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let deep = format!("{{\"lsp\": {}}}", nested(SETTINGS_DEPTH_MAX + 1));
    let many = format!("{{\"lsp\": [{}]}}", "1,".repeat(SETTINGS_VALUES_MAX));
    let key = format!("{{\"lsp\": {{\"{}\": 1}}}}", "k".repeat(2_000));
    let long = " ".repeat(SETTINGS_FILE_BYTES_MAX + 1);
    let abyss = nested(100_000);
    for (text, want) in [
        ("[]", "opencode.json:1:1: expected an object, found a list"),
        ("{\n  \"a\" 1}", "opencode.json:2:7: found a mistake in the JSON: expected colon"),
        ("{'model': 1}", "1:2: found a mistake in the JSON: single-quoted"),
        ("{model: 1}", "1:2: found a mistake in the JSON: "),
        ("{\"a\": 1 \"b\": 2}", "expected comma"),
        ("{\"a\": 0x1}", "hexadecimal"),
        ("{\"a\": \"\\ud800\"}", "surrogate"),
        ("{\"a\": 1e999}", "expected a number, found \"1e999\""),
        ("{\"a\": \"\\u0000\"}", "expected a text without NUL"),
        ("{\"snapshot\": true,\n \"snapshot\": false}", "2:2: expected each key once, found \"snapshot\""),
        (&deep, "expected at most 32 levels"),
        (&many, "expected at most 10000 values"),
        (&key, "expected a key of at most 1024 bytes"),
        (&long, "expected at most 262144 bytes"),
        (&abyss, "depth"),
    ] {
        let problems = problems(text);
        assert!(problems.contains(want), "{} -> {problems}", &text[..text.len().min(60)]);
    }
}

#[test]
fn lists_of_mistakes_and_of_agents_are_bounded() {
    let members = |count: usize| (0..count).map(|n| format!("\"{n}\": {{}},")).collect::<String>();
    let wrong = problems(&format!("{{{}}}", members(SETTINGS_PROBLEMS_MAX + 7)));
    assert_eq!(wrong.lines().count(), SETTINGS_PROBLEMS_MAX + 1);
    assert!(wrong.ends_with("\nand 7 more"));
    settings(&format!("{{\"agent\": {{{}}}}}", members(SETTINGS_AGENTS_MAX)));
    let agents = problems(&format!("{{\"agent\": {{{}}}}}", members(SETTINGS_AGENTS_MAX + 1)));
    assert_eq!(agents, "opencode.json:1:11: agent: expected at most 100 agents, found 101");
}

#[test]
fn paths_say_what_a_markdown_file_describes() {
    for (path, want) in [
        (".opencode/agent/review.md", Some((Kind::Agent, "review"))),
        (".opencode/agents/team/review.md", Some((Kind::Agent, "team/review"))),
        ("web/.opencode/command/go.md", Some((Kind::Command, "go"))),
        (".opencode/commands/go.md", Some((Kind::Command, "go"))),
        ("x.opencode/agent/a.md", None),
        (".opencode/agent/a.txt", None),
        (".opencode/agent/.md", None),
        (".opencode/skill/a.md", None),
        ("agent/a.md", None),
    ] {
        assert_eq!(subject_of(path), want.map(|(kind, name)| Subject { kind, name }), "{path}");
    }
}

#[test]
fn an_agent_in_markdown_says_the_same_as_in_json() {
    let text = "---\r\n# who\r\ndescription: >-\r\n  Use it when:\r\n  - asked\r\n\r\n  or not\r\nmodel: a/b # fast\r\n\
        mode: subagent\r\nfiles: fork\r\nhidden: true\r\nsteps: 12\r\ntemperature: 0.5\r\nvariant: 'it''s \"x\"'\r\n\
        permission:\r\n  edit: deny\r\n  bash:\r\n    \"*\": ask\r\n    git log *: allow\r\n    \r\n    'rm: *': deny\r\n  \"r\\u0065ad\": allow\r\n\
        top_p: 1\r\n---\r\n\r\nYou review.\r\n\r\n---\r\nIn detail.\r\n";
    let json = r#"{"agent": {"a": {"description": "Use it when: - asked\nor not", "model": "a/b", "mode": "subagent",
        "files": "fork", "hidden": true, "steps": 12, "temperature": 0.5, "variant": "it's \"x\"", "top_p": 1,
        "permission": {"edit": "deny", "bash": {"*": "ask", "git log *": "allow", "rm: *": "deny"}, "read": "allow"},
        "prompt": "You review.\n\n---\nIn detail."}}}"#;
    assert_eq!(agent(text), Ok(settings(json)));
    assert_eq!(agent("Only a prompt."), Ok(settings(r#"{"agent": {"a": {"prompt": "Only a prompt."}}}"#)));
    let block = agent("---\nprompt: |\n  a\n    b\n\n  c\n---\n").unwrap();
    assert_eq!(block.agents["a"].prompt.as_deref(), Some("a\n  b\n\nc\n"));
}

#[test]
fn a_command_in_markdown_says_the_same_as_in_json() {
    let text = "---\nsubtask: true\nagent: plan\n---\nGo $ARGUMENTS";
    let document =
        Document::markdown(Level::Tenant, "go.md", Subject { kind: Kind::Command, name: "go" }, text)
            .unwrap();
    let want =
        settings(r#"{"command": {"go": {"template": "Go $ARGUMENTS", "subtask": true, "agent": "plan"}}}"#);
    assert_eq!(merged(&[document]).settings, want);
}

#[test]
fn mistakes_in_front_matter_are_told_with_their_place() {
    for (text, want) in [
        ("---\nmodel: a/b\n", "a.md:1:1: expected front matter between two lines \"---\", found one line"),
        ("---\n- a\nwords\n---", "a.md:2:1: expected \"key: value\", found another value"),
        (
            "---\nmodel: a/b\n  x: 1\n---",
            "a.md:3:4: found a mistake in the YAML: mapping values are not allowed in this context",
        ),
        (
            "---\npermission:\n\tedit: deny\n---",
            "a.md:3:2: found a mistake in the YAML: tabs disallowed within this context (block indentation)",
        ),
        ("---\nmodel: [a]\n---", "a.md:2:8: agent.a.model: expected a text, found a list"),
        (
            "---\nmodel: \"a/b\n---",
            "a.md:2:8: found a mistake in the YAML: while scanning a quoted scalar, found unexpected end of stream",
        ),
        ("---\nmodel: &x a\nvariant: *x\n---", "a.md:3:10: expected a value, found an alias"),
        ("---\nmodel: !m a/b\n---", "a.md:2:8: expected a value without a tag, found !m"),
        ("---\nfiles: mine\n---", "a.md:2:8: agent.a.files: expected \"share\" or \"fork\", found \"mine\""),
        ("---\n? [a]\n: b\n---", "a.md:2:3: expected a text as key, found another value"),
        ("---\nmodel: a/b\n...\nsteps: 1\n---", "a.md:4:1: expected one document, found another one"),
        ("---\nmodel: a/b\nmodel: c/d\n---", "a.md:3:1: expected each key once, found \"model\""),
        ("---\nprompt: a\n---\nb", "a.md:4:1: expected each key once, found \"prompt\""),
        (
            "---\nsteps: many\nmodel:\n---",
            "a.md:2:8: agent.a.steps: expected a whole number from 1 to 4294967295, found \"many\"\na.md:3:6: agent.a.model: expected a text, found null",
        ),
    ] {
        assert_eq!(agent(text), Err(want.to_owned()), "{text}");
    }
}

#[test]
fn front_matter_is_yaml_with_colons_in_descriptions() {
    let text = "---\ntools: {bash: true, \"x_*\": false}\ndescription: Use it when: it's odd\n---\nGo";
    let json = r#"{"agent": {"a": {"tools": {"bash": true, "x_*": false}, "description": "Use it when: it's odd", "prompt": "Go"}}}"#;
    assert_eq!(agent(text), Ok(settings(json)));
    assert_eq!(agent("---\n# nothing\n---\nGo"), Ok(settings(r#"{"agent": {"a": {"prompt": "Go"}}}"#)));
}

#[test]
fn references_are_replaced_inside_their_text_only() {
    let mut document = json(
        r#"{"model": "{env:MODEL}", "instructions": ["{file:./a.md} {env:} {file:x"], "mcp": {"a": "{env:SECRET}"},
            "agent": {"a": {"prompt": "<{env:TRICK}>{file:./a.md}"}}}"#,
    );
    let mut lookup = |reference: Reference<'_>| match reference {
        Reference::Env("MODEL") => Ok("a/b".to_owned()),
        Reference::Env("TRICK") => Ok("\", \"hidden\": {env:MODEL}".to_owned()),
        Reference::File("./a.md") => Ok("\n text \n".to_owned()),
        Reference::Env(name) | Reference::File(name) => panic!("{name}"),
    };
    document.substitute(&mut lookup).unwrap();
    let merged = merged(&[document]);
    assert_eq!(merged.settings.model, Some(model("a", "b")));
    assert_eq!(merged.settings.instructions, ["text {env:} {file:x"]);
    assert_eq!(merged.settings.agents["a"].prompt.as_deref(), Some("<\", \"hidden\": {env:MODEL}>text"));
    let values: Vec<_> = merged.explain().into_iter().map(|row| row.value).collect();
    assert!(values.contains(&json!("{env:MODEL}")), "people see the reference: {values:?}");
}

#[test]
fn refused_references_are_told_with_their_place() {
    let mut document =
        json("{\"model\": \"a/b\",\n \"small_model\": \"{env:A}\", \"instructions\": [\"x{file:/b}\"]}");
    let refused = document.substitute(&mut |_| Err(Refusal("not yours".to_owned()))).unwrap_err();
    let want = "opencode.json:2:17: small_model: expected a reference that is allowed, found \"{env:A}\", which is refused: not yours\n\
        opencode.json:2:45: instructions[0]: expected a reference that is allowed, found \"{file:/b}\", which is refused: not yours";
    assert_eq!(refused.to_string(), want);
    let mut document = json(r#"{"model": "{env:A}", "small_model": "{env:B}"}"#);
    let long = document.substitute(&mut |_| Ok("x".repeat(SETTINGS_BYTES_MAX))).unwrap_err();
    assert!(long.to_string().contains("expected at most 2097152 bytes in all"), "{long}");
}

#[test]
fn a_wrong_secret_is_not_shown() {
    let mut document = json(r#"{"model": "{env:SECRET}"}"#);
    document.substitute(&mut |_| Ok("hush".to_owned())).unwrap();
    let problems = crate::merge::merge(&[document]).unwrap_err().to_string();
    assert_eq!(
        problems,
        "opencode.json:1:11: model: expected a model as \"provider/model\", found \"{env:SECRET}\""
    );
}

/// Pieces that settings are made of, in any order.
fn pieces(pieces: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(pieces), 0..60).prop_map(|pieces| pieces.concat())
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[^\0]*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec(("[^\0]{0,8}", inner), 0..6)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

/// Reads a text in every way; what comes out is settings or problems.
fn read_somehow(text: &str) {
    let kinds = [Kind::Agent, Kind::Command]
        .map(|kind| Document::markdown(Level::Tenant, "f", Subject { kind, name: "n" }, text));
    for document in kinds.into_iter().chain([Document::json(Level::Tenant, "f", text)]) {
        let Ok(mut document) = document else { continue };
        let _ = document.substitute(&mut |_| Ok("{env:A}".to_owned()));
        match crate::merge::merge(&[document]) {
            Ok(merged) => merged.explain().iter().for_each(|row| assert!(!row.path.to_string().is_empty())),
            Err(problems) => assert!(!problems.to_string().is_empty()),
        }
    }
}

proptest! {
    #[test]
    fn any_text_gives_settings_or_problems(text in any::<String>(), lines in "(---\n)?([ a:|>'\"#\\-é{}\\[\\],/*\t\r]{0,9}\n?){0,20}") {
        read_somehow(&text);
        read_somehow(&lines);
    }

    #[test]
    fn any_pieces_give_settings_or_problems(
        json in pieces(&["{", "}", "[", "]", ",", ":", "\"model\"", "\"a/b\"", "\"agent\"", "\"permission\"", "\"deny\"", "1", "-", "null", "//", "/*", "*/", "\n", "\"", "\\u", "é", " "]),
        markdown in pieces(&["---\n", "permission:", "model: a/b", "\n", "  ", "edit: deny", "|", ">-", "'", "\"", "# c", "- ", "{env:A}", "\t", "é", ": "]),
    ) {
        read_somehow(&json);
        read_somehow(&format!("{{\"agent\": {json}"));
        read_somehow(&format!("---\n{markdown}\n---\nbody"));
    }

    #[test]
    fn json_is_read_as_it_was_written(value in any_json()) {
        let text = format!("// c\n{{\"lsp\": {},}}", serde_json::to_string_pretty(&value).unwrap());
        prop_assert_eq!(json(&text).root.to_json()["lsp"].clone(), value);
    }
}
