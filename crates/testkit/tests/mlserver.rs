//! What the gateway relies on in a real MLServer, so that a change of its behaviour is found here and not in the gateway's tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use holdfast_testkit::{MlServer, mlserver};
use serde_json::{Value, json};

#[tokio::test]
async fn a_model_per_version_is_listed_loaded_and_served_by_name() {
    let server = MlServer::start(&mlserver::digits()).await;
    let expected = mlserver::digits_expected();
    let inputs: Vec<f64> = expected["inputs"].as_array().unwrap().iter().flat_map(row).collect();
    let count = expected["inputs"].as_array().unwrap().len();
    let body = json!({"id": "probe", "inputs":
        [{"name": "predict", "datatype": "FP32", "shape": [count, inputs.len() / count], "data": inputs}]});

    let index = server.http.post("/v2/repository/index", &[], &json!({})).await.expect(200).json();
    let names: Vec<&str> = index.as_array().unwrap().iter().filter_map(|m| m["name"].as_str()).collect();
    for version in ["1", "2", "3", "4"] {
        let name = format!("digits-{version}");
        assert!(names.contains(&name.as_str()), "{index}");
        let infer = format!("/v2/models/{name}/infer");
        let _ = server.http.post(&infer, &[], &body).await.expect(404);
        server.load(&name).await;
        let _ = server.http.get(&format!("/v2/models/{name}/versions/{version}/ready"), &[]).await.expect(200);
        let answer = server.http.post(&infer, &[], &body).await.expect(200).json();
        assert_eq!(answer["model_name"], json!(name));
        assert_eq!(answer["model_version"], json!(version));
        assert_eq!(answer["id"], json!("probe"));
        assert_eq!(answer["outputs"][0]["data"], expected["predictions"][version], "digits-{version}");
    }
    let _ = server.http.post("/v2/repository/models/digits-1/unload", &[], &Value::Null).await.expect(200);
    let _ = server.http.post("/v2/models/digits-1/infer", &[], &body).await.expect(404);
    let _ = server.http.post("/v2/models/digits-2/infer", &[], &body).await.expect(200);
}

#[tokio::test]
async fn tritons_own_client_gets_the_predictions_of_the_version_it_names() {
    let server = MlServer::start(&mlserver::digits()).await;
    server.load("digits-3").await;
    let inputs = mlserver::digits().join("expected.json");
    let address = server.http.addr().to_string();
    let args = [address.as_str(), "acme", "digits-3", inputs.to_str().unwrap(), "3"];
    let output = mlserver::python("triton_client_check.py", &args).await;
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{seen}");
    assert_eq!(seen["predictions"], mlserver::digits_expected()["predictions"]["3"]);
    assert_eq!((&seen["model_name"], &seen["model_version"]), (&json!("digits-3"), &json!("3")));
    assert_eq!((&seen["live"], &seen["ready"], &seen["model_ready"]), (&json!(true), &json!(true), &json!(true)));
}

fn row(row: &Value) -> Vec<f64> {
    row.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}
