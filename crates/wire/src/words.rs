//! What is said, as the wire has it, and back.
//!
//! A reader passes over what it cannot read: a name against the rules, an unknown word. What it passes over never counts as a proof or an
//! order that was understood by half: a flip of which one pin cannot be read is not prepared.

use std::collections::BTreeMap;

use holdfast_decide::rollout::{Artifact, Proposal, Report, RolloutId};
use holdfast_plane as plane;
use holdfast_types::{GatewayName, ModelName, PoolName, ReplicaName, Revision, TenantId, Version};

use crate::figures;
use crate::proto::{self, ReportKind};

pub(crate) fn artifact_out(artifact: &Artifact) -> proto::Artifact {
    proto::Artifact {
        pool: artifact.pool.to_string(),
        model: artifact.model.to_string(),
        version: artifact.version.to_string(),
    }
}

pub(crate) fn artifact_in(sent: &proto::Artifact) -> Option<Artifact> {
    Some(Artifact {
        pool: PoolName::parse(&sent.pool).ok()?,
        model: ModelName::parse(&sent.model).ok()?,
        version: Version::parse(&sent.version).ok()?,
    })
}

const fn proposal_out(rollout: RolloutId, proposal: Proposal) -> proto::Proposal {
    proto::Proposal { rollout: rollout.0, step: proposal.step, base: proposal.base.0 }
}

const fn proposal_in(sent: &proto::Proposal) -> (RolloutId, Proposal) {
    (RolloutId(sent.rollout), Proposal { step: sent.step, base: Revision(sent.base) })
}

/// Orders, to be sent.
#[must_use]
pub fn orders_out(orders: &plane::Orders) -> proto::Orders {
    let want = |w: &plane::Want| proto::Want {
        replica: w.replica.to_string(),
        artifact: Some(artifact_out(&w.artifact)),
        place: w.place,
    };
    let shadow = |s: &plane::Shadowing| proto::Shadowing {
        rollout: s.rollout.0,
        pin: s.pin as u64,
        tenant: s.tenant.to_string(),
        model: s.model.to_string(),
        version: s.version.to_string(),
        share: s.share.into(),
    };
    let pending = |p: &plane::Pending| proto::Pending {
        tenant: p.tenant.to_string(),
        model: p.model.to_string(),
        to: p.to.to_string(),
        words: p.words.clone(),
    };
    proto::Orders {
        wants: orders.wants.iter().map(want).collect(),
        prepare: orders.prepare.iter().map(prepare_out).collect(),
        shadow: orders.shadow.iter().map(shadow).collect(),
        measure: orders.measure.iter().map(figures::measuring_out).collect(),
        observe: orders.observe.iter().map(artifact_out).collect(),
        live: orders.live.iter().map(ToString::to_string).collect(),
        pending: orders.pending.iter().map(pending).collect(),
    }
}

fn prepare_out(prepare: &plane::Prepare) -> proto::Prepare {
    let flip = |f: &plane::Flip| proto::Flip {
        tenant: f.tenant.to_string(),
        model: f.model.to_string(),
        new: f.new.to_string(),
        share: f.share.into(),
    };
    proto::Prepare {
        proposal: Some(proposal_out(prepare.rollout, prepare.proposal)),
        flips: prepare.flips.iter().map(flip).collect(),
    }
}

/// Orders, as they were sent.
#[must_use]
pub fn orders_in(sent: &proto::Orders) -> plane::Orders {
    let want = |w: &proto::Want| {
        let artifact = artifact_in(w.artifact.as_ref()?)?;
        Some(plane::Want { replica: ReplicaName::parse(&w.replica).ok()?, artifact, place: w.place })
    };
    let shadow = |s: &proto::Shadowing| {
        Some(plane::Shadowing {
            rollout: RolloutId(s.rollout),
            pin: s.pin.try_into().ok()?,
            tenant: TenantId::parse(&s.tenant).ok()?,
            model: ModelName::parse(&s.model).ok()?,
            version: Version::parse(&s.version).ok()?,
            share: s.share.try_into().ok()?,
        })
    };
    let pending = |p: &proto::Pending| {
        Some(plane::Pending {
            tenant: TenantId::parse(&p.tenant).ok()?,
            model: ModelName::parse(&p.model).ok()?,
            to: Version::parse(&p.to).ok()?,
            words: p.words.clone(),
        })
    };
    plane::Orders {
        wants: sent.wants.iter().filter_map(want).collect(),
        prepare: sent.prepare.iter().filter_map(prepare_in).collect(),
        shadow: sent.shadow.iter().filter_map(shadow).collect(),
        measure: sent.measure.iter().filter_map(figures::measuring_in).collect(),
        observe: sent.observe.iter().filter_map(artifact_in).collect(),
        live: sent.live.iter().filter_map(|name| GatewayName::parse(name).ok()).collect(),
        pending: sent.pending.iter().filter_map(pending).collect(),
    }
}

fn prepare_in(sent: &proto::Prepare) -> Option<plane::Prepare> {
    let flip = |f: &proto::Flip| {
        Some(plane::Flip {
            tenant: TenantId::parse(&f.tenant).ok()?,
            model: ModelName::parse(&f.model).ok()?,
            new: Version::parse(&f.new).ok()?,
            share: f.share.try_into().ok()?,
        })
    };
    let (rollout, proposal) = proposal_in(sent.proposal.as_ref()?);
    let flips: Option<Vec<_>> = sent.flips.iter().map(flip).collect();
    Some(plane::Prepare { rollout, proposal, flips: flips?.into() })
}

