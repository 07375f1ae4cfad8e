//! Golden table: one change to a good configuration, and every fault it must bring, at its line, column and path.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use holdfast_config::{Source, load};
use support::{GOOD, good_but};

/// Line, column, path, a part of the reason, the nearest valid name.
type Expected = (u32, u32, &'static str, &'static str, &'static str);

fn check(from: &str, to: &str, expected: &[Expected]) {
    let text = good_but(from, to);
    let found = match load(&Source::text("t.yaml", &text)) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.listed,
    };
    let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), expected.len(), "{from:?} -> {to:?}\n{}", shown.join("\n"));
    for (fault, (line, column, path, reason, nearest)) in found.iter().zip(expected) {
        let at = (fault.line, fault.column, fault.path.as_str(), fault.nearest.as_deref().unwrap_or(""));
        assert_eq!(at, (*line, *column, *path, *nearest), "{from:?} -> {to:?}\n{fault}");
        assert!(fault.reason.contains(reason), "{reason:?} is not in: {fault}");
        assert_eq!(fault.file, "t.yaml");
    }
}

macro_rules! golden {
    ($name:ident: $($from:literal => $to:literal: [$($expected:expr),+ $(,)?];)+) => {
        #[test]
        fn $name() {
            $(check($from, $to, &[$($expected),+]);)+
        }
    };
}

#[test]
fn the_unchanged_file_has_no_fault() {
    assert!(load(&Source::text("t.yaml", GOOD)).is_ok());
}

golden! { syntax_and_yaml_features:
    "truth: store" => "truth: [store": [(4, 5, "", "is not YAML", "")];
    "truth: store" => "\ttruth: store": [(2, 8, "", "is not YAML: while scanning a plain scalar, found a tab", "")];
    "truth: store" => "truth: !!str store": [(3, 8, "truth", "has a tag", "")];
    "truth: store" => "truth: *t": [(3, 8, "truth", "is an alias", "")];
    "truth: store" => "truth: &t store\nstate: *t": [
        (4, 1, "state", "is there twice, first on line 2", ""),
        (4, 8, "state", "is an alias", ""),
    ];
    "  - { name: globex" => "---\n  - { name: globex": [(37, 1, "", "a second document starts here", "")];
    "truth: store" => "truth: store\ntruth: file": [(4, 1, "truth", "is there twice, first on line 3", "")];
    "truth: store" => "? [a]\n: b": [(3, 3, "", "has a list or mapping as a key", "")];
    "truth: store" => "truth:": [(3, 6, "truth", "has no value; expected store, file", "")];
    "truth: store" => "truth: ~": [(3, 8, "truth", "has no value", "")];
}

golden! { shapes:
    "truth: store" => "truth: [store]": [(3, 8, "truth", "is a list; expected store, file", "")];
    "loads: { fleet: 16 }" => "loads: 16": [(8, 8, "loads", "is a single value; expected a mapping", "")];
    "loads: { fleet: 16 }" => "loads: []": [(8, 8, "loads", "is a list; expected a mapping", "")];
    "loads: { fleet: 16 }" => "loads:": [(8, 6, "loads", "has no value; expected a mapping", "")];
    "stamps: [model, version]" => "stamps: { model: true }": [(7, 9, "stamps", "is a mapping", "")];
    "versions: [{ version: a }]" => "versions: { version: a }": [(34, 15, "models[1].versions", "is a mapping; expected a list", "")];
}

