//! Paths of a configuration are below the folder of its file; places of what was found beside the text.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;

use holdfast_config::{Frame, Source, load, placed};

/// Every field that is a path, over three roles; each path has `here` in it.
const TEXTS: [&str; 3] = [
    "state: ./here
listen: { admin: { address: '127.0.0.1:1', token_file: here/1, tokens_file: here/2, tls: { certificates: here/3, key: here/4, clients: here/5 } } }
auth:
  jwt:
    - { issuer: a, jwks_file: here/6, algorithms: [ES256], audiences: [a], tenant: acme }
    - { issuer: b, jwks_url: 'https://b/k', authorities: here/7, algorithms: [ES256], audiences: [a], tenant: acme }
audit: { folder: here/8 }
receipts: { disk: { folder: here/9 } }
log: { file: here/10 }
exposures: { folder: here/11 }
",
    "state: here
store: { postgres: 'postgresql://u@127.0.0.1/d', password_file: here/1, tls: { authorities: here/2, certificates: here/3, key: here/4 } }
control: { secret_file: here/5, tls: { certificates: here/6, key: here/7, gateways: here/8 } }
",
    "state: here
gateway: { control: ['https://127.0.0.1:2'], secret_file: here/1, tls: { authorities: here/2, certificates: here/3, key: here/4, peers: here/5 } }
",
];

#[test]
fn every_relative_path_is_below_the_folder_of_the_file() {
    for text in TEXTS {
        let source = Source { folder: Path::new("/etc/holdfast"), ..Source::text("t.yaml", text) };
        let shown = format!("{:?}", load(&source).unwrap_or_else(|faults| panic!("{faults}")).config);
        let (all, rooted) = (shown.matches("here").count(), shown.matches("/etc/holdfast/here").count());
        assert_eq!((rooted, all), (text.matches("here").count(), rooted), "{shown}");
    }
}

#[test]
fn what_is_absolute_or_has_no_folder_stays_as_it_is_written() {
    let of = |folder: &str, text: &str| {
        let source = Source { folder: Path::new(folder), ..Source::text("t.yaml", text) };
        load(&source).unwrap().config.state.display().to_string()
    };
    assert_eq!(of("/etc/holdfast", "state: /var/lib/holdfast\n"), "/var/lib/holdfast");
    assert_eq!(of("/etc/holdfast", ""), "/etc/holdfast/holdfast-data");
    assert_eq!(of("conf", "state: ../data\n"), "conf/../data");
    assert_eq!(of("", "state: ./data\n"), "./data");
    // A table in a process reads its settings anew: they mean the same files.
    let settings = serde_json::json!({ "state": "data" });
    let frame = Frame { folder: "/etc/holdfast".into(), ..Frame::new(settings) };
    let state = frame.load(&holdfast_config::Resources::new()).unwrap().config.state;
    assert_eq!(state.display().to_string(), "/etc/holdfast/data");
}

#[test]
fn what_is_found_beside_the_text_gets_its_place_in_it() {
    let text = "auth:\n  jwt:\n    - { issuer: a }\n    - issuer: b\n      jwks_file: keys\npools: []\n";
    let found = [
        ("auth.jwt[1].jwks_file", (5, 18)),
        ("auth.jwt[0].jwks_file", (3, 7)),
        ("pools[3].memory", (6, 8)),
        ("listen.admin.tls", (1, 1)),
    ];
    for (path, place) in found {
        let faults = placed(&Source::text("t.yaml", text), &[(path.to_owned(), "is wrong".to_owned())]);
        let fault = &faults.listed[0];
        assert_eq!(((fault.line, fault.column), fault.path.as_str(), faults.total), (place, path, 1), "{fault}");
    }
    let environment = [("HOLDFAST__STATE".to_owned(), "elsewhere".to_owned())];
    let source = Source { environment: &environment, ..Source::text("t.yaml", text) };
    let faults = placed(&source, &[("state".to_owned(), "is not there".to_owned())]);
    assert_eq!(faults.listed[0].file, "environment variable HOLDFAST__STATE");
}
