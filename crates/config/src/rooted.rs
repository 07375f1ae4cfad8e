//! Relative paths of a configuration mean files beside it, wherever the process was started.

use std::path::{Path, PathBuf};

use crate::identity::JwksSource;
use crate::model::Config;

/// Puts every relative path below the folder of the configuration's file.
pub(crate) fn root(config: &mut Config, folder: &Path) {
    if folder.as_os_str().is_empty() {
        return;
    }
    for path in paths(config) {
        let plain = path.strip_prefix(".").unwrap_or(path);
        *path = folder.join(plain);
    }
}

/// Every path that a configuration names, but for golden files, which are read with it.
fn paths(config: &mut Config) -> impl Iterator<Item = &mut PathBuf> {
    let admin = &mut config.listen.admin;
    let admin_tls = admin.tls.as_mut().map(|tls| [&mut tls.certificates, &mut tls.key, &mut tls.clients]);
    let data_tls = config.listen.data_tls.as_mut().map(|tls| [&mut tls.certificates, &mut tls.key, &mut tls.clients]);
    let admin = [&mut admin.token_file, &mut admin.tokens_file];
    let logs = [&mut config.audit.folder, &mut config.exposures.folder, &mut config.log.file];
    let receipts = config.receipts.disk.as_mut().map(|disk| &mut disk.folder);
    let store = config.store.as_mut().map(|store| {
        let tls = store.tls.as_mut().map(|tls| [&mut tls.authorities, &mut tls.certificates, &mut tls.key]);
        tls.into_iter().flatten().chain([&mut store.password_file])
    });
    let shared = config.limits.store_access.paths().into_iter();
    let shared = shared.chain(config.ledger.iter_mut().flat_map(|ledger| ledger.store_access.paths()));
    let control = config.control.as_mut().map(|control| {
        let tls = control.tls.as_mut().map(|tls| [&mut tls.certificates, &mut tls.key, &mut tls.gateways]);
        tls.into_iter().flatten().chain([&mut control.secret_file])
    });
    let gateway = config.gateway.as_mut().map(|gateway| {
        let tls =
            gateway.tls.as_mut().map(|tls| [&mut tls.authorities, &mut tls.certificates, &mut tls.key, &mut tls.peers]);
        tls.into_iter().flatten().chain([&mut gateway.secret_file])
    });
    let jwt = config.auth.iter_mut().flat_map(|auth| &mut auth.jwt).filter_map(|jwt| match &mut jwt.keys {
        JwksSource::File(file) => Some(file),
        JwksSource::Url(_, authorities) => authorities.as_mut(),
    });
    let optional = admin.into_iter().chain(admin_tls.into_iter().chain(data_tls).flatten()).chain(logs).chain(receipts);
    let optional = optional.chain(store.into_iter().flatten()).chain(control.into_iter().flatten());
    let optional = optional.chain(gateway.into_iter().flatten()).chain(shared);
    optional.filter_map(Option::as_mut).chain(jwt).chain([&mut config.state])
}