golden! { unknown_names:
    "truth: store" => "thruth: store": [(3, 1, "thruth", "there is no field \"thruth\"", "truth")];
    "truth: store" => "truth: stor": [(3, 8, "truth", "known are store, file", "store")];
    "fleet: 16" => "fleets: 16": [(8, 10, "loads.fleets", "there is no field", "fleet")];
    "fleet: 16" => "\"?\": 16": [(8, 10, "loads.\"?\"", "there is no field \"?\"", "fleet")];
    "stamps: [model, version]" => "stamps: [model, verzion]": [(7, 17, "stamps[1]", "is not known here", "version")];
    "stamps: [model, version]" => "stamps: al": [(7, 9, "stamps", "known is all", "all")];
    "level: info" => "level: notice": [(10, 15, "log.level", "known are error, warn, info", "trace")];
    "weight: 0" => "wieght: 0": [(20, 66, "pools[0].replicas[1].wieght", "there is no field", "weight")];
    "residency: static" => "residency: repo": [(23, 16, "pools[1].residency", "is not known here", "repository")];
    "pool: fixed" => "pool: fxed": [(33, 11, "models[1].pool", "there is no pool \"fxed\"", "fixed")];
    "pins: { screen: \"1\" }" => "pins: { sreen: \"1\" }": [(36, 38, "tenants[0].pins.sreen", "there is no model", "screen")];
    "pins: { screen: \"1\" }" => "pins: { screen: \"3\" }": [(36, 46, "tenants[0].pins.screen", "has no version \"3\"", "2")];
    "allow: { screen: [\"2\"] }" => "allow: { screen: [\"2\", \"22\"] }": [(36, 76, "tenants[0].allow.screen[1]", "has no version", "2")];
    "holds: [{ model: rank, version: a }]" => "holds: [{ model: rnk, version: a }]": [
        (25, 64, "pools[1].replicas[0].holds[0].model", "there is no model", "rank"),
    ];
    "unavailable: shed" => "unavailable: queue": [(37, 53, "tenants[1].unavailable", "known are wait, shed", "shed")];
}

golden! { fallbacks:
    "unavailable: shed" => "unavailable: shed, fallback: { rank: { outputs: 1 } }": [(37, 77, "tenants[1].fallback.rank", "has no list `outputs`", "")];
    "unavailable: shed" => "unavailable: shed, fallback: { rank: 1 }": [(37, 77, "tenants[1].fallback.rank", "is a single value; expected a mapping", "")];
    "unavailable: shed" => "unavailable: shed, fallback: { rnk: { outputs: [] } }": [(37, 71, "tenants[1].fallback.rnk", "there is no model", "rank")];
    "unavailable: shed" => "unavailable: shed, fallback: { rank: { outputs: [], model_version: b } }": [
        (37, 77, "tenants[1].fallback.rank.model_version", "is not for a fallback to say", ""),
    ];
    "unavailable: shed" => "unavailable: shed, fallback: { rank: { outputs: [], parameters: [] } }": [
        (37, 77, "tenants[1].fallback.rank.parameters", "is no mapping", ""),
    ];
}

