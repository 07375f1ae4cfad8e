//! What a gateway is put together from, whoever runs it: with listeners and threads ([`crate::server`]), or on the caller's runtime ([`crate::local`]).

use std::sync::Arc;

use holdfast_config::Frame;
use holdfast_net::tls::Entrance;
use holdfast_net::{DrainHandle, Tasks};
use holdfast_plane::View;
use holdfast_telemetry::{AccessLog, AuditLog, ExposureLog, GatewayMetrics};

use crate::limits::AddressAttempts;
use crate::probes::StoreProbe;
use crate::receipts::{Disk, Receipts};
use crate::residency::{Company, Driver};
use crate::results::Results;
use crate::server::Gateway;
use crate::stage::blame::Blame;
use crate::standing::Standing;
use crate::stream::Streams;
use crate::submissions::Submissions;
use crate::table::{StartError, Tables};
use crate::tokens::Given;

/// See the module.
pub(crate) struct Parts {
    pub(crate) frame: Frame,
    pub(crate) metrics: Arc<GatewayMetrics>,
    pub(crate) access: AccessLog,
    pub(crate) audit: AuditLog,
    pub(crate) exposures: ExposureLog,
    pub(crate) standing: Arc<Standing>,
    pub(crate) store: Option<StoreProbe>,
    /// Those who share the loads with it.
    pub(crate) company: Option<Arc<Company>>,
    /// Receipts on disk, where that is asked for.
    pub(crate) on_disk: Option<Arc<Disk>>,
    /// Route tokens and the ledger, where they are asked for.
    pub(crate) submissions: Option<Arc<Submissions>>,
    /// What arms have shown, where that is kept.
    pub(crate) results: Option<Arc<Results>>,
    /// TLS on the data port, if there is any.
    pub(crate) data_entrance: Entrance,
    /// One for each worker.
    pub(crate) workers: Vec<Tasks>,
    /// For everything that is not a request.
    pub(crate) control: Tasks,
}

impl Parts {
    /// A gateway with its first table, whose replicas are looked after from now on; and what begins its drain.
    ///
    /// # Errors
    /// There is no table.
    pub(crate) fn gateway(self, first: &View) -> Result<(Arc<Gateway>, DrainHandle), StartError> {
        let Self {
            frame,
            metrics,
            access,
            audit,
            exposures,
            standing,
            store,
            company,
            on_disk,
            submissions,
            results,
            data_entrance,
            workers,
            control,
        } = self;
        let count = workers.len();
        let driver = Driver::new(workers, control, metrics.clone());
        if let Some(company) = company {
            driver.join(company);
        }
        driver.run();
        let tables = Tables::start(first, frame, driver.clone(), metrics.clone())?;
        let receipts = Receipts::new(tables.load().config.receipts.keep as usize, count).with_disk(on_disk);
        let (drain_handle, drain) = DrainHandle::new();
        let (blame, attempts) = (Blame::default(), AddressAttempts::default());
        let streams = Streams::new(metrics.registry());
        let tokens_given = Given::new(metrics.registry());
        let gateway = Gateway {
            tables,
            driver,
            metrics,
            access,
            audit,
            exposures,
            receipts,
            standing,
            drain,
            blame,
            store,
            attempts,
            submissions,
            results,
            streams,
            tokens_given,
            data_entrance,
        };
        Ok((Arc::new(gateway), drain_handle))
    }
}
