//! The environments that repositories propose.

use super::{at, merged};
use crate::{
    document::Document,
    merge::merge,
    proposal::{self, Proposal},
    repository::configure,
    standing,
};
use domain::policy::level::Level;
use serde_json::{Value, json};

const DEVCONTAINER: &str = ".devcontainer/devcontainer.json";
const STEPS: &str = ".github/workflows/copilot-setup-steps.yml";

fn found(path: &str, text: &str) -> Proposal {
    proposal::find(&[(path, text)]).unwrap_or_else(|problems| panic!("{problems}")).unwrap()
}

fn environment(proposal: &Proposal) -> Value {
    serde_json::from_str::<Value>(&proposal.document).unwrap()["environment"].take()
}

#[test]
fn a_file_for_flotilla_is_read_as_it_is_written() {
    let text = "# ours\nenvironment:\n  setup: |\n    apt-get update\n    apt-get install -y jq\n  image: debian:12\n  network: {setup: ['preset:debian']}\n";
    let proposal = found(proposal::FILE, text);
    let want = json!({"image": "debian:12", "network": {"setup": ["preset:debian"]}, "setup": "apt-get update\napt-get install -y jq\n"});
    assert_eq!(environment(&proposal), want);
    assert!(proposal.unused.is_empty());
    // Files that mean the same have the same document, in whatever order they have their keys.
    let other = "environment:\n  image: 'debian:12'\n  network:\n    setup:\n    - preset:debian\n  setup: \"apt-get update\\napt-get install -y jq\\n\"\n";
    assert_eq!(found(proposal::FILE, other).document, proposal.document);
    for empty in [
        "",
        "# nothing\n",
        "environment:\n",
        "environment:\n  # image: x\n",
        "environment: null\n",
        "environment: {}\n",
    ] {
        assert_eq!(proposal::find(&[(proposal::FILE, empty)]).unwrap(), None, "{empty:?}");
        // Settings of other levels stay as they are.
        let project = standing::stored(Level::Project, r#"{"environment": {"image": "theirs"}}"#).unwrap();
        let configured = configure(&[project], &[(proposal::FILE, empty)]).unwrap();
        assert_eq!(configured.problems, None, "{empty:?}");
        assert_eq!(configured.merged.settings.image.unwrap().reference, "theirs", "{empty:?}");
    }
}

#[test]
fn mistakes_in_a_file_for_flotilla_have_their_place() {
    for (text, want) in [
        ("environment:\n  image: 5\n", ".flotilla/config.yaml:2:10: environment.image: expected a text"),
        (
            "enviroment: {}\n",
            ".flotilla/config.yaml:1:1: enviroment: expected environment, found an unknown key",
        ),
        ("environment:\n  instal: x\n", "2:3: environment.instal: expected one of allow_ptrace,"),
        ("environment:\n  setup: x\n", "an image together with setup"),
        (
            "environment:\n  git: {}\n",
            ".flotilla/config.yaml:2:3: environment.git: expected one of allow_ptrace,",
        ),
        ("environment:\n  network: {allow: ['*']}\n", "environment.network.allow[0]"),
        ("environment:\n  env: {A: '{env:HOME}'}\n", "cannot refer to variables"),
        ("environment: [\n", ".flotilla/config.yaml:2:1: found a mistake in the YAML: "),
        ("environment: 5\n", "expected an object"),
        ("a: &x 1\nenvironment: *x\n", "a value, found an alias"),
        ("---\n{}\n---\n{}\n", "one document"),
    ] {
        let problems = proposal::find(&[(proposal::FILE, text)]).unwrap_err().to_string();
        assert!(problems.contains(want), "{text:?}: {problems}");
    }
}

#[test]
fn a_devcontainer_gives_its_image_its_variables_and_its_commands() {
    let text = r#"{
      // The image of the team.
      "name": "shop", "image": "mcr.example/node:22", "customizations": {"vscode": {}},
      "containerEnv": {"CI": "1", "ROOT": "${containerWorkspaceFolder}/x", "HOME": "/root", "KEY": "${localEnv:KEY}"},
      "onCreateCommand": ["apt-get", "install", "-y", "it's"],
      "updateContentCommand": "npm ci",
      "postCreateCommand": {"db": "make db", "web": ["npm", "run", "web"]},
      "postStartCommand": "echo ${containerWorkspaceFolderBasename}",
      "features": {"ghcr.io/x": {}}, "forwardPorts": [3000],
    }"#;
    let proposal = found(DEVCONTAINER, text);
    let want = json!({
        "env": {"CI": "1", "ROOT": "/workspace/x"}, "image": "mcr.example/node:22",
        "install": "npm ci\nmake db\n'npm' 'run' 'web'", "setup": "'apt-get' 'install' '-y' 'it'\\''s'", "start": "echo workspace",
    });
    assert_eq!(environment(&proposal), want);
    let unused = proposal.unused.join("\n");
    for part in [
        "containerEnv.HOME",
        "containerEnv.KEY: its value depends",
        "features: Flotilla builds no images",
        "forwardPorts",
    ] {
        assert!(unused.contains(part), "{part}: {unused}");
    }
    assert!(!unused.contains("customizations"), "{unused}");
    let built = found(
        DEVCONTAINER,
        r#"{"build": {"dockerfile": "Dockerfile"}, "onCreateCommand": "x", "postCreateCommand": "y"}"#,
    );
    assert_eq!(environment(&built), json!({"install": "y"}));
    assert_eq!(built.unused.len(), 2, "{:?}", built.unused);
    assert_eq!(proposal::find(&[(DEVCONTAINER, r#"{"dockerFile": "Dockerfile"}"#)]).unwrap(), None);
    for (text, want) in [
        ("{", "found a mistake in the JSON: "),
        ("[]", ".devcontainer/devcontainer.json:1:1: expected an object, found a list"),
        ("// ours\nnull", ".devcontainer/devcontainer.json:2:1: expected an object, found null"),
        ("\"node:22\"", ".devcontainer/devcontainer.json:1:1: expected an object, found \"node:22\""),
    ] {
        let problems = proposal::find(&[(DEVCONTAINER, text)]).unwrap_err().to_string();
        assert!(problems.contains(want), "{text:?}: {problems}");
    }
    assert_eq!(proposal::find(&[(DEVCONTAINER, "// nothing")]).unwrap(), None);
}

#[test]
fn commands_of_a_devcontainer_run_in_their_order_and_a_setup_knows_sudo() {
    let text = r#"{"image": "i", "postCreateCommand": "second", "updateContentCommand": "first", "onCreateCommand": "sudo apt-get update"}"#;
    let environment = environment(&found(DEVCONTAINER, text));
    assert_eq!(environment["install"], "first\nsecond");
    let setup = environment["setup"].as_str().unwrap();
    assert!(setup.starts_with("sudo() {") && setup.ends_with("\nsudo apt-get update"), "{setup}");
    // What it runs: options and variables in front of a program are taken away, and its failure is told.
    let script = setup
        .replace("sudo apt-get update", "sudo -E -u root A=1 sh -c 'echo $A'; sudo false || echo failed");
    let ran = std::process::Command::new("bash").args(["-e", "-c", &script]).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&ran.stdout),
        "1\nfailed\n",
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

#[test]
fn setup_steps_become_an_install_without_actions_and_expressions() {
    let text = "
on: push
env: {CI: true}
jobs:
  copilot-setup-steps:
    runs-on: ubuntu-latest
    services: {database: {image: postgres}}
    container: node:22
    env: {LEVEL: 3, TOKEN: '${{ secrets.TOKEN }}', GH: '${{ secrets.GITHUB_TOKEN }}', SHA: 'x${{ secrets.A }}'}
    steps:
    - uses: actions/checkout@v4
    - uses: actions/setup-node@v4
      with: {node-version: 22}
    - name: packages
      run: |
        npm ci
        npm run build
    - run: make it
      working-directory: sub dir
      env: {A: \"it's\", NODE_AUTH_TOKEN: '${{secrets.npm_token}}'}
    - run: npm publish
      env: {NODE_AUTH_TOKEN: '${{ secrets.PUBLISH }}'}
    - run: clash
      env: {LEVEL: '${{ secrets.LEVEL }}'}
    - name: stamp
      run: echo ${{ github.sha }} >stamp
    - run: never
      if: failure()
    - run: dir
      shell: pwsh
";
    let proposal = found(STEPS, text);
    let install = "npm ci\nnpm run build\n(\ncd 'sub dir'\nexport A='it'\\''s'\nmake it\n)";
    let secrets = json!({"NODE_AUTH_TOKEN": "NPM_TOKEN", "TOKEN": "TOKEN"});
    let env = json!({"CI": "true", "LEVEL": "3"});
    let want = json!({"env": env, "image": "node:22", "install": install, "secrets": secrets});
    assert_eq!(environment(&proposal), want);
    let unused = [
        "env.GH: its value is an expression",
        "env.SHA",
        "services: nothing takes its place",
        "steps[1]: the action actions/setup-node@v4",
        "steps[4]: NODE_AUTH_TOKEN has another value",
        "steps[5]: LEVEL has another value",
        "steps[6] (stamp): nothing evaluates its expression ${{ github.sha }}",
        "steps[7]: steps with if",
        "steps[8]: steps with shell",
    ];
    assert_eq!(proposal.unused.len(), unused.len(), "{:?}", proposal.unused);
    unused.iter().zip(&proposal.unused).for_each(|(want, found)| assert!(found.starts_with(want), "{found}"));
    assert_eq!(proposal::find(&[(STEPS, "jobs: {test: {steps: []}}")]).unwrap(), None);
}

#[test]
fn the_first_file_that_describes_an_environment_counts() {
    let (ours, theirs) = ("environment: {image: ours}", r#"{"image": "theirs"}"#);
    let find =
        |files: &[(&str, &str)]| proposal::find(files).unwrap().map(|it| environment(&it)["image"].clone());
    assert_eq!(find(&[(DEVCONTAINER, theirs), (proposal::FILE, ours)]), Some(json!("ours")));
    assert_eq!(find(&[(DEVCONTAINER, theirs), (proposal::FILE, "environment: {}")]), Some(json!("theirs")));
    assert_eq!(find(&[("opencode.json", theirs)]), None);
    assert_eq!(find(&[(DEVCONTAINER, "{}")]), None);
}

#[test]
fn an_environment_counts_between_tenant_and_project_and_only_if_it_was_allowed() {
    let text = "environment:\n  image: ours\n  setup: x\n  env: {A: env, B: env}\n  network: {allow: [a.example, b.example], setup: [c.example]}\n";
    let document = found(proposal::FILE, text).document;
    let tenant = standing::stored(
        Level::Tenant,
        r#"{"environment": {"image": "tenants", "env": {"A": "tenant", "C": "tenant"}}}"#,
    )
    .unwrap();
    let project = standing::stored(
        Level::Project,
        r#"{"environment": {"env": {"B": "project"}, "network": {"allow": ["b.example"]}}}"#,
    )
    .unwrap();
    let files = [(proposal::FILE, text)];
    // Without an admin's word, its hosts narrow, and nothing else of it counts.
    let waiting = configure(&[tenant.clone(), project.clone()], &files).unwrap();
    assert_eq!(waiting.problems, None);
    assert!(waiting.merged.ignored.is_empty());
    let settings = waiting.merged.settings;
    assert_eq!(settings.image.as_ref().unwrap().reference, "tenants");
    assert_eq!(settings.variables.keys().collect::<Vec<_>>(), ["A", "B", "C"]);
    assert_eq!(settings.variables["A"], "tenant");
    assert!(settings.setup_network.is_empty());
    let levels = |lists: &[crate::LevelHosts]| lists.iter().map(|list| list.level).collect::<Vec<_>>();
    assert_eq!(levels(settings.network()), [Level::Project, Level::Repository]);
    assert_eq!(levels(configure(&[], &files).unwrap().merged.settings.network()), [], "it opens nothing");

    let allowed = standing::allowed(proposal::FILE, &document).unwrap();
    let settings = configure(std::slice::from_ref(&allowed), &files).unwrap().merged.settings;
    assert_eq!(levels(settings.network()), [Level::Environment, Level::Repository]);
    let settings = configure(&[tenant, allowed, project], &files).unwrap().merged.settings;
    let image = settings.image.clone().unwrap();
    assert_eq!((image.reference.as_str(), image.setup.as_deref()), ("ours", Some("x")));
    assert_eq!(levels(&settings.setup_network), [Level::Environment]);
    assert_eq!(levels(settings.network()), [Level::Environment, Level::Project, Level::Repository]);
    let variables: Vec<_> =
        settings.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(variables, [("A", "env"), ("B", "project"), ("C", "tenant")]);
    // A project that names an image replaces both.
    let project = standing::stored(Level::Project, r#"{"environment": {"image": "projects"}}"#).unwrap();
    let allowed = standing::allowed(proposal::FILE, &document).unwrap();
    let image = merge(&[allowed, project]).unwrap().settings.image.unwrap();
    assert_eq!((image.reference.as_str(), image.setup), ("projects", None));
    assert!(standing::allowed("f", r#"{"environment": {"git": {}}}"#).is_err());
}

#[test]
fn a_mistake_elsewhere_leaves_what_the_file_restricts() {
    let text = "environment:\n  image: 5\n  network: {allow: [a.example]}\n";
    let project =
        standing::stored(Level::Project, r#"{"environment": {"network": {"allow": ["b.example"]}}}"#)
            .unwrap();
    let configured = configure(&[project], &[(proposal::FILE, text)]).unwrap();
    assert!(configured.problems.unwrap().contains(".flotilla/config.yaml:2:10"));
    assert_eq!(configured.merged.settings.network().len(), 2);
    let ask = "environment:\n  network: {allow: [a.example], ask: [b.example], setup: [c.example]}\n";
    let project = standing::stored(Level::Project, r#"{"environment": {"network": {"ask": ["b.example"]}}}"#);
    let configured = configure(&[project.unwrap()], &[(proposal::FILE, ask)]).unwrap().merged;
    let lists: Vec<_> = configured.settings.network().iter().map(|list| list.ask.concat()).collect();
    assert_eq!((lists, configured.ignored.len()), (vec!["b.example".into(), "b.example".into()], 0));
    for unclear in ["environment: [\n", "environment: {network: {allow: 5}}\n"] {
        assert!(configure(&[], &[(proposal::FILE, unclear)]).is_err(), "{unclear}");
    }
    // Files of other tools are not settings.
    assert!(configure(&[], &[(DEVCONTAINER, "{"), (STEPS, "[")]).is_ok());
}

#[test]
fn what_has_no_effect_is_listed_within_bounds() {
    let keys: serde_json::Map<String, Value> = (0..60)
        .map(|number| (format!("{}{number}", "k".repeat(300)), json!(1)))
        .chain([("image".to_owned(), json!("x"))])
        .collect();
    let proposal = found(DEVCONTAINER, &Value::Object(keys).to_string());
    assert_eq!((proposal.unused.len(), proposal.unused.last().unwrap().as_str()), (51, "and more"));
    assert!(proposal.unused.iter().all(|sentence| sentence.len() <= 200));
}

#[test]
fn a_repository_gives_its_programs_no_more_rights_and_the_newest_level_wins() {
    let setting = |ptrace: bool| {
        format!(r#"{{"environment": {{"allow_ptrace": {ptrace}, "allow_user_namespaces": {ptrace}}}}}"#)
    };
    let options = |files: &[Document]| {
        let settings = merged(files).settings;
        (settings.allow_ptrace, settings.allow_user_namespaces)
    };
    let repository = at(Level::Repository, &setting(true));
    assert_eq!(options(std::slice::from_ref(&repository)), (None, None));
    let ignored = merged(std::slice::from_ref(&repository))
        .ignored
        .iter()
        .map(|it| it.path.to_string())
        .collect::<Vec<_>>();
    assert_eq!(ignored, ["environment.allow_ptrace", "environment.allow_user_namespaces"]);
    let tenant = at(Level::Tenant, &setting(true));
    assert_eq!(options(&[repository.clone(), tenant.clone()]), (Some(true), Some(true)));
    let project = at(Level::Project, r#"{"environment": {"allow_ptrace": false}}"#);
    assert_eq!(options(&[repository, tenant.clone(), project]), (Some(false), Some(true)));
    // What an admin has allowed of a repository counts like the settings.
    let allowed = at(Level::Environment, r#"{"environment": {"allow_ptrace": true}}"#);
    assert_eq!(options(&[allowed]), (Some(true), None));
    assert!(merge(&[at(Level::Project, r#"{"environment": {"allow_ptrace": "yes"}}"#)]).is_err());
}

#[test]
fn the_lines_of_an_environment_are_those_of_its_file_or_none() {
    let text = "# ours\nenvironment:\n  image: debian:12\n  network:\n    allow: [a.example]\n";
    let proposal = found(proposal::FILE, text);
    let places = |document: &Document| {
        let rows = merge(std::slice::from_ref(document)).unwrap().explain();
        rows.iter().map(|row| format!("{} {}", row.path, row.origin)).collect::<Vec<_>>()
    };
    assert_eq!(
        places(&proposal.located),
        [
            "environment.image .flotilla/config.yaml:3:10",
            "environment.network.allow[0] .flotilla/config.yaml:5:13"
        ]
    );
    let stored = standing::allowed(proposal::FILE, &proposal.document).unwrap();
    assert_eq!(
        places(&stored),
        ["environment.image .flotilla/config.yaml", "environment.network.allow[0] .flotilla/config.yaml"]
    );
    assert_eq!(merged(std::slice::from_ref(&stored)).settings, merged(&[proposal.located]).settings);
}
