//! Whether the pins of pools with `memory: guaranteed` fit, and the versions of their tenants' experiments and rules with them: each such version on every replica of its subset, each replica by itself.

use std::collections::BTreeMap;
use std::fmt;

use holdfast_config::{Config, MemoryPolicy, Pins, Pool, table_input};
use holdfast_decide::{BuildError, PinChange, Route, Snapshot, TableInput};
use holdfast_placement::fit::{Fit, Pin, fit};
use holdfast_types::{Bytes, ReplicaName, Revision, Weight};

/// Why pins cannot be guaranteed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FitError {
    /// The table cannot be built at all.
    Build(BuildError),
    /// The arithmetic of one pool, in words.
    Overflow {
        /// The pool's name.
        pool: String,
        /// What is needed where, and what there is.
        why: String,
    },
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build(error) => error.fmt(f),
            Self::Overflow { pool, why } => write!(f, "pool {pool} guarantees its pins, but they do not fit: {why}"),
        }
    }
}

impl FitError {
    /// Where in the configuration it is said what cannot be kept.
    #[must_use]
    pub fn path(&self, config: &Config) -> String {
        let Self::Overflow { pool, .. } = self else { return "pools".to_owned() };
        let at = config.pools.iter().position(|known| known.name.as_str() == pool);
        at.map_or_else(|| "pools".to_owned(), |at| format!("pools[{at}].memory"))
    }
}

impl std::error::Error for FitError {}

/// Checks every pool that guarantees its pins, over the real layout.
///
/// # Errors
/// [`FitError`], for the first pool that does not fit.
pub fn check_fit(config: &Config) -> Result<(), FitError> {
    if config.pools.iter().all(|p| p.memory != MemoryPolicy::Guaranteed) {
        return Ok(());
    }
    let snapshot = Snapshot::build(Revision(0), table_input(config, &Pins::new())).map_err(FitError::Build)?;
    for_guaranteed(config, &snapshot, |pool, members, memories, index| {
        let (sizes, routes) = pinned(config, &snapshot, &[], index);
        let answer = lay_out(memories, &sizes, &routes);
        if answer.fits() {
            return Ok(());
        }
        let why = arithmetic(&answer, members.iter().map(ReplicaName::as_str));
        Err(FitError::Overflow { pool: pool.name.to_string(), why })
    })
}

/// Checks that there is room for the pins in force beside those on their way, on each replica, until the last of them has flipped: else a pinned
/// version would have to go before its pin. `config` and `input` have the pins in force.
///
/// # Errors
/// [`FitError`], for the first pool that does not fit.
pub(super) fn check_flips(config: &Config, input: &TableInput, pending: &[PinChange]) -> Result<(), FitError> {
    if pending.is_empty() || config.pools.iter().all(|p| p.memory != MemoryPolicy::Guaranteed) {
        return Ok(());
    }
    let snapshot = Snapshot::build(Revision(0), input.clone()).map_err(FitError::Build)?;
    for_guaranteed(config, &snapshot, |pool, members, memories, index| {
        let (sizes, in_force) = pinned(config, &snapshot, &[], index);
        let before = lay_out(memories, &sizes, &in_force);
        let (sizes, all) = pinned(config, &snapshot, pending, index);
        let answer = lay_out(memories, &sizes, &all);
        // What does not fit without the changes is not theirs.
        let over = members
            .iter()
            .zip(&answer.replicas)
            .zip(&before.replicas)
            .filter(|((_, all), held)| all.overflow() > Bytes(0) && all.needed > held.needed);
        let over = over.map(|((name, all), held)| {
            let new = Bytes(all.needed.0 - held.needed.0);
            let memory = all.memory.unwrap_or_default();
            format!("{name}: in force {} + new {new} = {} of {memory}", held.needed, all.needed)
        });
        let over: Vec<String> = over.take(5).collect();
        if over.is_empty() {
            return Ok(());
        }
        let why = format!("until the changed pins have flipped, {}", over.join("; "));
        Err(FitError::Overflow { pool: pool.name.to_string(), why })
    })
}

