//! What a good file means: the contract's example, defaults, overrides, golden files, warnings, very large files, the schema.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fmt::Write;
use std::io;
use std::time::Duration;

use holdfast_config::*;
use holdfast_types::{Bytes, Weight};
use support::{GOOD, good_but};

fn good(text: &str) -> Loaded {
    load(&Source::text("t.yaml", text)).unwrap_or_else(|faults| panic!("{faults}"))
}

fn with_environment(text: &str, environment: &[(&str, &str)]) -> Result<Loaded, Faults> {
    let environment: Vec<_> = environment.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    load(&Source { environment: &environment, ..Source::text("t.yaml", text) })
}

const CONTRACT: &str = r#"listen: { data: "127.0.0.1:7400", admin: "127.0.0.1:7401" }
state: ./holdfast-data
truth: store
auth: { trusted_header: x-tenant }      # development only; refused on a non-loopback listener unless forced
pools:
  - name: screening
    protocol: open-inference
    residency: repository               # load/unload/index API; or static: then each replica lists holds: [{model, version}]
    upstream: { model: "{model}-{version}", version: "" }
    replicas:
      - { name: r1, url: "http://127.0.0.1:9001", memory: 24GiB }
models:
  - name: screen
    pool: screening
    versions:
      - { version: "1", size: 2GiB }
      - { version: "2", size: 2GiB }
tenants:
  - { name: acme, subset: 2, pins: { screen: "1" } }
"#;

#[test]
fn the_example_of_the_contract() {
    let Loaded { config, warnings } = good(CONTRACT);
    assert_eq!((config.pools.len(), config.models.len(), config.tenants.len()), (1, 1, 1));
    let pool = &config.pools[0];
    assert_eq!(pool.upstream.model.render("screen", "2"), "screen-2");
    assert_eq!(pool.upstream.version.render("screen", "2"), "");
    assert_eq!(pool.replicas[0].endpoint.to_string(), "127.0.0.1:9001");
    assert_eq!((pool.replicas[0].memory, pool.replicas[0].weight), (Some(Bytes(24 << 30)), Weight(1)));
    let tenant = &config.tenants[0];
    assert_eq!(tenant.pin("screen").map(|v| v.as_str()), Some("1"));
    assert!(tenant.may_name("screen", "1") && !tenant.may_name("screen", "2") && !tenant.may_name("rank", "1"));
    assert_eq!(warnings.total, 1, "two replicas wanted, one there: {warnings}");
    assert_eq!((warnings.listed[0].line, warnings.listed[0].path.as_str()), (19, "tenants[0].subset"));
}

#[test]
fn an_empty_file_is_the_default_configuration() {
    for text in ["", "{}", "---\n", "# nothing\n", "\u{feff}", "null"] {
        let loaded = good(text);
        assert_eq!(loaded.config, Config::default(), "{text:?}");
        let warned: Vec<&str> = loaded.warnings.listed.iter().map(|w| w.path.as_str()).collect();
        assert_eq!(warned, ["auth", "pools", "tenants"], "nobody can be identified, and nobody served: {text:?}");
    }
    let config = Config::default();
    assert_eq!(config.listen.data.to_string(), "127.0.0.1:7400");
    assert_eq!(config.limits.body, Bytes(64 << 20));
    assert_eq!(config.timeouts.request, Duration::from_secs(30));
    assert_eq!(config.loads.fleet.get(), 16);
}

#[test]
fn upstream_names_follow_residency_when_nothing_is_said() {
    let config = good(&good_but("    upstream: { model: \"{model}-{version}\", version: \"\" }\n", "")).config;
    let names = |pool: &Pool| (pool.upstream.model.to_string(), pool.upstream.version.to_string());
    assert_eq!(names(&config.pools[0]), ("{model}-{version}".into(), String::new()));
    assert_eq!(names(&config.pools[1]), ("{model}".into(), "{version}".into()));
}

