//! The document and the routes say the same.

use std::collections::BTreeSet;

use holdfast_control::api::{Role, document};

use crate::support::Bench;

const METHODS: [&str; 6] = ["GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"];

#[tokio::test]
async fn what_the_document_names_is_answered_and_nothing_else_is() {
    let bench = Bench::new().await;
    let served = bench.get("/openapi.json").await;
    assert_eq!(served, document());
    for (path, methods) in served["paths"].as_object().unwrap() {
        let named: BTreeSet<String> = methods.as_object().unwrap().keys().map(|m| m.to_uppercase()).collect();
        let own = methods.as_object().unwrap().values().all(|o| o["x-role"].is_string());
        let concrete = path.split('/').map(|p| if p.starts_with('{') { "1" } else { p }).collect::<Vec<_>>().join("/");
        for method in METHODS {
            let answer = bench.open(Role::Admin, &format!("{method} {concrete}"), &[("accept", "image/png")], "").await;
            let Some(answer) = answer else {
                assert!(!own, "{method} {path} is of the gateway");
                continue;
            };
            assert!(own, "{method} {path} is answered in place of the gateway");
            assert_eq!(answer.status() != 405, named.contains(method), "{method} {path}");
            if answer.status() == 405 {
                let allow = answer.headers()["allow"].to_str().unwrap();
                let allowed: BTreeSet<String> = allow.split(", ").filter(|m| *m != "HEAD").map(str::to_owned).collect();
                assert_eq!(allowed, named, "{path}");
            }
        }
    }
    for foreign in ["/", "/v1", "/v1/", "/v1/tenants/", "/v1/none", "/v1/pins/acme", "/metrics", "/v1/replicas", "/%zz"]
    {
        assert!(bench.open(Role::Admin, &format!("GET {foreign}"), &[], "").await.is_none(), "{foreign}");
    }
}

#[tokio::test]
async fn parameters_of_the_document_are_those_that_are_known() {
    let bench = Bench::new().await;
    for (path, methods) in document()["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap().iter().filter(|(_, o)| o["x-role"].is_string()) {
            let concrete =
                path.split('/').map(|p| if p.starts_with('{') { "1" } else { p }).collect::<Vec<_>>().join("/");
            let what = format!("{} {concrete}?nothing=1", method.to_uppercase());
            let told = bench.ask(&what, &[("content-type", "application/json"), ("if-match", "\"99\"")], "").await;
            assert_eq!(told.refused(), (400, "bad_request"), "{what}");
            let parameters = operation["parameters"].as_array().unwrap();
            let named: Vec<&str> =
                parameters.iter().filter(|p| p["in"] == "query").map(|p| p["name"].as_str().unwrap()).collect();
            let known = if named.is_empty() { "none".to_owned() } else { named.join(", ") };
            let detail = told.json["detail"].as_str().unwrap();
            assert!(detail.ends_with(&format!("known: {known}")), "{what}: {detail}");
        }
    }
}
