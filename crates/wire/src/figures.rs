//! What canaries are measured by, as messages.

use holdfast_decide::rollout::RolloutId;
use holdfast_plane as plane;
use holdfast_types::{ModelName, TenantId, Version};

use crate::proto;

pub(crate) fn measuring_out(order: &plane::Measuring) -> proto::Measuring {
    proto::Measuring {
        rollout: order.rollout.0,
        pin: order.pin as u64,
        step: order.step as u64,
        tenant: order.tenant.to_string(),
        model: order.model.to_string(),
        old: order.old.to_string(),
        new: order.new.to_string(),
    }
}

pub(crate) fn measuring_in(sent: &proto::Measuring) -> Option<plane::Measuring> {
    Some(plane::Measuring {
        rollout: RolloutId(sent.rollout),
        pin: sent.pin.try_into().ok()?,
        step: sent.step.try_into().ok()?,
        tenant: TenantId::parse(&sent.tenant).ok()?,
        model: ModelName::parse(&sent.model).ok()?,
        old: Version::parse(&sent.old).ok()?,
        new: Version::parse(&sent.new).ok()?,
    })
}

pub(crate) fn measured_out(measured: &plane::Measured) -> proto::Measured {
    proto::Measured {
        rollout: measured.rollout.0,
        pin: measured.pin as u64,
        step: measured.step as u64,
        canary: Some(figures_out(&measured.canary)),
        baseline: Some(figures_out(&measured.baseline)),
    }
}

/// None: it says half of it, and half is no measurement.
pub(crate) fn measured_in(sent: &proto::Measured) -> Option<plane::Measured> {
    Some(plane::Measured {
        rollout: RolloutId(sent.rollout),
        pin: sent.pin.try_into().ok()?,
        step: sent.step.try_into().ok()?,
        canary: figures_in(sent.canary.as_ref()?)?,
        baseline: figures_in(sent.baseline.as_ref()?)?,
    })
}

fn figures_out(figures: &plane::Figures) -> proto::Figures {
    proto::Figures {
        requests: figures.requests,
        errors: figures.errors,
        micros: figures.micros,
        slots: figures.latency.keys().map(|slot| u32::from(*slot)).collect(),
        counts: figures.latency.values().copied().collect(),
    }
}

fn figures_in(sent: &proto::Figures) -> Option<plane::Figures> {
    if sent.slots.len() != sent.counts.len() {
        return None;
    }
    let slots = sent.slots.iter().zip(&sent.counts).map(|(slot, count)| Some((u16::try_from(*slot).ok()?, *count)));
    let latency = slots.collect::<Option<_>>()?;
    Some(plane::Figures { requests: sent.requests, errors: sent.errors, micros: sent.micros, latency })
}
