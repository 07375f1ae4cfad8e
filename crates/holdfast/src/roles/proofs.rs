//! Secrets and certificates from the files that a configuration names, and the connection to the store. `check` reads them by the same rules.
//! Their content is in no text.

use std::path::{Path, PathBuf};

use holdfast_config::{Config, ControlSection, GatewaySection, StoreSection, StoreTls};
use holdfast_store::{PostgresOptions, PostgresTls};
use holdfast_wire::auth::{ClientTls, Own, Pem, Secret, ServerTls};

/// Where a fault is, and what it is.
pub type Fault = (&'static str, String);

/// What a process of a fleet would refuse at its start though the file itself is good.
pub fn check(config: &Config) -> Vec<Fault> {
    let store = config.store.as_ref().and_then(|s| postgres(s).err());
    let control = config.control.as_ref().map(|c| [control_secrets(c).err(), control_tls(c).err()]);
    let gateway = config.gateway.as_ref().map(|g| [gateway_secret(g).err(), gateway_links(g).err()]);
    let admin = super::entrance(config).err().map(|e| ("listen.admin.tls", e.to_string()));
    let data = super::data_entrance(config).err().map(|e| ("listen.data_tls", e.to_string()));
    let proofs = control.into_iter().chain(gateway).flatten().flatten();
    store.into_iter().chain(admin).chain(data).chain(proofs).collect()
}

/// How the store is reached.
///
/// # Errors
/// The password cannot be read, or the connection is one that this release does not make.
pub fn postgres(section: &StoreSection) -> Result<PostgresOptions, Fault> {
    let url = section.postgres.as_ref().map_or("", |url| url.as_str());
    let mut options = PostgresOptions { schema: section.schema.to_string(), ..PostgresOptions::new(url) };
    if let Some(file) = &section.password_file {
        let text = text("store.password_file", file)?;
        options.password = Some(text.trim_end_matches(['\n', '\r']).to_owned());
    }
    options.tls = section.tls.as_ref().map(|tls| store_files(tls)?.tls()).transpose()?;
    options.check().map_err(|e| ("store.postgres", e.to_string()))?;
    Ok(options)
}

/// What the files of the connection to the store hold.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreFiles {
    authorities: Vec<u8>,
    own: Option<(Vec<u8>, Vec<u8>)>,
}

impl StoreFiles {
    /// What is made of them.
    ///
    /// # Errors
    /// They are none of what they should be.
    pub fn tls(&self) -> Result<PostgresTls, Fault> {
        let own = self.own.as_ref().map(|(certificates, key)| (&**certificates, &**key));
        PostgresTls::new(&self.authorities, own).map_err(|e| ("store.tls", e.to_string()))
    }
}

/// Reads the files of the connection to the store.
///
/// # Errors
/// One cannot be read.
pub fn store_files(section: &StoreTls) -> Result<StoreFiles, Fault> {
    let read = |path, file: &Option<PathBuf>| file.as_deref().map(|file| bytes(path, file)).transpose();
    let authorities = read("store.tls.authorities", &section.authorities)?.unwrap_or_default();
    let own = read("store.tls.certificates", &section.certificates)?.zip(read("store.tls.key", &section.key)?);
    Ok(StoreFiles { authorities, own })
}

/// The secrets that open, a line each: while one is replaced there are two.
///
/// # Errors
/// They cannot be read, or are none.
pub fn control_secrets(section: &ControlSection) -> Result<Vec<Secret>, Fault> {
    section.secret_file.as_deref().map_or(Ok(Vec::new()), |file| secrets("control.secret_file", file))
}

/// The secret that this gateway shows: the first line.
///
/// # Errors
/// It cannot be read, or is none.
pub fn gateway_secret(section: &GatewaySection) -> Result<Option<Secret>, Fault> {
    let Some(file) = &section.secret_file else { return Ok(None) };
    Ok(secrets("gateway.secret_file", file)?.into_iter().next())
}