golden! { numbers_sizes_times:
    "fleet: 16" => "fleet: 0": [(8, 17, "loads.fleet", "must be from 1 to 100000", "")];
    "fleet: 16" => "fleet: -0": [(8, 17, "loads.fleet", "is not a whole number", "")];
    "fleet: 16" => "fleet: -1": [(8, 17, "loads.fleet", "is not a whole number", "")];
    "fleet: 16" => "fleet: .nan": [(8, 17, "loads.fleet", "is not a whole number", "")];
    "fleet: 16" => "fleet: .inf": [(8, 17, "loads.fleet", "is not a whole number", "")];
    "fleet: 16" => "fleet: 1e308": [(8, 17, "loads.fleet", "is not a whole number", "")];
    "fleet: 16" => "fleet: 4294967296": [(8, 17, "loads.fleet", "must be from 1 to 100000", "")];
    "fleet: 16" => "fleet: \"16\"": [(8, 17, "loads.fleet", "write the number without quotes", "")];
    "fleet: 16" => "fleet: 016": [(8, 17, "loads.fleet", "has a leading zero", "")];
    "body: 64MiB" => "body: -1": [(5, 17, "limits.body", "is not a size", "")];
    "body: 64MiB" => "body: 1e400": [(5, 17, "limits.body", "unknown unit", "")];
    "body: 64MiB" => "body: 64 parsecs": [(5, 17, "limits.body", "unknown unit", "")];
    "body: 64MiB" => "body: 9000000TiB": [(5, 17, "limits.body", "is more than 8 EiB", "")];
    "body: 64MiB" => "body: 2TiB": [(5, 17, "limits.body", "must be from 1B to 1TiB", "")];
    "size: 2GiB }" => "size: 0 }": [(30, 31, "models[0].versions[0].size", "must be from", "")];
    "request: 30s" => "request: 30": [(6, 22, "timeouts.request", "has no unit", "")];
    "request: 30s" => "request: -30s": [(6, 22, "timeouts.request", "is not a time", "")];
    "request: 30s" => "request: 1.5s": [(6, 22, "timeouts.request", "is not a time", "")];
    "request: 30s" => "request: NaN": [(6, 22, "timeouts.request", "is not a time", "")];
    "request: 30s" => "request: 0s": [(6, 22, "timeouts.request", "must be from 1ms to 1d", "")];
    "request: 30s" => "request: 400s": [(6, 22, "timeouts.request", "is more than request_max", "")];
    "request: 30s" => "request_max: 9s": [(6, 26, "timeouts.request_max", "is more than request_max", "")];
    "truth: store" => "audit: { max_file_size: 1GiB, max_total_size: 1GiB }": [
        (3, 47, "audit.max_total_size", "is less than twice max_file_size", ""),
    ];
    "truth: store" => "audit: { max_file_size: 4GiB, retention: 30m }": [
        (3, 42, "audit.retention", "must be from 1h to 3650d", ""),
    ];
    "truth: store" => "audit: { max_total_size: 64MiB }": [(3, 26, "audit.max_total_size", "is less than twice", "")];
    "subset: 2" => "subset: 17": [(36, 27, "tenants[0].subset", "must be from 1 to 16", "")];
    "output: { y: 2 } }" => "output: { y: 2 }, tolerance: .inf }": [
        (31, 94, "models[0].versions[1].golden[0].tolerance", "finite number", ""),
    ];
    "output: { y: 2 } }" => "output: { y: .nan } }": [(31, 78, "models[0].versions[1].golden[0].output.y", "is a number in YAML", "")];
}

golden! { ids:
    "{ name: acme" => "{ name: \"\"": [(36, 13, "tenants[0].name", "is empty", "")];
    "{ name: acme" => "{ name: \" \"": [(36, 13, "tenants[0].name", "has the character ' '", "")];
    "{ name: acme" => "{ name: ~": [(36, 13, "tenants[0].name", "has no value", "")];
    "{ name: acme" => "{ name: [acme]": [(36, 13, "tenants[0].name", "is a list; expected the name of a tenant", "")];
    "{ name: acme" => "{ name: 7": [(36, 13, "tenants[0].name", "put \"7\" in quotes", "")];
    "{ name: acme" => "{ name: true": [(36, 13, "tenants[0].name", "put \"true\" in quotes", "")];
    "{ name: acme" => "{ name: cafe\u{301}": [(36, 13, "tenants[0].name", "has the character", "")];
    "{ name: acme" => "{ name: \"ac\\u200bme\"": [(36, 13, "tenants[0].name", "has the character", "")];
    "{ name: acme" => "{ nome: acme": [
        (36, 5, "tenants[0].name", "is missing", ""),
        (36, 7, "tenants[0].nome", "there is no field", "name"),
    ];
    "version: \"1\"" => "version: 1.10": [(30, 20, "models[0].versions[0].version", "put \"1.10\" in quotes", ""), (36, 46, "tenants[0].pins.screen", "no version \"1\"", "2")];
    "version: \"1\"" => "version: Latest": [(30, 20, "models[0].versions[0].version", "names no immutable version", ""), (36, 46, "tenants[0].pins.screen", "no version \"1\"", "2")];
    "pins: { screen: \"1\" }" => "pins: { screen: latest }": [(36, 46, "tenants[0].pins.screen", "\"latest\" names no immutable version", "")];
}

