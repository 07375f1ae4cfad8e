//! From the form to the configuration: names are followed, and what only shows between fields is checked.
//!
//! Everything is checked even where something else is faulty; what comes out is used only if nothing was.

use std::collections::HashMap;
use std::io;

use crate::fault::{Sink, nearest};
use crate::forms::File;
use crate::identity::Auth;
use crate::limits::{Plan, PlanLimits, ScopeLimits};
use crate::model::{Config, Tenant};
use crate::path::Path;
use crate::settings::{Audit, Exposures, Listen};
use crate::stamps::{Stamp, Stamps};
use crate::tree::{Node, Place};

/// Reads a file that the configuration names.
pub(crate) type ReadFile<'a> = &'a dyn Fn(&std::path::Path) -> io::Result<Vec<u8>>;

/// The tree, to find the place of a path, and where faults and warnings go.
pub(crate) struct Checker<'c, 't> {
    pub(crate) tree: &'c Node<'t>,
    pub(crate) faults: Sink<'t>,
    pub(crate) warnings: Sink<'t>,
    pub(crate) read_file: ReadFile<'c>,
    /// What may still be spent on similar names, in cells of an edit distance.
    pub(crate) hint_budget: usize,
}

/// A tenth of a second or so.
pub(crate) const HINT_BUDGET: usize = 50_000_000;

impl Checker<'_, '_> {
    pub(crate) fn fault(&mut self, path: &Path<'_>, reason: impl Into<String>) {
        self.faults.add(self.tree.place_of(path), path, reason);
    }

    pub(crate) fn warn(&mut self, path: &Path<'_>, reason: impl Into<String>) {
        self.warnings.add(self.tree.place_of(path), path, reason);
    }

    /// A name that refers to nothing. Its place is looked up if it is not given.
    pub(crate) fn fault_unknown<'n>(
        &mut self,
        path: &Path<'_>,
        place: Option<Place>,
        reason: String,
        name: &str,
        known: impl IntoIterator<Item = &'n str>,
    ) {
        let near = nearest(name, known, &mut self.hint_budget);
        let place = place.unwrap_or_else(|| self.tree.place_of(path));
        self.faults.add_near(place, path, reason, near);
    }

    /// The same where it is only doubtful.
    pub(crate) fn warn_unknown<'n>(
        &mut self,
        path: &Path<'_>,
        reason: String,
        name: &str,
        known: impl IntoIterator<Item = &'n str>,
    ) {
        let near = nearest(name, known, &mut self.hint_budget);
        self.warnings.add_near(self.tree.place_of(path), path, reason, near);
    }

    /// Reports names that are there before, to the letter, at the second place.
    pub(crate) fn check_unique_exactly<'n>(
        &mut self,
        list: &Path<'_>,
        field: &str,
        names: impl Iterator<Item = Option<&'n str>>,
    ) {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (index, name) in names.enumerate() {
            let Some(name) = name else { continue };
            let first = *seen.entry(name).or_insert(index);
            if first != index {
                let reason = format!("{name:?} is the name of {} already", list.item(first));
                self.fault(&list.item(index).field(field), reason);
            }
        }
    }

    /// Reports names that are there before, also when case is ignored, at the second place.
    pub(crate) fn check_unique<'n>(
        &mut self,
        list: &Path<'_>,
        field: &str,
        names: impl Iterator<Item = Option<&'n str>>,
    ) {
        let mut seen: HashMap<String, (usize, &str)> = HashMap::new();
        for (index, name) in names.enumerate() {
            let Some(name) = name else { continue };
            let (first, earlier) = *seen.entry(name.to_ascii_lowercase()).or_insert((index, name));
            if first == index {
                continue;
            }
            let first = list.item(first);
            let reason = match earlier == name {
                true => format!("{name:?} is the name of {first} already"),
                false => format!("{name:?} differs only in case from {earlier:?}, the name of {first}"),
            };
            self.fault(&list.item(index).field(field), reason);
        }
    }
}

