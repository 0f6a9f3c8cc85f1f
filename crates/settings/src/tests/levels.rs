//! Several files: who wins, who binds, and who said what.

use super::{at, merged};
use crate::{
    Settings,
    document::Document,
    merge::{MergedSettings, merge},
    models::Limit,
};
use domain::{
    limits::{SETTINGS_FILES_MAX, SETTINGS_INSTRUCTIONS_MAX},
    policy::{
        level::Level,
        permission::{
            Verdict::{self, Allow, Ask, Deny},
            strictest,
        },
    },
};
use proptest::prelude::*;

fn verdict(merged: &MergedSettings, agent: &str, tool: &str, subject: &str) -> Verdict {
    let lists = merged.settings.rules(agent);
    strictest(&lists.iter().collect::<Vec<_>>(), tool, subject)
}

#[test]
fn no_level_raises_the_depth_of_subtasks_that_another_allows() {
    let of = |levels: &[(Level, &str)]| {
        let files: Vec<_> = levels.iter().map(|(level, text)| at(*level, text)).collect();
        merged(&files).settings.subagent_depth
    };
    let (one, five) = (r#"{"subagent_depth": 1}"#, r#"{"subagent_depth": 5}"#);
    assert_eq!(of(&[(Level::Tenant, one), (Level::Repository, five)]), Some(1));
    assert_eq!(of(&[(Level::Tenant, five), (Level::Repository, one)]), Some(1));
    assert_eq!(of(&[(Level::Repository, five)]), Some(5));
    assert_eq!(of(&[(Level::Tenant, "{}")]), None);
}

#[test]
fn a_later_level_wins_whatever_the_order_of_the_files() {
    let mut files = [
        at(
            Level::Platform,
            r#"{"model": "a/platform", "small_model": "a/platform", "compaction": {"auto": true, "reserved": 5}}"#,
        ),
        at(
            Level::Tenant,
            r#"{"model": "a/tenant", "agent": {"x": {"prompt": "tenant", "hidden": true, "options": {"a": [1, 2], "b": 1}}}}"#,
        ),
        at(Level::Project, r#"{"compaction": {"reserved": 6}}"#),
        at(
            Level::Repository,
            r#"{"model": "a/repository", "agent": {"x": {"prompt": "repository", "options": {"a": [3]}}}}"#,
        ),
    ];
    for _ in 0..files.len() {
        files.rotate_left(1);
        let settings = merged(&files).settings;
        let name = |model: Option<domain::conversation::message::ModelRef>| model.map(|model| model.model_id);
        assert_eq!(name(settings.model), Some("repository".into()));
        assert_eq!(name(settings.small_model), Some("platform".into()));
        assert_eq!((settings.compaction.auto, settings.compaction.reserved), (Some(true), Some(6)));
        let agent = &settings.agents["x"];
        assert_eq!((agent.prompt.as_deref(), agent.hidden), (Some("repository"), Some(true)));
        assert_eq!(
            serde_json::to_string(&agent.options.0).unwrap(),
            r#"{"a":[3],"b":1}"#,
            "a list is one value"
        );
    }
}

#[test]
fn instructions_are_added_without_doubles() {
    let files = [
        at(Level::Tenant, r#"{"instructions": ["a", "b", "a"]}"#),
        at(Level::Repository, r#"{"instructions": ["c", "b"]}"#),
        at(Level::Repository, r#"{"instructions": ["c", "d"]}"#),
    ];
    assert_eq!(merged(&files).settings.instructions, ["a", "b", "c", "d"]);
}

#[test]
fn a_repository_narrows_and_never_widens() {
    let files = [
        at(
            Level::Tenant,
            r#"{"permission": {"bash": {"*": "ask", "rm *": "deny"}, "read": "allow"}, "agent": {"x": {"permission": {"glob": "deny"}}}}"#,
        ),
        at(
            Level::Repository,
            r#"{"permission": {"*": "allow", "bash": "allow", "read": "ask"},
            "agent": {"x": {"permission": "allow", "disable": false}, "y": {"tools": {"bash": false}}}}"#,
        ),
    ];
    let merged = merged(&files);
    for (agent, tool, subject, want) in [
        ("build", "bash", "ls", Ask),
        ("build", "bash", "rm x", Deny),
        ("build", "read", "a", Ask),
        ("build", "glob", "a", Allow),
        ("x", "bash", "rm x", Deny),
        ("x", "glob", "a", Deny),
        ("y", "bash", "ls", Deny),
        ("y", "glob", "a", Allow),
    ] {
        assert_eq!(verdict(&merged, agent, tool, subject), want, "{agent} {tool} {subject}");
    }
    let levels: Vec<_> = merged.settings.permission.iter().map(|list| list.level).collect();
    assert_eq!(levels, [Level::Tenant, Level::Repository]);
    assert_eq!(merged.settings.rules("x").len(), 2);
}

#[test]
fn every_level_narrows_which_models_are_asked_and_with_how_much_room() {
    let files = [
        at(
            Level::Tenant,
            r#"{"enabled_providers": ["a", "b"], "provider": {"a": {"blacklist": ["dear"],
                "models": {"m": {"limit": {"context": 100, "output": 10}}}}}}"#,
        ),
        at(
            Level::Repository,
            r#"{"enabled_providers": ["a", "c"], "disabled_providers": ["b"], "provider": {
                "a": {"whitelist": ["m", "n", "dear"], "models": {"m": {"limit": {"context": 900, "input": 50, "output": 5}}}}}}"#,
        ),
    ];
    let settings = merged(&files).settings;
    let model = |text: &str| {
        let (provider, model) = text.split_once('/').unwrap();
        domain::conversation::message::ModelRef { provider_id: provider.into(), model_id: model.into() }
    };
    for (name, want) in
        [("a/m", true), ("a/n", true), ("a/dear", false), ("a/other", false), ("b/m", false), ("c/m", false)]
    {
        assert_eq!(settings.allows(&model(name)), want, "{name}");
    }
    let limit = |context, input, output| Limit { context, input, output };
    assert_eq!(settings.limit(&model("a/m")), limit(Some(100), Some(50), Some(5)));
    assert_eq!(settings.limit(&model("a/n")), Limit::default());
    assert!(Settings::default().allows(&model("x/y")));
}

