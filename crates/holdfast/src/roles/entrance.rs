//! TLS of the admin port: the certificates at the start, and what becomes of them when their files change.

use std::sync::Arc;
use std::time::Duration;

use holdfast_config::{AdminTls, Config};
use holdfast_net::tls::{Certificates, Entrance, Files, Looked, TlsError};
use holdfast_telemetry::{Gauge, Registry};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// The alarm of files that cannot be used.
const REFUSED: &str = "admin_certificates_refused";

/// The admin port's entrance, as the configuration has it.
///
/// # Errors
/// The files cannot be used.
pub fn entrance(config: &Config) -> Result<Entrance, TlsError> {
    match config.listen.admin.tls.as_ref().and_then(files) {
        None => Ok(Entrance::default()),
        Some(files) => Ok(Entrance::over(Arc::new(Certificates::open(files)?))),
    }
}

fn files(tls: &AdminTls) -> Option<Files> {
    let (certificates, key) = (tls.certificates.clone()?, tls.key.clone()?);
    Some(Files { certificates, key, clients: tls.clients.clone() })
}

/// What is seen of the certificates among the metrics.
struct Seen {
    ends: Gauge,
    refused: Gauge,
}

/// Takes certificates anew when their files change, until the process ends. `alarm` is told of those that cannot be used.
pub fn renew(
    entrance: &Entrance,
    registry: &Registry,
    alarm: impl Fn(&'static str, String) + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let certificates = entrance.certificates().cloned();
    let seen = certificates.is_some().then(|| Seen {
        ends: registry.gauge(
            "holdfast_admin_certificate_end_timestamp_seconds",
            "When the certificate of the admin port ends, in seconds since 1970.",
        ),
        refused: registry.gauge(
            "holdfast_admin_certificates_refused",
            "1 while the files of the admin port's certificates cannot be used, and those read before stay in force.",
        ),
    });
    async move {
        let (Some(certificates), Some(seen)) = (certificates, seen) else { return std::future::pending().await };
        loop {
            seen.ends.set_u64(certificates.ends());
            tokio::time::sleep(LOOK).await;
            let looking = certificates.clone();
            let Ok(looked) = tokio::task::spawn_blocking(move || looking.look()).await else { continue };
            match looked {
                Looked::Same => {}
                Looked::Taken => {
                    seen.refused.set(0);
                    tracing::info!(ends = certificates.ends(), "the certificates of the admin port were read anew");
                }
                Looked::Refused(error) => {
                    seen.refused.set(1);
                    tracing::error!(%error, "the certificates of the admin port stay as they were");
                    alarm(REFUSED, error.to_string());
                }
            }
        }
    }
}