#[test]
fn the_replica_is_not_named_to_strangers() {
    let stamps = |data: &str| good(&format!("listen: {{ data: \"{data}\" }}")).config.stamps;
    assert_eq!(stamps("127.0.0.1:7400"), Stamps::ALL);
    assert_eq!(stamps("[::ffff:127.0.0.1]:7400"), Stamps::ALL);
    assert_eq!(stamps("0.0.0.0:7400"), Stamps::ALL.without(Stamp::Replica));
    assert_eq!(good("{ listen: { data: \"0.0.0.0:1\" }, stamps: all }").config.stamps, Stamps::ALL);
    assert_eq!(good("stamps: [request-id]").config.stamps, Stamps::NONE.with(Stamp::RequestId));
    assert_eq!(good("stamps: []").config.stamps, Stamps::NONE);
}

#[test]
fn identity_beyond_loopback_is_a_decision_that_is_written_down() {
    let auth = |more: &str| format!("listen: {{ data: \"0.0.0.0:7400\" }}\nauth: {{ trusted_header: X-Tenant{more} }}");
    assert!(load(&Source::text("t.yaml", &auth(""))).is_err());
    let config = good(&auth(", allow_non_loopback: true")).config;
    assert_eq!(config.auth.and_then(|auth| auth.trusted_header), Some("x-tenant".into()));
    let admin = good("listen: { admin: { address: \"0.0.0.0:7401\", token_file: /run/token } }").config.listen.admin;
    assert_eq!(admin.token_file.as_deref(), Some(std::path::Path::new("/run/token")));
    let admin = good("listen: { admin: { address: \"0.0.0.0:7401\", tokens_file: /run/tokens } }").config.listen.admin;
    assert_eq!((admin.token_file, admin.tokens_file), (None, Some("/run/tokens".into())));
}

#[test]
fn doubtful_things_are_warnings() {
    let warned = |text: &str| good(text).warnings.listed.iter().map(|w| w.path.clone()).collect::<Vec<_>>();
    assert_eq!(warned(GOOD), Vec::<String>::new());
    assert_eq!(
        warned(&good_but("holds: [{ model: rank, version: a }]", "holds: []")),
        ["pools[1].replicas[0].holds", "tenants[1].pins.rank"]
    );
    assert_eq!(warned(&good_but("\"2\", size: 2GiB", "\"2\", size: 25GiB")), ["models[0].versions[1].size"]);
    assert_eq!(warned(&good_but("subset: 2", "subset: 3")), ["tenants[0].subset"]);
}

#[test]
fn the_environment_overrides_scalars_by_path() {
    let changed = [
        ("HOLDFAST__LISTEN__DATA", "127.0.0.1:8400"),
        ("HOLDFAST__LISTEN__ADMIN__TOKEN_FILE", "/run/token"),
        ("HOLDFAST__LIMITS__BODY", "1MiB"),
        ("HOLDFAST__LOADS__FLEET", "3"),
        ("HOLDFAST__AUTH__ALLOW_NON_LOOPBACK", "true"),
        ("HOLDFAST__STAMPS", "all"),
        ("HOLDFAST__POOLS__0__REPLICAS__1__WEIGHT", "7"),
        ("HOLDFAST__POOLS__0__HEALTH__FALL", "9"),
        ("HOLDFAST__TENANTS__0__PINS__SCREEN", "2"),
        ("HOLDFAST_ADMIN", "not an override"),
        ("PATH", "/bin"),
    ];
    let config = with_environment(GOOD, &changed).unwrap_or_else(|faults| panic!("{faults}")).config;
    assert_eq!(config.listen.data.port(), 8400);
    assert_eq!(config.listen.admin.address.port(), 7401, "the short form keeps its address");
    assert!(config.listen.admin.token_file.is_some());
    assert_eq!((config.limits.body, config.loads.fleet.get(), config.stamps), (Bytes(1 << 20), 3, Stamps::ALL));
    assert_eq!((config.pools[0].replicas[1].weight, config.pools[0].health.fall.get()), (Weight(7), 9));
    assert_eq!(config.tenants[0].pin("screen").map(|v| v.as_str()), Some("2"), "text needs no quotes in a variable");
    assert_eq!(
        with_environment("", &[("HOLDFAST__LIMITS__BODY", "1MiB")]).map(|l| l.config.limits.body),
        Ok(Bytes(1 << 20))
    );
}