golden! { duplicates:
    "{ name: globex" => "{ name: acme": [(37, 13, "tenants[1].name", "is the name of tenants[0] already", "")];
    "{ name: globex" => "{ name: ACME": [(37, 13, "tenants[1].name", "differs only in case from \"acme\"", "")];
    "name: r2" => "name: R1": [(20, 17, "pools[0].replicas[1].name", "differs only in case", "")];
    "http://127.0.0.1:9002" => "http://127.0.0.1:9001/": [(20, 26, "pools[0].replicas[1].url", "is the url of pools[0].replicas[0] already", "")];
    "http://127.0.0.1:9002" => "http://0.0.0.0:9001": [(20, 26, "pools[0].replicas[1].url", "is the url of pools[0].replicas[0] already", "")];
    "http://127.0.0.1:9002" => "http://[::]:9001": [(20, 26, "pools[0].replicas[1].url", "is the url of pools[0].replicas[0] already", "")];
    "http://127.0.0.1:9002" => "http://[::ffff:127.0.0.1]:9001": [(20, 26, "pools[0].replicas[1].url", "is the url of pools[0].replicas[0] already", "")];
    "http://127.0.0.1:9002" => "http://[::ffff:0.0.0.0]:9001": [(20, 26, "pools[0].replicas[1].url", "is the url of pools[0].replicas[0] already", "")];
    "http://[::1]:9003" => "http://localhost:9001": [(25, 26, "pools[1].replicas[0].url", "localhost:9001 is the url of pools[0].replicas[0] already", "")];
    "version: \"2\"" => "version: \"1\"": [(31, 20, "models[0].versions[1].version", "is the name of models[0].versions[0] already", ""), (36, 71, "tenants[0].allow.screen[0]", "has no version \"2\"", "1")];
    "- name: rank" => "- name: Screen": [
        (25, 64, "pools[1].replicas[0].holds[0].model", "there is no model \"rank\"", "Screen"),
        (32, 11, "models[1].name", "differs only in case from \"screen\"", ""),
        (37, 29, "tenants[1].pins.rank", "there is no model \"rank\"", "Screen"),
    ];
    "allow: { screen: [\"2\"] }" => "allow: { screen: [\"2\", \"2\"] }": [(36, 76, "tenants[0].allow.screen[1]", "is in this list already", "")];
    "stamps: [model, version]" => "stamps: [model, model]": [(7, 17, "stamps[1]", "is there twice", "")];
    "holds: [{ model: rank, version: a }]" => "holds: [{ model: rank, version: a }, { model: rank, version: a }]": [
        (25, 84, "pools[1].replicas[0].holds[1]", "is in this list already", ""),
    ];
    "input: { x: 1 }" => "input: { x: 1, x: 2 }": [(31, 63, "models[0].versions[1].golden[0].input.x", "is there twice", "")];
}