#[test]
fn inside_a_level_the_later_file_wins_permissions_too() {
    let files = [
        at(Level::Project, r#"{"permission": {"bash": "deny", "read": {"*": "ask", "b": "deny"}}}"#),
        at(Level::Project, r#"{"permission": {"bash": "allow", "read": {"b": "allow"}}}"#),
    ];
    let merged = merged(&files);
    for (tool, subject, want) in [("bash", "a", Allow), ("read", "a", Ask), ("read", "b", Allow)] {
        assert_eq!(verdict(&merged, "build", tool, subject), want, "{tool} {subject}");
    }
}

#[test]
fn every_value_is_explained_with_its_origin() {
    let tenant = r#"{"model": "a/b", "permission": {"bash": "ask"}, "instructions": ["a"],
 "provider": {"p": {"options": {"apiKey": "hush"}, "models": {"m": {"limit": {"context": 9}, "cost": {}}}}}, "theme": "dark"}"#;
    let repository = r#"{"model": "c/d", "instructions": ["b"],
 "agent": {"x": {"steps": 3, "apiKey": "hush", "headers": {"X": "hush"}, "permission": {"token*": "deny"}}}}"#;
    let files = [
        Document::json(Level::Tenant, "tenant.json", tenant).unwrap(),
        Document::json(Level::Repository, "opencode.json", repository).unwrap(),
    ];
    let rows: Vec<_> = merged(&files)
        .explain()
        .into_iter()
        .map(|row| format!("{} = {} ({} {})", row.path, row.value, row.origin.level.as_str(), row.origin))
        .collect();
    let want = [
        "model = \"c/d\" (repository opencode.json:1:11)",
        "instructions[0] = \"a\" (tenant tenant.json:1:66)",
        "instructions[1] = \"b\" (repository opencode.json:1:35)",
        "agent.x.steps = 3 (repository opencode.json:2:27)",
        "agent.x.apiKey = \"***\" (repository opencode.json:2:40)",
        "agent.x.headers.X = \"***\" (repository opencode.json:2:65)",
        "permission.bash = \"ask\" (tenant tenant.json:1:41)",
        "provider.p.models.m.limit.context = 9 (tenant tenant.json:2:90)",
        "agent.x.permission.\"token*\" = \"deny\" (repository opencode.json:2:99)",
    ];
    assert_eq!(rows, want);
}

