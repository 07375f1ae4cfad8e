//! Plans and limits: names are followed, and a burst has a rate beside it.

use std::collections::HashMap;

use holdfast_types::PlanName;

use crate::check::Checker;
use crate::check_models::Catalogue;
use crate::compound::Named;
use crate::fault::quoted;
use crate::forms::TenantForm;
use crate::limits::{
    ConnectionLimits, Exception, LimitedEndpoint, OwnLimitsForm, Plan, PlanForm, PlanLimits, ScopeLimits,
};
use crate::path::Path;

/// The plans that tenants may name.
pub(crate) struct Plans<'f> {
    by_name: HashMap<&'f str, &'f PlanName>,
    names: Vec<&'f str>,
}

impl<'f> Plans<'f> {
    pub(crate) fn new(forms: &'f [PlanForm]) -> Self {
        let names = forms.iter().filter_map(|form| form.name.as_ref());
        Self {
            by_name: names.clone().map(|name| (name.as_str(), name)).collect(),
            names: names.map(PlanName::as_str).collect(),
        }
    }

    /// The plan of a tenant, or a report that there is none.
    pub(crate) fn of(&self, checker: &mut Checker<'_, '_>, tenant: &Path<'_>, form: &TenantForm) -> Option<PlanName> {
        let named = form.plan.as_ref()?;
        let found = self.by_name.get(named.as_str());
        if found.is_none() {
            let reason = format!("there is no plan {}", quoted(named.as_str()));
            checker.fault_unknown(&tenant.field("plan"), None, reason, named.as_str(), self.names.iter().copied());
        }
        found.map(|name| (*name).clone())
    }
}

pub(crate) fn check(checker: &mut Checker<'_, '_>, forms: &[PlanForm], catalogue: &Catalogue<'_>) -> Vec<Plan> {
    let path = Path::Root.field("plans");
    checker.check_unique(&path, "name", forms.iter().map(|form| form.name.as_ref().map(PlanName::as_str)));
    let check_one = |(index, form): (usize, &PlanForm)| {
        let PlanForm { name, mode, connection, user, tenant, models, endpoints } = form;
        let parts = Parts { connection, user, tenant, models, endpoints };
        let limits = parts.check(checker, &path.item(index), catalogue);
        Some(Plan { name: name.clone()?, limits: PlanLimits { mode: *mode, ..limits } })
    };
    forms.iter().enumerate().filter_map(check_one).collect()
}

/// A tenant's own limits.
pub(crate) fn own(
    checker: &mut Checker<'_, '_>,
    tenant_path: &Path<'_>,
    form: &OwnLimitsForm,
    catalogue: &Catalogue<'_>,
) -> PlanLimits {
    let OwnLimitsForm { mode, connection, user, tenant, models, endpoints } = form;
    let parts = Parts { connection, user, tenant, models, endpoints };
    PlanLimits { mode: *mode, ..parts.check(checker, &tenant_path.field("limits"), catalogue) }
}

struct Parts<'f> {
    connection: &'f ConnectionLimits,
    user: &'f ScopeLimits,
    tenant: &'f ScopeLimits,
    models: &'f [Named<Exception>],
    endpoints: &'f [Named<Exception>],
}

impl Parts<'_> {
    fn check(&self, checker: &mut Checker<'_, '_>, path: &Path<'_>, catalogue: &Catalogue<'_>) -> PlanLimits {
        let connection = path.field("connection");
        has_rate(
            checker,
            &connection,
            "requests",
            self.connection.requests.is_some(),
            "burst",
            self.connection.burst.is_some(),
        );
        scope(checker, &path.field("user"), self.user);
        scope(checker, &path.field("tenant"), self.tenant);
        PlanLimits {
            mode: None,
            connection: self.connection.clone(),
            user: self.user.clone(),
            tenant: self.tenant.clone(),
            models: self.models(checker, &path.field("models"), catalogue),
            endpoints: self.endpoints(checker, &path.field("endpoints")),
        }
    }

    fn models(
        &self,
        checker: &mut Checker<'_, '_>,
        path: &Path<'_>,
        catalogue: &Catalogue<'_>,
    ) -> Vec<(holdfast_types::ModelName, Exception)> {
        let mut models = Vec::new();
        for Named { name, name_place, value, .. } in self.models {
            let path = path.field(name);
            exception(checker, &path, value);
            if let Some(entry) = catalogue.find(checker, &path, Some(*name_place), name) {
                models.push((entry.name.clone(), value.clone()));
            }
        }
        models.sort_by(|(a, _), (b, _)| a.cmp(b));
        models
    }

    fn endpoints(&self, checker: &mut Checker<'_, '_>, path: &Path<'_>) -> Vec<(LimitedEndpoint, Exception)> {
        let mut endpoints = Vec::new();
        for Named { name, name_place, value, .. } in self.endpoints {
            let path = path.field(name);
            exception(checker, &path, value);
            match LimitedEndpoint::ALL.into_iter().find(|endpoint| endpoint.as_str() == &**name) {
                Some(endpoint) => endpoints.push((endpoint, value.clone())),
                None => {
                    let known = LimitedEndpoint::ALL.map(LimitedEndpoint::as_str);
                    let reason = format!("there is no endpoint {}; known are {}", quoted(name), known.join(", "));
                    checker.fault_unknown(&path, Some(*name_place), reason, name, known);
                }
            }
        }
        endpoints.sort_by_key(|(endpoint, _)| *endpoint);
        endpoints
    }
}

fn exception(checker: &mut Checker<'_, '_>, path: &Path<'_>, value: &Exception) {
    scope(checker, &path.field("user"), &value.user);
    scope(checker, &path.field("tenant"), &value.tenant);
}

/// A burst alone says nothing: how fast it comes back would be another section's business.
pub(crate) fn scope(checker: &mut Checker<'_, '_>, path: &Path<'_>, limits: &ScopeLimits) {
    has_rate(checker, path, "requests", limits.requests.is_some(), "burst", limits.burst.is_some());
    has_rate(checker, path, "bytes", limits.bytes.is_some(), "bytes_burst", limits.bytes_burst.is_some());
}

pub(crate) fn has_rate(
    checker: &mut Checker<'_, '_>,
    path: &Path<'_>,
    rate: &str,
    has_rate: bool,
    burst: &str,
    has_burst: bool,
) {
    // A rate that is there and faulty is reported already.
    if has_burst && !has_rate && !checker.tree.has(&path.field(rate)) {
        checker.fault(&path.field(burst), format!("has no {rate} beside it, which says how fast it comes back"));
    }
}