/// The whole file.
pub(crate) fn check(checker: &mut Checker<'_, '_>, file: File) -> Config {
    let auth = crate::identity::check(checker, &file);
    check_listen(checker, &file.listen);
    check_timeouts(checker, &file);
    let is_loopback = file.listen.data.ip().to_canonical().is_loopback();
    let default_stamps = if is_loopback { Stamps::ALL } else { Stamps::ALL.without(Stamp::Replica) };
    check_audit(checker, &file.audit);
    check_exposures(checker, &file.exposures);
    check_presence(checker, &file);
    check_submissions(checker, &file);
    crate::check_fleet::check(checker, &file);
    let catalogue = crate::check_models::Catalogue::new(&file.models, &file.pools);
    let pools = crate::check_pools::check(checker, &file.pools, &catalogue);
    let models = crate::check_models::check(checker, &file.models, &file.pools);
    let plans = crate::check_limits::check(checker, &file.plans, &catalogue);
    check_limits(checker, &file);
    let known = crate::check_limits::Plans::new(&file.plans);
    let tenants = crate::check_tenants::check(checker, &file.tenants, &catalogue, &known);
    let experiments = crate::check_experiments::check(checker, &file.experiments, &file.tenants, &catalogue);
    check_users(checker, auth.as_ref(), &plans, &tenants);
    let stream = crate::stream::check(checker, file.stream);
    Config {
        listen: file.listen,
        workers: file.workers,
        state: file.state,
        truth: file.truth,
        history: file.history,
        rollouts: file.rollouts,
        auth,
        limits: file.limits,
        timeouts: file.timeouts,
        stamps: file.stamps.unwrap_or(default_stamps),
        loads: file.loads,
        metrics: file.metrics,
        audit: file.audit,
        exposures: file.exposures,
        results: file.results,
        receipts: file.receipts,
        route_token: file.route_token,
        ledger: file.ledger,
        stream,
        log: file.log,
        store: file.store,
        control: file.control,
        gateway: file.gateway,
        pools,
        models,
        plans,
        tenants,
        experiments,
    }
}

/// A gateway for nobody, or with nothing behind it, is allowed: what it needs may come with a reload.
fn check_presence(checker: &mut Checker<'_, '_>, file: &File) {
    if file.gateway.is_some() || file.control.is_some() {
        // What routes is elsewhere.
        return;
    }
    if file.pools.is_empty() {
        checker.warn(&Path::Root.field("pools"), "names no pool: no request can be served");
    }
    if file.tenants.is_empty() {
        checker.warn(&Path::Root.field("tenants"), "names no tenant: every request is refused");
    }
}

/// Gateways of a fleet share what a retry finds, at whichever of them it comes in.
fn check_submissions(checker: &mut Checker<'_, '_>, file: &File) {
    let (token, ledger) = (Path::Root.field("route_token"), Path::Root.field("ledger"));
    let is_one_of_many = file.gateway.is_some();
    if file.control.is_some() {
        for (path, is_there) in [(&token, file.route_token.is_some()), (&ledger, file.ledger.is_some())] {
            if is_there {
                checker.warn(path, "is not looked at: requests come to gateways");
            }
        }
        return;
    }
    if is_one_of_many && file.route_token.as_ref().is_some_and(|token| token.key_file.is_none()) {
        checker.fault(&token, "names no key_file: a token of one gateway must be good at all of them");
    }
    if !is_one_of_many && file.route_token.is_none() {
        for (index, _) in file.experiments.iter().enumerate().filter(|(_, form)| form.sticky.is_some()) {
            let path = Path::Root.field("experiments");
            let reason = "is not looked at: there is no route_token, with whose secrets it is signed";
            checker.warn(&path.item(index).field("sticky"), reason);
        }
    }
    let Some(section) = &file.ledger else { return };
    crate::redis::check(checker, &ledger.field("store_access"), section.store.as_ref(), &section.store_access);
    if is_one_of_many && section.store.is_none() {
        checker.fault(&ledger, "names no store: a retry may come to another gateway, which must know of the first try");
    }
    let trusted = file.auth.iter().flat_map(|auth| auth.trusted_header.iter().chain(&auth.trusted_user_header));
    let is_taken = trusted.into_iter().any(|name| *name == section.header);
    if is_taken {
        checker.fault(&ledger.field("header"), "is the header that names the tenant or the user");
    }
}

fn check_limits(checker: &mut Checker<'_, '_>, file: &File) {
    let path = Path::Root.field("limits");
    crate::check_limits::scope(checker, &path.field("global"), &file.limits.global);
    let limits = &file.limits;
    crate::redis::check(checker, &path.field("store_access"), limits.store.as_ref(), &limits.store_access);
    let nodes = &limits.store_nodes;
    let is_secure = limits.store.as_ref().map(crate::RedisUrl::is_secure);
    if !nodes.is_empty() && nodes.iter().any(|node| Some(node.is_secure()) != is_secure) {
        checker.fault(&path.field("store_nodes"), "are to be like `store`: all of them redis://, or all rediss://");
    }
    let attempts = &file.limits.attempts_per_address;
    let path = path.field("attempts_per_address");
    crate::check_limits::has_rate(checker, &path, "rate", attempts.rate.is_some(), "burst", attempts.burst.is_some());
}

