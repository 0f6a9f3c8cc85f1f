#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{environment::from_env, file::parse, problem::ConfigError, providers::Config};
use crate::{
    model::{Effort, Thinking},
    provider::{ApiKey, Protocol, Provider},
};
use domain::money::Rates;

fn env(name: &str) -> Option<String> {
    match name {
        "ANTHROPIC_API_KEY" => Some("sk-a".to_owned()),
        "MY_KEY" => Some(" sk-m ".to_owned()),
        _ => None,
    }
}

fn ok(text: &str) -> Config {
    parse(text, &env).unwrap_or_else(|error| panic!("{error}"))
}

fn problems(text: &str) -> Vec<String> {
    match parse(text, &env) {
        Err(ConfigError::Problems(problems)) => problems.into_iter().map(|problem| problem.path).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_kind_alone_is_enough_for_a_vendor() {
    let config = ok("[[provider]]\nkind = \"anthropic\"\n[worker]\nslots = 3");
    let (provider, model) = config.providers.find("anthropic", "claude-sonnet-4-5").unwrap();
    assert_eq!(
        (provider.base_url.as_str(), &provider.api_key),
        ("https://api.anthropic.com", &Some(ApiKey::new("sk-a")))
    );
    assert_eq!((model.context_tokens, model.price.base.output), (200_000, 15_000_000));
    assert_eq!(config.default_model.unwrap().0, "anthropic");
    assert_eq!(ok("").default_model, None);
}

#[test]
fn a_server_of_ones_own_describes_its_models() {
    let config = ok(r#"
        model = "mine/big"
        [[provider]]
        id = "mine"
        kind = "openai-chat"
        base_url = "http://localhost:8080/v1"
        api_key_env = "MY_KEY"
        chunk_timeout_ms = 5
        models = [
          { id = "small" },
          { id = "gpt-5", context = 100000 },
          { id = "big", name = "Big", context = 32000, output = 4000, reasoning = true, temperature = false, images = true,
            reasoning_field = "reasoning_content",
            price_usd_per_mtok = { input = 0.5, output = 1, cache_read = 0.0028 },
            tiers = [{ above = 20000, input = 1.0, output = 2.0 }] },
        ]
    "#);
    let find = |id: &str| config.providers.find("mine", id).unwrap();
    let (provider, small) = find("small");
    assert_eq!((provider.protocol, provider.chunk_timeout_ms), (Protocol::OpenAiChat, 5));
    assert_eq!(provider.api_key, Some(ApiKey::new("sk-m")));
    assert_eq!(
        (small.context_tokens, small.output_tokens, small.price.base),
        (128_000, 8_192, Rates::default())
    );
    let gpt = find("gpt-5").1;
    assert_eq!((gpt.context_tokens, gpt.input_tokens, gpt.output_tokens), (100_000, None, 100_000));
    assert_eq!(gpt.price.base.input, 1_250_000);
    let big = find("big").1;
    let base = Rates { input: 500_000, output: 1_000_000, cache_read: 2_800, cache_write: 500_000 };
    let tier = Rates { input: 1_000_000, output: 2_000_000, cache_read: 1_000_000, cache_write: 1_000_000 };
    assert_eq!((big.price.base, big.price.tiers.clone()), (base, vec![(20_000, tier)]));
    assert_eq!(config.default_model, Some(("mine".to_owned(), "big".to_owned())));
    assert_eq!(config.providers.known(), ["mine/small", "mine/gpt-5", "mine/big"]);
}

#[test]
fn each_kind_has_its_vendor_and_models_may_be_corrected() {
    let with_key = |name: &str| name.ends_with("_API_KEY").then(|| "k".to_owned());
    for (kind, id, base_url, model) in [
        ("openai-responses", "openai", "https://api.openai.com/v1", "gpt-5.3-codex"),
        ("gemini", "google", "https://generativelanguage.googleapis.com", "gemini-2.5-pro"),
    ] {
        let config = parse(&format!("[[provider]]\nkind = \"{kind}\""), &with_key).unwrap();
        let (provider, _) = config.providers.find(id, model).unwrap();
        assert_eq!((provider.protocol.as_str(), provider.base_url.as_str()), (kind, base_url));
    }
    let config = ok(r#"
        [[provider]]
        kind = "gemini"
        api_key = "k"
        models = [
          { id = "gemini-2.5-pro", context = 500000, input = 400000, pdf = false, variants = ["low", "high"],
            price_usd_per_mtok = { input = 1, output = 2 } },
          { id = "own", reasoning = true, variants = ["none", "max"], thinking = "budget", images = true, pdf = true },
        ]
    "#);
    let find = |id: &str| config.providers.find("google", id).unwrap().1;
    let (known, own) = (find("gemini-2.5-pro"), find("own"));
    assert_eq!(
        (known.context_tokens, known.input_tokens, known.output_tokens),
        (500_000, Some(400_000), 65_536)
    );
    assert_eq!((known.price.base.input, known.price.tiers.len(), known.pdf), (1_000_000, 0, false));
    assert_eq!((known.thinking, &known.efforts[..]), (Thinking::Budget, &[Effort::Low, Effort::High][..]));
    assert_eq!((own.thinking, &own.efforts[..]), (Thinking::Budget, &[Effort::Off, Effort::Max][..]));
    assert!(own.images && own.pdf && own.reasoning);
    let bad = "[[provider]]\nkind = \"gemini\"\napi_key = \"k\"\nmodels = [{ id = \"a\", variants = [\"loud\"], thinking = \"no\" }]";
    assert_eq!(problems(bad), ["provider[0].models[0].variants", "provider[0].models[0].thinking"]);
}

#[test]
fn titles_go_to_a_small_model() {
    let small = |config: &Config, provider: &str, model: &str| {
        config
            .small_model_for(provider, model)
            .map(|(provider, model)| format!("{}/{}", provider.id, model.id))
    };
    let config = ok("[[provider]]\nkind = \"anthropic\"");
    let of = |model: &str| small(&config, "anthropic", model);
    assert_eq!(of("claude-opus-4-8").unwrap(), "anthropic/claude-haiku-4-5", "the catalogue's");
    assert_eq!(of("nothing"), None);
    let models = r#"
        [[provider]]
        id = "mine"
        kind = "openai-chat"
        base_url = "http://localhost"
        models = [{ id = "gpt-5-mini" }, { id = "big" }, { id = "tiny", small = true }]
        [[provider]]
        id = "other"
        kind = "openai-chat"
        base_url = "http://localhost"
        models = [{ id = "only" }]
    "#;
    let config = ok(models);
    assert_eq!(
        small(&config, "mine", "big").unwrap(),
        "mine/tiny",
        "the settings' choice, not the catalogue's"
    );
    assert_eq!(small(&config, "other", "only").unwrap(), "other/only", "the session's own");
    let config = ok(&format!("small_model = \"other/only\"\n{models}"));
    assert_eq!(small(&config, "mine", "big").unwrap(), "other/only");
    assert_eq!(problems(&format!("small_model = \"mine/nothing\"\n{models}")), ["small_model"]);
}

#[test]
fn every_problem_is_named_with_its_place() {
    let got = problems(
        r#"
        [[provider]]
        kind = "telepathy"
        [[provider]]
        kind = "openai-chat"
        base_url = "ftp://x"
        colour = "red"
        header_timeout_ms = -1
        models = [ 7, { name = "n" }, { id = "a", context = 0, price_usd_per_mtok = { input = -1, currency = "EUR" } } ]
        [[provider]]
        id = "b b"
        kind = "anthropic"
        api_key = "k"
        api_key_env = "MY_KEY"
        [[provider]]
        kind = "openai-chat"
        "#,
    );
    let want = [
        "provider[0].kind",
        "provider[1].header_timeout_ms",
        "provider[1].models[0]",
        "provider[1].models[1].id",
        "provider[1].models[2].context",
        "provider[1].models[2].price_usd_per_mtok.input",
        "provider[1].models[2].price_usd_per_mtok.output",
        "provider[1].models[2].price_usd_per_mtok.currency",
        "provider[1].colour",
        "provider[2].api_key",
        "provider[3].api_key_env",
    ];
    for path in want {
        assert!(got.iter().any(|is| is == path), "{path} is not in {got:?}");
    }
    assert!(
        got.iter().any(|path| path.ends_with(".base_url")) && got.iter().any(|path| path.ends_with(".id"))
    );
    for (text, path) in [
        ("provider = 3", "provider"),
        ("model = \"x/y\"", "model"),
        ("[[provider]]\nkind = \"openai-chat\"\nbase_url = \"http://x\"", "provider[0].models"),
        ("[[provider]]\nkind = \"anthropic\"\n[[provider]]\nkind = \"anthropic\"", "provider[1].id"),
    ] {
        assert_eq!(problems(text), [path], "{text}");
    }
    assert!(matches!(parse("[[provider", &env), Err(ConfigError::Syntax(_))));
}

#[test]
fn the_environment_alone_is_enough() {
    let config = from_env(&env).unwrap();
    assert_eq!(config.providers.list().len(), 1);
    assert_eq!(config.default_model.unwrap().0, "anthropic");
    assert_eq!(from_env(&|_| None).unwrap().default_model, None);
    let set = |url: &'static str| {
        move |name: &str| match name {
            "OPENAI_API_KEY" | "GEMINI_API_KEY" => Some("k".to_owned()),
            "OPENAI_BASE_URL" => Some(url.to_owned()).filter(|url| !url.is_empty()),
            _ => None,
        }
    };
    for (url, protocol) in [
        ("", Protocol::OpenAiResponses),
        ("https://api.openai.com/v1", Protocol::OpenAiResponses),
        ("http://localhost:1/v1", Protocol::OpenAiChat),
    ] {
        let config = from_env(&set(url)).unwrap();
        let got: Vec<_> = config
            .providers
            .list()
            .iter()
            .map(|provider| (provider.id.as_str(), provider.protocol))
            .collect();
        assert_eq!(got, [("openai", protocol), ("google", Protocol::Gemini)], "{url}");
    }
    let bad = |name: &str| Some(if name.ends_with("_KEY") { "k" } else { "nonsense" }.to_owned());
    let error = from_env(&bad).unwrap_err().to_string();
    assert!(error.contains("ANTHROPIC_BASE_URL: ") && error.contains("OPENAI_BASE_URL: "), "{error}");
}

#[test]
fn keys_are_never_shown() {
    let config = from_env(&env).unwrap();
    let text = format!("{config:?}");
    assert!(text.contains("***") && !text.contains("sk-a"), "{text}");
}

#[test]
fn addresses_are_told_apart_by_their_host() {
    let provider = |url: &str| Provider::new("p", Protocol::OpenAiChat, url);
    for (url, is_openai, is_loopback) in [
        ("https://api.openai.com", true, false),
        ("https://api.openai.com/v1/", true, false),
        ("https://api.openai.com.evil.example/v1", false, false),
        ("http://127.0.0.1:8080/v1", false, true),
        ("http://[::1]:8080", false, true),
        ("http://localhost", false, true),
        ("http://127.0.0.1.example", false, false),
    ] {
        assert_eq!(
            (provider(url).is_openai(), provider(url).is_loopback()),
            (is_openai, is_loopback),
            "{url}"
        );
    }
}