golden! { pools_and_upstreams:
    "protocol: open-inference\n    residency: repository" => "protocol: openai\n    residency: repository": [
        (14, 15, "pools[0].protocol", "known is open-inference", "open-inference"),
    ];
    "model: \"{model}-{version}\"" => "model: \"{model}-{tenant}\"": [(16, 24, "pools[0].upstream.model", "has {tenant}", "")];
    "model: \"{model}-{version}\"" => "model: \"{model\"": [(16, 24, "pools[0].upstream.model", "brace without its partner", "")];
    "model: \"{model}-{version}\"" => "model: \"{model}/{version}\"": [(16, 24, "pools[0].upstream.model", "has the character '/'", "")];
    "model: \"{model}-{version}\"" => "model: \"{model}\"": [(16, 24, "pools[0].upstream.model", "has no {version}", "")];
    "model: \"{model}-{version}\"" => "model: \"\"": [(16, 24, "pools[0].upstream.model", "is empty", "")];
    "versions: [{ version: a }]" => "versions: [{ version: a }, { version: b }]\n  - { name: screen-1, pool: screening, versions: [{ version: \"2\", size: 1 }] }\n  - { name: screen, pool: fixed, versions: [{ version: z }] }": [
        (36, 13, "models[3].name", "is the name of models[0] already", ""),
    ];
    "- { version: \"1\", size: 2GiB }" => "- { version: 1-2, size: 2GiB }\n      - { version: \"1\", size: 2GiB }\n  - name: screen-1\n    pool: screening\n    versions:": [
        (16, 15, "pools[0].upstream", "makes one upstream model \"screen-1-2\"", ""),
        (40, 71, "tenants[0].allow.screen[0]", "has no version \"2\"", "1"),
    ];
    "timeout: 1s" => "timeout: 3s": [(17, 38, "pools[0].health.timeout", "is longer than the interval", "")];
    "interval: 2s, timeout: 1s" => "interval: 500ms": [(17, 25, "pools[0].health.interval", "is longer than the interval", "")];
    "memory: 24GiB }" => "memory: 24GiB, weight: 0 }": [(19, 7, "pools[0].replicas", "all have weight 0", "")];
    "http://127.0.0.1:9002" => "https://127.0.0.1:9002": [(20, 26, "pools[0].replicas[1].url", "has the scheme \"https\"", "")];
    "http://127.0.0.1:9002" => "http://127.0.0.1:9002/v2": [(20, 26, "pools[0].replicas[1].url", "has a path or query", "")];
    "memory: 24GiB, weight: 0" => "holds: []": [(20, 58, "pools[0].replicas[1].holds", "is for residency static", "")];
    "version: \"1\", size: 2GiB" => "version: \"1\"": [(30, 9, "models[0].versions[0].size", "is missing; loads are planned by it", "")];
    "model: rank, version: a }]" => "model: screen, version: \"1\" }]": [(25, 64, "pools[1].replicas[0].holds[0].model", "is served by another pool", "")];
    "    replicas:\n      - { name: s1, url: \"http://[::1]:9003\", holds: [{ model: rank, version: a }] }" => "    replicas: []": [
        (24, 15, "pools[1].replicas", "has 0 items; it must have at least 1", ""),
    ];
    "    residency: static\n" => "": [(21, 5, "pools[1].residency", "is missing", "")];
}

golden! { listeners_and_identity:
    "data: \"127.0.0.1:7400\"" => "data: \"localhost:7400\"": [(1, 17, "listen.data", "is not an IP address and a port", "")];
    "data: \"127.0.0.1:7400\"" => "data: 7400": [(1, 17, "listen.data", "is a number in YAML", "")];
    "data: \"127.0.0.1:7400\"" => "data: \"0.0.0.0:7400\"": [(4, 25, "auth.trusted_header", "can claim any tenant", "")];
    "admin: \"127.0.0.1:7401\"" => "admin: \"0.0.0.0:7401\"": [(1, 42, "listen.admin", "callers must show a token", "")];
    "admin: \"127.0.0.1:7401\"" => "admin: { address: \"[::]:7401\" }": [(1, 42, "listen.admin", "callers must show a token", "")];
    "admin: \"127.0.0.1:7401\"" => "admin: { address: \"[::]:7401\", token_file: \"\" }": [(1, 78, "listen.admin.token_file", "is empty", "")];
    "admin: \"127.0.0.1:7401\"" => "admin: \"127.0.0.1:7400\"": [(1, 42, "listen.admin", "cannot both have this port", "")];
    "trusted_header: x-tenant" => "trusted_header: Content-Length": [(4, 25, "auth.trusted_header", "has another meaning", "")];
    "trusted_header: x-tenant" => "trusted_header: \"x tenant\"": [(4, 25, "auth.trusted_header", "is not the name of a header", "")];
    "trusted_header: x-tenant" => "allow_non_loopback: yes": [
        (4, 7, "auth", "says nothing; write trusted_header, jwt, keys: true or certificates", ""),
        (4, 29, "auth.allow_non_loopback", "expected true or false", ""),
    ];
    "input: { x: 1 }" => "input: ask.json": [(31, 55, "models[0].versions[1].golden[0].input", "\"ask.json\" cannot be read", "")];
}
