//! Exposures: that a request was given an arm is told once for each person.

use holdfast_telemetry::{Clock, Exposure};

use crate::exchange::{RequestId, Resolution};
use crate::server::Gateway;

/// Tells it, if it is not told already. Whether the request ends well is no condition: an arm that fails would else seem to have fewer people.
#[cold]
pub fn expose(gateway: &Gateway, resolution: &Resolution, id: &RequestId) {
    let (Some(cause), Some(given)) = (&resolution.cause, &resolution.given) else { return };
    let (Some(arm), by, subject) = (&cause.arm, given.by, given.subject) else { return };
    // Users of two tenants are two people, also where both call them the same.
    let person = subject ^ resolution.state.tenant_number;
    if let Some(results) = &gateway.results {
        results.person(arm, resolution.under, by, person);
    }
    if !gateway.exposures.is_due(person, arm.number) {
        return;
    }
    gateway.exposures.record(Exposure {
        at: Clock::now(),
        request_id: id.text.clone(),
        tenant: resolution.route.tenant.clone(),
        model: resolution.route.model.clone(),
        version: resolution.route.version.clone(),
        revision: resolution.under,
        experiment: arm.experiment.clone(),
        bucket_version: arm.bucket_version,
        arm: arm.arm.clone(),
        reason: resolution.reason.as_str(),
        key: by.as_str(),
        subject,
    });
}
