//! A gateway before a stub whose answers the client chooses.

use bytes::Bytes;
use holdfast_testkit::http::Answer;
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Holdfast, Script, Stub};
use http::Method;
use serde_json::{Value, json};

use super::{INFER, binary, config, probe, text, wait_held};

/// A stub that holds `screen-1`. Whoever asks with `x-wants: N` is answered by the script of this number, everybody else correctly.
pub async fn scripted(scripts: Vec<Script>) -> Stub {
    let v2 = V2::loaded(&[("screen-1", "1")]);
    Stub::start(move |request| match request.header("x-wants").parse::<usize>() {
        Ok(number) => scripts[number].clone(),
        Err(_) => v2.answer(request),
    })
    .await
}

/// A gateway before it, with one worker, to which connections belong.
pub async fn before(stub: &Stub, tenants: &[&str], health: Value) -> Holdfast {
    let tenants: Vec<Value> = tenants.iter().map(|name| json!({"name": name, "pins": {"screen": "1"}})).collect();
    let mut config = config(&[stub.url()], 1, json!(tenants));
    config["workers"] = json!(1);
    config["pools"][0]["health"] = health;
    let gateway = Holdfast::start(binary(), &text(&config)).await;
    wait_held(&gateway, "1", 1).await;
    gateway
}

/// An inference that is answered by the script of this number. An error: the answer was cut.
pub async fn ask(gateway: &Holdfast, tenant: &str, number: usize) -> Result<Answer, String> {
    let fields = [("x-tenant", tenant), ("x-wants", &number.to_string())];
    gateway.data.send(Method::POST, INFER, &fields, Bytes::from(probe().to_string())).await
}