/// The pinned keys of one pool, as they are laid out.
#[derive(Debug)]
pub struct PoolLayout {
    /// The pool's name.
    pub pool: String,
    /// Its replicas; the indexes of all else.
    pub replicas: Vec<ReplicaName>,
    /// Their memories. None: not known, or a replica that takes no traffic.
    pub memories: Vec<Option<Bytes>>,
    /// The sizes of the pinned versions.
    pub sizes: Vec<Bytes>,
    /// Each pin's version, as an index of the sizes, and its route.
    pub routes: Vec<(u32, Route)>,
}

/// The layout of every pool's pins, for whoever plans.
///
/// # Errors
/// [`FitError::Build`].
pub fn layouts(config: &Config) -> Result<Vec<PoolLayout>, FitError> {
    let snapshot = Snapshot::build(Revision(0), table_input(config, &Pins::new())).map_err(FitError::Build)?;
    let layout = |(index, pool): (u32, &Pool)| {
        let (replicas, memories) = members(pool, &snapshot, index);
        let (sizes, routes) = pinned(config, &snapshot, &[], index);
        PoolLayout { pool: pool.name.to_string(), replicas: replicas.to_vec(), memories, sizes, routes }
    };
    Ok((0u32..).zip(&config.pools).map(layout).collect())
}

/// A pool's replicas by the snapshot's order, and their memories.
fn members<'s>(pool: &Pool, snapshot: &'s Snapshot, index: u32) -> (&'s [ReplicaName], Vec<Option<Bytes>>) {
    let members = snapshot.pools().get(index as usize).map(|p| p.members.as_slice()).unwrap_or_default();
    let memory = |name: &ReplicaName| {
        pool.replicas.iter().find(|r| r.name == *name && r.weight > Weight(0)).and_then(|r| r.memory)
    };
    (members, members.iter().map(memory).collect())
}

/// Asks for each pool that guarantees its pins: its replicas by the snapshot's order, their memories, its index.
fn for_guaranteed(
    config: &Config,
    snapshot: &Snapshot,
    check: impl Fn(&Pool, &[ReplicaName], &[Option<Bytes>], u32) -> Result<(), FitError>,
) -> Result<(), FitError> {
    for (index, pool) in (0u32..).zip(&config.pools).filter(|(_, p)| p.memory == MemoryPolicy::Guaranteed) {
        let (members, memories) = members(pool, snapshot, index);
        check(pool, members, &memories, index)?;
    }
    Ok(())
}

fn lay_out(memories: &[Option<Bytes>], sizes: &[Bytes], routes: &[(u32, Route)]) -> Fit {
    let pins = routes.iter().map(|(version, route)| {
        let k = usize::from(route.subset);
        Pin { version: *version, order: &route.order, k }
    });
    let pins: Vec<Pin<'_>> = pins.collect();
    fit(memories, sizes, &pins)
}

/// The distinct versions' sizes, and a route with its version's index for every pin, every change of one, and what experiments and rules name.
fn pinned(config: &Config, snapshot: &Snapshot, changes: &[PinChange], pool: u32) -> (Vec<Bytes>, Vec<(u32, Route)>) {
    let mut sizes = Vec::new();
    let mut index = BTreeMap::new();
    let mut routes = Vec::new();
    let pins = snapshot.tenants().flat_map(|tenant| snapshot.keys(tenant).map(move |(m, v)| (tenant, m, v)));
    let changed = changes.iter().filter_map(|change| {
        let model = snapshot.model(change.model.as_str())?;
        Some((snapshot.tenant(change.tenant.as_str())?, model, model.version(change.version.as_str())?))
    });
    for (tenant, model, version) in pins.chain(changed).filter(|(_, model, _)| model.pool == pool) {
        let key = (model.name.clone(), version.version.clone());
        let at = *index.entry(key).or_insert_with(|| {
            let declared = config.models.iter().find(|m| m.name == model.name);
            let size = declared.and_then(|m| m.versions.iter().find(|v| v.version == version.version)?.size);
            sizes.push(size.unwrap_or_default());
            u32::try_from(sizes.len() - 1).unwrap_or(u32::MAX)
        });
        routes.push((at, snapshot.route_for(tenant, model, version)));
    }
    (sizes, routes)
}

