//! A gateway on the caller's runtime: one worker, no listeners, no threads of its own. For measurements, which need one request at a time and
//! nothing beside it. What a connection goes through is the same as in a gateway that listens.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::runtime::Handle;

use holdfast_config::Frame;
use holdfast_net::tls::Entrance;
use holdfast_net::{DrainHandle, Tasks};
use holdfast_plane::{ControlEnd, View};
use holdfast_telemetry::{AccessLog, AuditLog, ExposureLog, GatewayMetrics};

use crate::connection::serve_connection;
use crate::parts::Parts;
use crate::server::Gateway;
use crate::standing::Standing;
use crate::stream::Home;
use crate::table::{StartError, Tables};
use crate::worker::{Worker, heartbeat};

/// See the module.
pub struct Local {
    gateway: Arc<Gateway>,
    worker: Arc<Worker>,
    tasks: Tasks,
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
        let worker = Arc::new(Worker::new(0));
        tasks.spawn(heartbeat(worker.clone()));
        let (workers, standing, beside) = (vec![tasks.clone()], Standing::local(), tasks.clone());
        let parts = Parts {
            frame,
            metrics,
            access,
            audit,
            exposures: ExposureLog::off(),
            standing,
            store: None,
            company: None,
            on_disk: None,
            submissions: None,
            results: None,
            data_entrance: Entrance::default(),
            workers,
            control: tasks,
        };
        let (gateway, drain) = parts.gateway(view)?;
        Ok(Self { gateway, worker, tasks: beside, _drain: drain })
    }

    /// Follows a control plane; gives the holder of the table in force.
    #[must_use]
    pub fn follow(&self, control: ControlEnd) -> Arc<Tables> {
        let tasks = Tasks::new(Handle::current());
        self.gateway.tables.run(control, self.gateway.drain.clone(), &tasks);
        self.gateway.tables.clone()
    }

    /// Serves a client's connection until it ends.
    pub async fn serve(&self, stream: TcpStream, peer: SocketAddr) {
        let (worker, tasks) = (self.worker.clone(), self.tasks.clone());
        let home = Arc::new(Home { worker, tasks, _held: Box::new(()) });
        serve_connection(self.gateway.clone(), home, stream, peer).await;
    }
}
