//! Random edits while servers go and come: the gateway ends with what the control plane has.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

mod support;

use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::json;

use holdfast_config::ResourceKind;
use support::*;

#[derive(Clone, Debug)]
enum Step {
    /// Each a name of few, and a value or its deletion.
    Edit(Vec<(usize, u8, Option<u8>)>),
    /// The server dies; the next comes up at its address, before the next step or after it.
    Die { back_at_once: bool },
    /// Lets the gateway catch up.
    Meet,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let edit = (0..ResourceKind::ALL.len(), 0..6_u8, prop::option::weighted(0.7, 0..3_u8));
    let step = prop_oneof![
        6 => prop::collection::vec(edit, 1..5).prop_map(Step::Edit),
        1 => any::<bool>().prop_map(|back_at_once| Step::Die { back_at_once }),
        2 => Just(Step::Meet),
    ];
    prop::collection::vec(step, 1..24)
}

async fn play(steps: Vec<Step>) {
    let mut now = table(1, pins(&[("a/m", "1")]));
    let truth = Truth::new(now.clone());
    let mut server = Some(Server::start(&truth));
    let gateway = Gateway::start(follower_settings(vec![server.as_ref().unwrap().url()]));
    let addr = server.as_ref().unwrap().addr;
    let up = || Server::with(&truth, server_settings(), addr);
    for step in steps {
        match step {
            Step::Edit(edits) => {
                let edits = edits.into_iter().map(|(kind, name, value)| {
                    edit(ResourceKind::ALL[kind], &format!("n{name}"), value.map(|value| json!({"v": value})))
                });
                now = edited(&now, edits);
                truth.tell(now.clone());
            }
            Step::Die { back_at_once } => {
                if let Some(server) = server.take() {
                    server.kill();
                }
                server = back_at_once.then(up);
            }
            Step::Meet => {
                server.get_or_insert_with(up);
                gateway.has(&now).await;
            }
        }
    }
    let _server = server.unwrap_or_else(up);
    gateway.has(&now).await;
}

proptest! {
    #![proptest_config(Config { cases: 24, failure_persistence: None, ..Config::default() })]

    #[test]
    fn whatever_happens_in_between_the_gateway_ends_with_the_same_table(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(steps));
    }
}
