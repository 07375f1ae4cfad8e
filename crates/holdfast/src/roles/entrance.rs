//! TLS of the admin port and of the data port: the certificates at the start, and what becomes of them when their files change.

use std::sync::Arc;
use std::time::Duration;

use holdfast_config::{AdminTls, Config};
use holdfast_net::tls::{Certificates, Entrance, Files, Looked, TlsError};
use holdfast_telemetry::{Gauge, Registry};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// The port that has certificates.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    name: &'static str,
    /// The alarm of files that cannot be used.
    alarm: &'static str,
    ends: (&'static str, &'static str),
    refused: (&'static str, &'static str),
}

/// The admin port.
pub const ADMIN: Port = Port {
    name: "admin",
    alarm: "admin_certificates_refused",
    ends: (
        "holdfast_admin_certificate_end_timestamp_seconds",
        "When the certificate of the admin port ends, in seconds since 1970.",
    ),
    refused: (
        "holdfast_admin_certificates_refused",
        "1 while the files of the admin port's certificates cannot be used, and those read before stay in force.",
    ),
};

/// The data port.
pub const DATA: Port = Port {
    name: "data",
    alarm: "data_certificates_refused",
    ends: (
        "holdfast_data_certificate_end_timestamp_seconds",
        "When the certificate of the data port ends, in seconds since 1970.",
    ),
    refused: (
        "holdfast_data_certificates_refused",
        "1 while the files of the data port's certificates cannot be used, and those read before stay in force.",
    ),
};

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

/// The data port's entrance, as the configuration has it.
///
/// # Errors
/// The files cannot be used.
pub fn data_entrance(config: &Config) -> Result<Entrance, TlsError> {
    let files = config.listen.data_tls.as_ref().and_then(|tls| {
        let (certificates, key) = (tls.certificates.clone()?, tls.key.clone()?);
        Some(Files { certificates, key, clients: tls.clients.clone(), required: tls.required, h2: true })
    });
    match files {
        None => Ok(Entrance::default()),
        Some(files) => Ok(Entrance::over(Arc::new(Certificates::open(files)?))),
    }
}

fn files(tls: &AdminTls) -> Option<Files> {
    let (certificates, key) = (tls.certificates.clone()?, tls.key.clone()?);
    Some(Files { certificates, key, clients: tls.clients.clone(), required: false, h2: false })
}

/// What is seen of the certificates among the metrics.
struct Seen {
    ends: Gauge,
    refused: Gauge,
}

/// Takes certificates anew when their files change, until the process ends. `alarm` is told of those that cannot be used.
pub fn renew(
    port: Port,
    entrance: &Entrance,
    registry: &Registry,
    alarm: impl Fn(&'static str, String) + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let certificates = entrance.certificates().cloned();
    let seen = certificates.is_some().then(|| Seen {
        ends: registry.gauge(port.ends.0, port.ends.1),
        refused: registry.gauge(port.refused.0, port.refused.1),
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
                    tracing::info!(
                        port = port.name,
                        ends = certificates.ends(),
                        "the certificates of a port were read anew"
                    );
                }
                Looked::Refused(error) => {
                    seen.refused.set(1);
                    tracing::error!(port = port.name, %error, "the certificates of a port stay as they were");
                    alarm(port.alarm, error.to_string());
                }
            }
        }
    }
}