#[test]
fn a_faulty_override_names_its_variable() {
    for (name, value, path, reason, nearest) in [
        ("HOLDFAST__LIMITS__BDY", "1MiB", "limits.bdy", "there is no field", Some("body")),
        ("HOLDFAST__LIMIT__BODY", "1MiB", "limit", "there is no field", Some("limits")),
        ("HOLDFAST__LIMITS__BODY", "-1", "limits.body", "is not a size", None),
        ("HOLDFAST__LIMITS__BODY", "", "limits.body", "\"\" is not a size", None),
        ("HOLDFAST__LIMITS", "1MiB", "limits", "is a single value", None),
        ("HOLDFAST__TRUTH__X", "1", "truth", "it has no field \"x\"", None),
        ("HOLDFAST__POOLS__7__NAME", "x", "pools", "\"7\" is none of them", None),
        ("HOLDFAST__", "x", "", "is not the name of a field", None),
        ("HOLDFAST____LIMITS", "x", "", "is not the name of a field", None),
        ("HOLDFAST__TENANTS__0__PINS__SCREEN", "3", "tenants[0].pins.screen", "has no version \"3\"", Some("2")),
        ("HOLDFAST__TENANTS__0__NAME", "a b", "tenants[0].name", "has the character ' '", None),
    ] {
        let faults = with_environment(GOOD, &[("HOME", "/"), (name, value)]).expect_err(name);
        assert_eq!(faults.total, 1, "{faults}");
        let fault = &faults.listed[0];
        assert_eq!(fault.file, format!("environment variable {name}"));
        assert_eq!((fault.path.as_str(), fault.nearest.as_deref()), (path, nearest), "{fault}");
        assert!(fault.reason.contains(reason), "{fault}");
    }
}

#[test]
fn golden_files_are_read_and_checked() {
    let text = good_but("input: { x: 1 }", "input: ask.json");
    let load_with = |answer: &'static str| {
        let read = move |path: &std::path::Path| match path.to_str() {
            Some("ask.json") => Ok(answer.as_bytes().to_vec()),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        load(&Source { read_file: &read, ..Source::text("t.yaml", &text) })
    };
    let loaded = load_with("{\"inputs\": []}").expect("a good file");
    assert_eq!(loaded.config.models[0].versions[1].golden[0].input, serde_json::json!({ "inputs": [] }));
    for (answer, reason) in [("[]", "not an object"), ("{", "is not JSON"), ("", "is not JSON")] {
        let faults = load_with(answer).expect_err(answer);
        assert!(faults.listed[0].reason.contains(reason), "{faults}");
    }
}

fn many_tenants(count: usize, tenant: impl Fn(usize) -> String) -> String {
    let mut text = CONTRACT.split("tenants:").next().unwrap().to_owned() + "tenants:\n";
    for index in 0..count {
        writeln!(text, "  - {}", tenant(index)).unwrap();
    }
    text
}

#[test]
fn a_hundred_thousand_tenants_share_names() {
    let text = many_tenants(100_000, |i| format!("{{ name: tenant-{i}, pins: {{ screen: \"{}\" }} }}", 1 + i % 2));
    let config = good(&text).config;
    assert_eq!(config.tenants.len(), 100_000);
    let pin = |i: usize| config.tenants[i].pin("screen").unwrap().as_str().as_ptr();
    assert_eq!(pin(0), pin(99_998), "one allocation for all");
    assert_ne!(pin(0), pin(1));
}

#[test]
fn a_list_of_faults_has_an_end() {
    let text =
        many_tenants(100_000, |i| format!("{{ name: t{i}, pins: {{ scren: \"1\", screen: \"9\" }}, subste: 1 }}"));
    let faults = load(&Source::text("t.yaml", &text)).expect_err("300,000 faults");
    assert_eq!((faults.listed.len(), faults.total), (MAX_LISTED, 300_000));
    let lines: Vec<u32> = faults.listed.iter().map(|fault| fault.line).collect();
    let first: Vec<u32> = (0..100).map(|i| 19 + i / 3).collect();
    assert_eq!(lines, first, "the first ones, in order, though three passes found them");
    assert!(faults.listed.iter().all(|fault| fault.nearest.is_some()));
    assert!(faults.to_string().ends_with("and 299900 more (300000 in all)\n"));
}