fn arithmetic<'a>(fit: &Fit, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let total = match fit.memory {
        Some(memory) => format!("{} needed of {} in all", fit.needed, memory),
        None => format!("{} needed in all", fit.needed),
    };
    let over = fit.overflows().filter_map(|(replica, _)| {
        let at = replica as usize;
        let row = fit.replicas.get(at)?;
        let memory = row.memory.unwrap_or_default();
        let (many, name) = (row.versions.len(), names.get(at)?);
        let versions = if many == 1 { "version" } else { "versions" };
        Some(format!("{name} is to hold {many} {versions} of {} in {memory}", row.needed))
    });
    let over: Vec<String> = over.take(5).collect();
    format!("{total}; {}", over.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_config::{Source, load};

    fn config(memory: &str, size: &str) -> Config {
        let text = format!(
            "auth: {{ trusted_header: x-tenant }}\n\
             pools:\n  - name: p\n    protocol: open-inference\n    residency: repository\n    memory: guaranteed\n\
             \x20   replicas:\n      - {{ name: r1, url: \"http://127.0.0.1:1\", memory: {memory} }}\n\
             models:\n  - name: m\n    pool: p\n    versions:\n      - {{ version: \"1\", size: {size} }}\n\
             \x20     - {{ version: \"2\", size: {size} }}\n\
             tenants:\n  - {{ name: a, subset: 1, pins: {{ m: \"1\" }} }}\n  - {{ name: b, subset: 1, pins: {{ m: \"2\" }} }}\n\
             \x20 - {{ name: c, subset: 1, pins: {{ m: \"2\" }} }}\n"
        );
        load(&Source::text("c.yaml", &text)).unwrap().config
    }

    #[test]
    fn what_experiments_and_rules_name_needs_room_too() {
        let fits = |more: &str| {
            let pools = "auth: { trusted_header: x-tenant }\npools: [{ name: p, protocol: open-inference, residency: repository, \
                         memory: guaranteed, replicas: [{ name: r1, url: \"http://127.0.0.1:1\", memory: 2GiB }] }]\n\
                         models: [{ name: m, pool: p, versions: [{ version: \"1\", size: 1GiB }, { version: \"2\", size: 1GiB }, \
                         { version: \"3\", size: 1GiB }] }]\n";
            check_fit(&load(&Source::text("c.yaml", &format!("{pools}{more}"))).unwrap().config).is_ok()
        };
        let tenant = |more: &str| format!("tenants: [{{ name: a, subset: 1, pins: {{ m: \"1\" }}{more} }}]\n");
        let experiment = |status: &str, version: &str| {
            let arms = format!("arms: [{{ name: x, version: \"2\" }}, {{ name: y, version: \"{version}\" }}]");
            format!("experiments: [{{ name: e, model: m, status: {status}, {arms} }}]\n")
        };
        assert!(fits(&tenant("")));
        for (status, version, ok) in [
            ("running", "1", true),
            ("running", "3", false),
            ("draft", "3", false),
            ("paused", "3", false),
            ("ended", "3", true),
        ] {
            assert_eq!(fits(&(tenant("") + &experiment(status, version))), ok, "{status} {version}");
        }
        let rule = |version: &str| tenant(&format!(", rules: [{{ name: r, model: m, version: \"{version}\" }}]"));
        assert!(fits(&rule("2")));
        assert!(!fits(&(rule("3") + &experiment("running", "2"))));
    }

    #[test]
    fn pins_fit_to_the_byte_or_are_refused_with_the_arithmetic() {
        assert_eq!(check_fit(&config("4GiB", "2GiB")), Ok(()));
        let refused = check_fit(&config("4095MiB", "2GiB")).unwrap_err().to_string();
        let want = "pool p guarantees its pins, but they do not fit: 4GiB needed of 4095MiB in all; \
                    r1 is to hold 2 versions of 4GiB in 4095MiB";
        assert_eq!(refused, want);
    }
}