/// Limits of users that nobody's requests come under.
fn check_users(checker: &mut Checker<'_, '_>, auth: Option<&Auth>, plans: &[Plan], tenants: &[Tenant]) {
    if auth.is_none_or(|auth| {
        auth.trusted_user_header.is_some() || !auth.jwt.is_empty() || auth.keys || !auth.certificates.is_empty()
    }) {
        return;
    }
    let says = |limits: &PlanLimits| {
        let exceptions = limits.models.iter().map(|(_, e)| e).chain(limits.endpoints.iter().map(|(_, e)| e));
        std::iter::once(&limits.user).chain(exceptions.map(|e| &e.user)).any(|user| *user != ScopeLimits::default())
    };
    let plan =
        plans.iter().position(|plan| says(&plan.limits)).map(|at| Path::Root.field("plans").item(at).to_string());
    let own = || tenants.iter().any(|tenant| tenant.limits.as_ref().is_some_and(|limits| says(limits)));
    if plan.is_some() || own() {
        let reason = "names no trusted_user_header: no request is a user's, so limits of users are not applied";
        checker.warn(&Path::Root.field("auth"), reason);
    }
}

fn check_listen(checker: &mut Checker<'_, '_>, listen: &Listen) {
    let path = Path::Root.field("listen");
    let admin_path = path.field("admin");
    let (data, admin) = (listen.data, listen.admin.address);
    let named = ["token_file", "tokens_file"].iter().any(|field| checker.tree.has(&admin_path.field(field)));
    let has_token = listen.admin.token_file.is_some() || listen.admin.tokens_file.is_some() || named;
    if !admin.ip().to_canonical().is_loopback() && !has_token {
        let reason = format!("{admin} is not loopback, so callers must show a token; write {{ address, token_file }}");
        checker.fault(&admin_path, reason);
    }
    let clients = listen.admin.tls.as_ref().is_some_and(|tls| tls.clients.is_some());
    if clients && !checker.tree.has(&admin_path.field("tokens_file")) {
        let reason = "needs a tokens_file beside it, which says whose each certificate is";
        checker.fault(&admin_path.field("tls").field("clients"), reason);
    }
    let is_clear = listen.admin.tls.is_none() && !checker.tree.has(&admin_path.field("tls"));
    if !admin.ip().to_canonical().is_loopback() && is_clear {
        checker.warn(&admin_path, "is not loopback, and without tls tokens cross the network in clear");
    }
    let is_same_ip = data.ip() == admin.ip() || data.ip().is_unspecified() || admin.ip().is_unspecified();
    if data.port() == admin.port() && data.port() != 0 && is_same_ip {
        checker.fault(&admin_path, format!("{admin} and the data listener {data} cannot both have this port"));
    }
}

fn check_audit(checker: &mut Checker<'_, '_>, audit: &Audit) {
    let path = Path::Root.field("audit");
    let (file, total) = (audit.max_file_size, audit.max_total_size);
    if total.0 / 2 < file.0 {
        let field = if checker.tree.has(&path.field("max_total_size")) { "max_total_size" } else { "max_file_size" };
        let reason = format!(
            "max_total_size {total} is less than twice max_file_size {file}: whole files are removed, never the last"
        );
        checker.fault(&path.field(field), reason);
    }
}

fn check_exposures(checker: &mut Checker<'_, '_>, exposures: &Exposures) {
    let path = Path::Root.field("exposures");
    let (file, total) = (exposures.max_file_size, exposures.max_total_size);
    if total.0 / 2 < file.0 {
        let field = if checker.tree.has(&path.field("max_total_size")) { "max_total_size" } else { "max_file_size" };
        let reason = format!("max_total_size {total} is less than twice max_file_size {file}: whole files are removed");
        checker.fault(&path.field(field), reason);
    }
}

fn check_timeouts(checker: &mut Checker<'_, '_>, file: &File) {
    let path = Path::Root.field("timeouts");
    let (request, most) = (file.timeouts.request, file.timeouts.request_max);
    if request > most {
        let field = if checker.tree.has(&path.field("request")) { "request" } else { "request_max" };
        checker.fault(&path.field(field), format!("the default budget {request:?} is more than request_max {most:?}"));
    }
}