#[test]
fn a_file_over_the_bound_is_refused_with_a_reason() {
    let text = " ".repeat(MAX_TEXT + 1);
    let faults = load(&Source::text("t.yaml", &text)).expect_err("too large");
    assert!(faults.listed[0].reason.contains("the most is 268435456"), "{faults}");
}

#[test]
fn faults_as_people_and_programs_read_them() {
    let faults = load(&Source::text("holdfast.yaml", "truth: store\nlimits: { bdy: 1 }\n")).expect_err("a fault");
    let shown = "holdfast.yaml:2:11: limits.bdy: there is no field \"bdy\" here; the nearest is \"body\"\n  2 | limits: { bdy: 1 }\n    |           ^\n";
    assert_eq!(faults.to_string(), shown);
    let json = serde_json::json!({
        "faults": [{
            "file": "holdfast.yaml", "line": 2, "column": 11, "path": "limits.bdy",
            "reason": "there is no field \"bdy\" here", "nearest": "body",
        }],
        "total": 1,
    });
    assert_eq!(serde_json::to_value(&faults).unwrap(), json);
}

/// The defaults that the schema states are those that a file without the field gets.
#[test]
fn the_schema_states_the_defaults_that_hold() {
    let schema = schema();
    let mut stated = serde_json::Map::new();
    for (name, field) in schema["properties"].as_object().unwrap() {
        if let Some(default) = field.get("default") {
            stated.insert(name.clone(), default.clone());
        }
        let inner = field.get("properties").and_then(|p| p.as_object()).into_iter().flatten();
        let inner: serde_json::Map<_, _> =
            inner.filter_map(|(name, field)| Some((name.clone(), field.get("default")?.clone()))).collect();
        // Sections whose being there means something.
        let means = ["auth", "store", "control", "gateway", "route_token", "ledger", "results", "stream"]
            .contains(&name.as_str());
        if !inner.is_empty() && !means {
            stated.insert(name.clone(), inner.into());
        }
    }
    assert!(stated.len() >= 8, "{stated:?}");
    let text = serde_json::Value::from(stated).to_string();
    assert_eq!(good(&text).config, Config::default(), "JSON is YAML: {text}");
}

#[test]
fn the_schema_describes_every_field() {
    fn walk(schema: &serde_json::Value, path: &str, count: &mut usize) {
        if let Some(properties) = schema.get("properties").and_then(|p| p.as_object()) {
            assert_eq!(schema["additionalProperties"], false, "{path} lets unknown fields in");
            for (name, field) in properties {
                let path = format!("{path}.{name}");
                assert!(field["description"].as_str().is_some_and(|text| text.len() > 8), "{path} has no description");
                *count += 1;
                walk(field, &path, count);
            }
        }
        for inner in schema.get("anyOf").and_then(|a| a.as_array()).into_iter().flatten().chain(schema.get("items")) {
            walk(inner, path, count);
        }
    }
    let mut count = 0;
    walk(&schema(), "", &mut count);
    assert!(count > 80, "{count}");
}

#[test]
fn where_replicas_load_a_version_upstream_does_not_tell_two_models_apart() {
    let text = |residency: &str, more: &str| {
        format!(
            "auth: {{ trusted_header: x-tenant }}\npools:\n  - name: p\n    protocol: open-inference\n    residency: {residency}\n    \
             upstream: {{ model: \"{{model}}-{{version}}\", version: \"{{version}}\" }}\n    \
             replicas: [{{ name: r, url: \"http://127.0.0.1:1\"{more} }}]\n\
             models:\n  - {{ name: a, pool: p, versions: [{{ version: 1-2, size: 1GiB }}] }}\n  \
             - {{ name: a-1, pool: p, versions: [{{ version: \"2\", size: 1GiB }}] }}\n"
        )
    };
    let refused = load(&Source::text("t.yaml", &text("repository", ""))).unwrap_err().to_string();
    assert!(refused.contains("makes one upstream model \"a-1-2\""), "{refused}");
    let _ = good(&text("static", ", holds: [{ model: a, version: 1-2 }]"));
}
