//! A gateway on the caller's runtime: one worker, no listeners, no threads of its own. For measurements, which need one request at a time and
//! nothing beside it. What a connection goes through is the same as in a gateway that listens.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::runtime::Handle;

use holdfast_config::Frame;
use holdfast_net::{DrainHandle, Tasks};
use holdfast_plane::View;
use holdfast_telemetry::{AccessLog, AuditLog, GatewayMetrics};

use crate::connection::serve_connection;
use crate::receipts::Receipts;
use crate::residency::Driver;
use crate::server::Gateway;
use crate::stage::blame::Blame;
use crate::table::{StartError, Tables};
use crate::worker::{Worker, heartbeat};

/// See the module.
pub struct Local {
    gateway: Arc<Gateway>,
    worker: Arc<Worker>,
    // A drain begins when it says so.
    _drain: DrainHandle,
}

impl Local {
    /// Starts one; to be called on the runtime that it is to run on.
    ///
    /// # Errors
    /// There is no table.
    pub fn start(
        view: &View,
        frame: Frame,
        metrics: Arc<GatewayMetrics>,
        access: AccessLog,
        audit: AuditLog,
    ) -> Result<Self, StartError> {
        let tasks = Tasks::new(Handle::current());
        let driver = Driver::new(vec![tasks.clone()], tasks.clone(), metrics.clone());
        driver.run();
        let tables = Tables::start(view, frame, driver.clone(), metrics.clone())?;
        let receipts = Receipts::new(tables.load().config.receipts.keep as usize, 1);
        let (drain_handle, drain) = DrainHandle::new();
        let worker = Arc::new(Worker::new(0));
        tasks.spawn(heartbeat(worker.clone()));
        let gateway = Arc::new(Gateway {
            tables,
            driver,
            metrics,
            access,
            audit,
            receipts,
            standing: crate::standing::Standing::local(),
            drain,
            blame: Blame::default(),
            store: None,
            attempts: crate::limits::AddressAttempts::default(),
        });
        Ok(Self { gateway, worker, _drain: drain_handle })
    }

    /// Serves a client's connection until it ends.
    pub async fn serve(&self, stream: TcpStream, peer: SocketAddr) {
        serve_connection(self.gateway.clone(), self.worker.clone(), stream, peer).await;
    }
}
