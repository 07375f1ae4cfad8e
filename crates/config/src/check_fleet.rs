//! What the sections of a fleet's processes must be to one another.

use crate::check::Checker;
use crate::fleet::{ControlSection, GatewaySection};
use crate::forms::File;
use crate::path::Path;
use crate::settings::Truth;

pub(crate) fn check(checker: &mut Checker<'_, '_>, file: &File) {
    // A section that is faulty is missing here; that is reported already.
    let root = |name| Path::Root.field(name);
    let [has_store, has_control, has_gateway] =
        ["store", "control", "gateway"].map(|name| checker.tree.has(&Path::Root.field(name)));
    if has_control && has_gateway {
        let reason =
            "is for `holdfast gateway`, and the section control for `holdfast control`: a file is for one process";
        checker.fault(&root("gateway"), reason);
    }
    if has_control && !has_store {
        checker.fault(
            &root("store"),
            "is missing: a control plane keeps the truth in PostgreSQL; write store: { postgres: URL }",
        );
    }
    if has_store && !has_control {
        let reason = "is for `holdfast control`, whose section control is missing; `holdfast serve` keeps the truth in its state folder";
        checker.fault(&root("store"), reason);
    }
    check_peer(checker, file, has_gateway);
    if let Some(tls) = file.store.as_ref().and_then(|store| store.tls.as_ref())
        && tls.certificates.is_some() != tls.key.is_some()
    {
        checker.fault(&root("store").field("tls"), "has one of certificates and key without the other");
    }
    if let Some(control) = &file.control {
        check_control(checker, file, control);
    }
    if let Some(gateway) = &file.gateway {
        check_gateway(checker, file, gateway);
    }
}

fn check_peer(checker: &mut Checker<'_, '_>, file: &File, has_gateway: bool) {
    let Some(peer) = file.listen.peer else { return };
    let listen = Path::Root.field("listen");
    let path = listen.field("peer");
    if !has_gateway {
        checker.fault(&path, "is for `holdfast gateway`: there are no other gateways for this process");
        return;
    }
    if peer.ip().is_unspecified() {
        checker.fault(&path, "is told to other gateways: write an address that they reach");
    }
    let secured = file.gateway.as_ref().and_then(|gateway| gateway.tls.as_ref()).is_some_and(|tls| tls.peers.is_some());
    if !secured && !peer.ip().to_canonical().is_loopback() {
        checker.warn(
            &path,
            "is not loopback, and without gateway.tls.peers what gateways say to one another, and the secret, cross the network in clear",
        );
    }
    let data = file.listen.data;
    for (other, what) in [(data, "data listener"), (file.listen.admin.address, "admin port")] {
        let is_same_ip = other.ip() == peer.ip() || other.ip().is_unspecified();
        if other.port() == peer.port() && peer.port() != 0 && is_same_ip {
            checker.fault(&path, format!("{peer} and the {what} {other} cannot both have this port"));
        }
    }
    if !secured
        && file.gateway.as_ref().is_some_and(|gateway| gateway.secret_file.is_none())
        && !peer.ip().to_canonical().is_loopback()
    {
        checker.fault(
            &path,
            "is not loopback, and anybody who reaches it could have models loaded; name gateway.secret_file, or gateway.tls.peers",
        );
    }
}

fn check_control(checker: &mut Checker<'_, '_>, file: &File, control: &ControlSection) {
    let path = Path::Root.field("control");
    if file.truth == Truth::File {
        let reason = "the truth of several control planes cannot be the file of one; leave it out: an empty store takes its first content \
                      from the file, and later changes are asked for at the admin port";
        checker.fault(&Path::Root.field("truth"), reason);
    }
    let is_loopback = control.listen.ip().to_canonical().is_loopback();
    let asks = control.secret_file.is_some()
        || checker.tree.has(&path.field("secret_file"))
        || control.tls.as_ref().is_some_and(|tls| tls.gateways.is_some());
    if !asks && !control.open {
        checker.fault(&path, "asks gateways for no proof: name a secret_file, or tls.gateways, or set open: true");
    }
    if asks && control.open {
        checker.fault(&path.field("open"), "is true, but gateways are asked for a proof");
    }
    if control.open && !is_loopback {
        let reason = format!("anybody who reaches {} could be a gateway; ask for a proof", control.listen);
        checker.fault(&path.field("open"), reason);
    }
    if control.tls.is_none() && !is_loopback {
        checker.warn(
            &path.field("listen"),
            "is not loopback, and without tls the secret and all tables cross the network in clear",
        );
    }
    let admin = file.listen.admin.address;
    let is_same_ip =
        admin.ip() == control.listen.ip() || admin.ip().is_unspecified() || control.listen.ip().is_unspecified();
    if admin.port() == control.listen.port() && admin.port() != 0 && is_same_ip {
        let reason = format!("{} and the admin port {admin} cannot both have this port", control.listen);
        checker.fault(&path.field("listen"), reason);
    }
}

fn check_gateway(checker: &mut Checker<'_, '_>, file: &File, gateway: &GatewaySection) {
    let path = Path::Root.field("gateway");
    if file.truth == Truth::File {
        checker.fault(&Path::Root.field("truth"), "the truth is the control planes'; leave it out");
    }
    for name in ["pools", "models", "tenants"] {
        let is_there = match name {
            "pools" => !file.pools.is_empty(),
            "models" => !file.models.is_empty(),
            _ => !file.tenants.is_empty(),
        };
        if is_there {
            checker
                .warn(&Path::Root.field(name), "is not looked at: what a gateway routes comes from its control planes");
        }
    }
    if let Some(tls) = &gateway.tls
        && tls.certificates.is_some() != tls.key.is_some()
    {
        checker.fault(&path.field("tls"), "has one of certificates and key without the other");
    }
    if let Some(tls) = gateway.tls.as_ref().filter(|tls| tls.peers.is_some())
        && tls.certificates.is_none()
    {
        let reason = "is there, but gateways show one another their own certificate: write certificates and key";
        checker.fault(&path.field("tls").field("peers"), reason);
    }
    let control = path.field("control");
    let has_tls = gateway.tls.is_some() || checker.tree.has(&path.field("tls"));
    for (index, url) in gateway.control.iter().flatten().enumerate() {
        if url.as_str().is_empty() {
            continue;
        }
        if url.is_secure() && !has_tls {
            checker.fault(
                &control.item(index),
                "is https, but it is not said who signs its certificate: write tls.authorities",
            );
        }
        if !url.is_secure() && !url.is_loopback() {
            checker.warn(
                &control.item(index),
                "is not loopback, and without https the secret and all tables cross the network in clear",
            );
        }
        if gateway.control.iter().flatten().take(index).any(|earlier| earlier == url) {
            checker.fault(&control.item(index), "is there twice");
        }
    }
}