/// TLS to gateways.
///
/// # Errors
/// A file cannot be read.
pub fn control_tls(section: &ControlSection) -> Result<Option<ServerTls>, Fault> {
    let Some(tls) = &section.tls else { return Ok(None) };
    let (Some(certificates), Some(key)) = (&tls.certificates, &tls.key) else { return Ok(None) };
    let own = Own { certificates: pem("control.tls.certificates", certificates)?, key: pem("control.tls.key", key)? };
    let clients = tls.gateways.as_ref().map(|file| pem("control.tls.gateways", file)).transpose()?;
    Ok(Some(ServerTls { own, clients }))
}

/// TLS to control planes.
///
/// # Errors
/// A file cannot be read.
pub fn gateway_tls(section: &GatewaySection) -> Result<Option<ClientTls>, Fault> {
    let Some(tls) = &section.tls else { return Ok(None) };
    let Some(authorities) = &tls.authorities else { return Ok(None) };
    let own = match (&tls.certificates, &tls.key) {
        (Some(certificates), Some(key)) => Some(Own {
            certificates: pem("gateway.tls.certificates", certificates)?,
            key: pem("gateway.tls.key", key)?,
        }),
        _ => None,
    };
    let server_name = tls.server_name.as_ref().map(ToString::to_string);
    Ok(Some(ClientTls { servers: pem("gateway.tls.authorities", authorities)?, own, server_name }))
}

/// The certificates of a gateway, as its files have them.
#[derive(Clone, PartialEq, Eq)]
pub struct GatewayLinks {
    /// To control planes.
    pub control: ClientTls,
    /// What other gateways are shown, and whom to believe of them. None: gateways speak in the clear.
    pub peers: Option<(ServerTls, ClientTls)>,
}

impl GatewayLinks {
    /// Whether they can be used.
    ///
    /// # Errors
    /// What is wrong, without showing it.
    pub fn check(&self) -> Result<(), String> {
        let link = self.control.check().map_err(|e| format!("gateway.tls: {e}"));
        let peers = self.peers.as_ref().map_or(Ok(()), |(server, client)| server.check().and_then(|()| client.check()));
        link.and(peers.map_err(|e| format!("gateway.tls.peers: {e}")))
    }
}

/// Reads the certificates of a gateway.
///
/// # Errors
/// A file cannot be read.
pub fn gateway_links(section: &GatewaySection) -> Result<Option<GatewayLinks>, Fault> {
    let Some(control) = gateway_tls(section)? else { return Ok(None) };
    let (tls, own) = (section.tls.as_ref(), control.own.clone());
    let Some((file, own)) = tls.and_then(|tls| tls.peers.as_deref()).zip(own) else {
        return Ok(Some(GatewayLinks { control, peers: None }));
    };
    let signers = pem("gateway.tls.peers", file)?;
    let server_name = tls.and_then(|tls| tls.peer_name.as_ref()).map(ToString::to_string);
    let client = ClientTls { servers: signers.clone(), own: Some(own.clone()), server_name };
    let peers = Some((ServerTls { own, clients: Some(signers) }, client));
    Ok(Some(GatewayLinks { control, peers }))
}

fn secrets(path: &'static str, file: &Path) -> Result<Vec<Secret>, Fault> {
    let text = text(path, file)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let secrets: Result<Vec<_>, _> = lines.map(Secret::new).collect();
    let secrets = secrets.map_err(|e| (path, format!("{}: {e}", file.display())))?;
    if secrets.is_empty() { Err((path, format!("{} holds no secret", file.display()))) } else { Ok(secrets) }
}

fn text(path: &'static str, file: &Path) -> Result<String, Fault> {
    std::fs::read_to_string(file).map_err(|e| (path, format!("{} cannot be read: {e}", file.display())))
}

fn pem(path: &'static str, file: &Path) -> Result<Pem, Fault> {
    Ok(Pem::new(&bytes(path, file)?))
}

fn bytes(path: &'static str, file: &Path) -> Result<Vec<u8>, Fault> {
    std::fs::read(file).map_err(|e| (path, format!("{} cannot be read: {e}", file.display())))
}
