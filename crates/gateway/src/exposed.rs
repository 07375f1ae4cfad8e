//! Exposures: that a request was given an arm is told once for each person.

use holdfast_decide::{Facts, subject};
use holdfast_telemetry::{Clock, Exposure};

use crate::asker::Asker;
use crate::exchange::{RequestId, Resolution};
use crate::server::Gateway;

/// Tells it, if it is not told already. Whether the request ends well is no condition: an arm that fails would else seem to have fewer people.
#[cold]
pub fn expose(gateway: &Gateway, resolution: &Resolution, asker: &Asker<'_>, id: &RequestId) {
    let (Some(cause), Some(by)) = (&resolution.cause, resolution.by) else { return };
    let (Some(arm), Some(key)) = (&cause.arm, asker.key(by)) else { return };
    let subject = subject(by, key);
    if let Some(results) = &gateway.results {
        results.person(arm, resolution.under, by, subject);
    }
    if !gateway.exposures.is_due(subject, arm.number) {
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
        key: by.as_str(),
        subject,
    });
}