#[test]
fn what_is_too_much_only_together_is_refused() {
    let list = |from: usize, count: usize| {
        let names: Vec<_> = (from..from + count).map(|n| format!("\"{n}\"")).collect();
        at(Level::Project, &format!("{{\"instructions\": [{}]}}", names.join(",")))
    };
    let half = SETTINGS_INSTRUCTIONS_MAX / 2;
    merged(&[list(0, half), list(half, half)]);
    let problems = merge(&[list(0, half), list(half, half), list(2 * half, 1)]).unwrap_err().to_string();
    assert_eq!(problems, "opencode.json:1:18: instructions: expected at most 64 instructions, found 65");
    let files = vec![at(Level::Project, "{}"); SETTINGS_FILES_MAX + 1];
    let problems = merge(&files).unwrap_err().to_string();
    assert_eq!(problems, "opencode.json:1:1: expected at most 400 files, found 401");
}

#[test]
fn the_mistakes_of_all_files_are_told() {
    let problems =
        merge(&[at(Level::Tenant, r#"{"a": 1}"#), at(Level::Repository, r#"{"b": 1}"#)]).unwrap_err();
    let paths: Vec<_> = problems.list.iter().map(|problem| problem.path.to_string()).collect();
    assert_eq!(paths, ["a", "b"]);
}

/// Permissions of one file, for every agent and for `x`.
fn any_permissions() -> impl Strategy<Value = String> {
    let tool = prop::sample::select(&["*", "bash", "edit", "re?d"][..]);
    let pattern = prop::sample::select(&["*", "a*", "ab"][..]);
    let verdict = prop::sample::select(&["allow", "ask", "deny"][..]);
    let map = move || {
        let rule = (tool.clone(), pattern.clone(), verdict.clone());
        prop::collection::vec(rule, 0..5).prop_map(|rules| {
            let mut tools = serde_json::Map::new();
            for (tool, pattern, verdict) in rules {
                tools.entry(tool).or_insert_with(|| serde_json::json!({}))[pattern] = verdict.into();
            }
            serde_json::Value::Object(tools)
        })
    };
    (map(), map()).prop_map(|(all, own)| {
        serde_json::json!({"permission": all, "agent": {"x": {"permission": own}}}).to_string()
    })
}

proptest! {
    /// Whatever lower levels write, nothing is permitted that the levels above them do not permit.
    #[test]
    fn no_lower_level_widens(texts in prop::collection::vec(any_permissions(), 4)) {
        let files: Vec<_> = Level::ALL.into_iter().zip(&texts).map(|(level, text)| at(level, text)).collect();
        let whole = merged(&files);
        for above in 0..files.len() {
            let upper = merged(&files[..above]);
            for (tool, subject) in [("bash", "ab"), ("write", "b"), ("edit", "a"), ("read", "ab"), ("task", "")] {
                for agent in ["x", "build"] {
                    prop_assert!(verdict(&whole, agent, tool, subject) >= verdict(&upper, agent, tool, subject));
                }
            }
        }
    }
}
