//! The fault that ends the process, seen from outside it: the test starts its own program again as the server.

use std::process::{Command, Stdio};
use std::time::Instant;

use holdfast_model_server::{Layout, Options, start, write_sample_repository};
use http::StatusCode;

use crate::client::{Folder, LIMIT, one_text, request, send};

const CHILD: &str = "HOLDFAST_MODEL_SERVER_CHILD";

#[tokio::test]
async fn the_process_ends_at_the_request_after_the_stated_number() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return serve_until_death(folder.as_ref()).await;
    }
    let folder = Folder::new();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "death::the_process_ends_at_the_request_after_the_stated_number"])
        .env(CHILD, &folder.0)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let port = loop {
        if let Ok(text) = std::fs::read_to_string(folder.join("port")) {
            break text.trim().parse::<u16>().unwrap();
        }
        assert!(start.elapsed() < LIMIT && child.try_wait().unwrap().is_none(), "the server did not start");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    };
    let infer = || send(([127, 0, 0, 1], port).into(), request("POST", "/v2/models/screen-1/infer", one_text("x")));
    for _ in 0..2 {
        assert_eq!(infer().await.unwrap().status, StatusCode::OK);
    }
    assert!(infer().await.is_err(), "the third has no answer");
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

async fn serve_until_death(folder: &std::path::Path) {
    write_sample_repository(folder, Layout::Names, &["screen"], &["1"]).unwrap();
    let mut options = Options::new(folder);
    options.load_all = true;
    options.fault = vec!["die_after_requests=2".to_owned()];
    options.port_file = Some(folder.join("port"));
    let server = start(options).await.unwrap();
    // Should the test that started this be gone, it must not stay for ever.
    tokio::time::sleep(LIMIT).await;
    server.stop().await;
}