/// A status, to be sent. Whose it is was said at the beginning.
#[must_use]
pub fn status_out(status: &plane::Status) -> proto::Status {
    let refused = |r: &plane::Refused| proto::Refused { revision: r.revision.0, words: r.words.clone() };
    let shadowed = |s: &plane::Shadowed| proto::Shadowed {
        rollout: s.rollout.0,
        pin: s.pin as u64,
        compared: s.compared,
        differed: s.differed,
    };
    let retired = status.retired.iter().map(|((pool, upstream), (model, version))| proto::Retired {
        pool: pool.to_string(),
        upstream: upstream.clone(),
        model: model.to_string(),
        version: version.to_string(),
    });
    let unprepared = status.unprepared.iter().map(|(rollout, proposal, words)| proto::Unprepared {
        proposal: Some(proposal_out(*rollout, *proposal)),
        words: words.clone(),
    });
    proto::Status {
        in_force: status.in_force.0,
        oldest: status.oldest.0,
        refused: status.refused.as_ref().map(refused),
        prepared: status.prepared.iter().map(|(rollout, proposal)| proposal_out(*rollout, *proposal)).collect(),
        unprepared: unprepared.collect(),
        replicas: status.replicas.iter().map(replica_out).collect(),
        shadowed: status.shadowed.iter().map(shadowed).collect(),
        measured: status.measured.iter().map(figures::measured_out).collect(),
        retired: retired.collect(),
    }
}

fn replica_out(replica: &plane::ReplicaStatus) -> proto::ReplicaStatus {
    let version = |plane::Observed { artifact, report, failures }: &plane::Observed| {
        let (kind, words, permanent) = match report {
            Report::Absent => (ReportKind::Absent, "", false),
            Report::Loaded => (ReportKind::Loaded, "", false),
            Report::Proven => (ReportKind::Proven, "", false),
            Report::Lost => (ReportKind::Lost, "", false),
            Report::Failed { words, permanent } => (ReportKind::Failed, words.as_str(), *permanent),
            Report::Wrong { words } => (ReportKind::Wrong, words.as_str(), false),
        };
        let artifact = Some(artifact_out(artifact));
        proto::VersionStatus { artifact, report: kind.into(), words: words.to_owned(), permanent, failures: *failures }
    };
    proto::ReplicaStatus {
        pool: replica.pool.to_string(),
        replica: replica.replica.to_string(),
        in_service: replica.in_service,
        in_flight: replica.in_flight,
        versions: replica.versions.iter().map(version).collect(),
    }
}

/// A gateway's status, as it was sent.
#[must_use]
pub fn status_in(gateway: GatewayName, sent: &proto::Status) -> plane::Status {
    let refused = |r: &proto::Refused| plane::Refused { revision: Revision(r.revision), words: r.words.clone() };
    let unprepared = |u: &proto::Unprepared| {
        let (rollout, proposal) = proposal_in(u.proposal.as_ref()?);
        Some((rollout, proposal, u.words.clone()))
    };
    let shadowed = |s: &proto::Shadowed| {
        let (rollout, pin) = (RolloutId(s.rollout), s.pin.try_into().ok()?);
        Some(plane::Shadowed { rollout, pin, compared: s.compared, differed: s.differed })
    };
    plane::Status {
        gateway,
        in_force: Revision(sent.in_force),
        oldest: Revision(sent.oldest),
        refused: sent.refused.as_ref().map(refused),
        prepared: sent.prepared.iter().map(proposal_in).collect(),
        unprepared: sent.unprepared.iter().filter_map(unprepared).collect(),
        replicas: sent.replicas.iter().filter_map(replica_in).collect(),
        shadowed: sent.shadowed.iter().filter_map(shadowed).collect(),
        measured: sent.measured.iter().filter_map(figures::measured_in).collect(),
        retired: sent.retired.iter().filter_map(retired_in).collect::<BTreeMap<_, _>>(),
        left: false,
    }
}

fn retired_in(sent: &proto::Retired) -> Option<((PoolName, String), (ModelName, Version))> {
    let key = (PoolName::parse(&sent.pool).ok()?, sent.upstream.clone());
    Some((key, (ModelName::parse(&sent.model).ok()?, Version::parse(&sent.version).ok()?)))
}

fn replica_in(sent: &proto::ReplicaStatus) -> Option<plane::ReplicaStatus> {
    let version = |v: &proto::VersionStatus| {
        let report = match v.report() {
            // A version of which nothing is said is absent.
            ReportKind::Unspecified => return None,
            ReportKind::Absent => Report::Absent,
            ReportKind::Loaded => Report::Loaded,
            ReportKind::Proven => Report::Proven,
            ReportKind::Lost => Report::Lost,
            ReportKind::Failed => Report::Failed { words: v.words.clone(), permanent: v.permanent },
            ReportKind::Wrong => Report::Wrong { words: v.words.clone() },
        };
        Some(plane::Observed { artifact: artifact_in(v.artifact.as_ref()?)?, report, failures: v.failures })
    };
    Some(plane::ReplicaStatus {
        pool: PoolName::parse(&sent.pool).ok()?,
        replica: ReplicaName::parse(&sent.replica).ok()?,
        in_service: sent.in_service,
        in_flight: sent.in_flight,
        versions: sent.versions.iter().filter_map(version).collect(),
    })
}
