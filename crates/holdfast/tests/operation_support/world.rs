//! A gateway whose configuration is edited while it runs.

use std::time::Duration;

use holdfast_testkit::{Holdfast, ModelServer, TempDir, eventually};

use super::{ask, binary, model_server, one_pool, repository, served, tenant};

/// Where the model is asked.
pub const INFER: &str = "/v2/models/screen/infer";

/// A gateway with two servers and one tenant. The parts of its file are kept, so that a test can put them together anew.
pub struct World {
    pub holdfast: Holdfast,
    pub head: String,
    pub servers: Vec<ModelServer>,
    pub repository: TempDir,
}

impl World {
    pub async fn new() -> Self {
        let repository = repository(&["screen", "rank"], &["1", "2", "3"]);
        let servers = vec![model_server(&repository, "r1", &[]).await, model_server(&repository, "r2", &[]).await];
        let head = format!("truth: file\n{}", one_pool(&servers.iter().collect::<Vec<_>>(), &["1", "2", "3"]));
        let config = format!("{head}tenants:\n{}", tenant("acme", "1"));
        let holdfast = Holdfast::start(binary(), &config).await;
        assert_eq!(served(&holdfast, "acme", INFER).await, "1");
        Self { holdfast, head, servers, repository }
    }

    /// Configurations decided about so far.
    pub async fn decided(&self) -> f64 {
        self.holdfast.metrics().await.sum("holdfast_config_reload_total", &[])
    }

    /// Writes a file, says so by a signal, and waits for the decision: whether it was taken.
    pub async fn offer(&mut self, text: &str) -> bool {
        let text = text.to_owned();
        let before = self.decided().await;
        self.holdfast.edit_config(|_| text);
        self.holdfast.proc.sighup();
        eventually("a decision", Duration::from_secs(15), async || (self.decided().await > before).then_some(())).await;
        self.holdfast.metrics().await.sum("holdfast_config_error", &[]) == 0.0
    }

    pub async fn status(&self, tenant: &str) -> u16 {
        self.holdfast.infer(tenant, INFER, &ask("coffee")).await.status.as_u16()
    }

    /// The revision that the answer, the admin view and the metrics tell; all three have to agree.
    pub async fn revision(&self) -> u64 {
        eventually("one revision everywhere", Duration::from_secs(10), async || {
            let answer = self.holdfast.infer("acme", INFER, &ask("coffee")).await.expect(200);
            let stamped: u64 = answer.header("x-holdfast-revision").parse().unwrap();
            let shown = self.holdfast.admin_get("/v1/table").await["revision"].as_u64().unwrap();
            let counted = self.holdfast.metrics().await.sum("holdfast_table_revision", &[]);
            (stamped == shown && counted == shown as f64).then_some(shown)
        })
        .await
    }
}
