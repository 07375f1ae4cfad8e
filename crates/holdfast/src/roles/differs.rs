//! Where a file says something else of what routes than the store, which is the truth: in words, for the log.

use holdfast_config::{ResourceKind, Split, with_history};
use holdfast_control::desk::inline_golden;
use holdfast_plane::{Edit, Entries};

/// Resources that are named, of those that differ.
const NAMED: usize = 5;

/// What stands beside the names.
pub(super) const NOT_TAKEN: &str = "the file and the store differ; the store is the truth and is what is served: `holdfast apply -f FILE` makes it what the file says, \
     `holdfast table export` writes what it has as a file";

/// What a file says of everything that routes, as a desk holds it.
pub(super) fn declared(split: &Split) -> Entries {
    let mut resources = split.resources.clone();
    inline_golden(&mut resources, &split.loaded.config);
    resources.into()
}

/// Which resources a file has otherwise than they are desired: the first few by name. A file that names none says nothing of them.
pub(super) fn differs(desired: &Entries, declared: &Entries) -> Option<String> {
    if declared.is_empty() {
        return None;
    }
    let mut changes = desired.changes(declared);
    // What an experiment has given so far is in the table and in no file.
    changes.retain(|edit| !is_as_desired(desired, edit));
    // Pins first: they decide who judges.
    changes.sort_by_key(|edit| edit.kind != ResourceKind::Pin);
    let named: Vec<String> = changes.iter().take(NAMED).map(|edit| words(desired, edit)).collect();
    let more = changes.len().saturating_sub(NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| format!("{}{rest}", named.join(", ")))
}

/// One difference: of a pin both versions, of anything else where it is.
fn words(desired: &Entries, edit: &Edit) -> String {
    let (kind, name) = (edit.kind.as_str(), &edit.name);
    let (stored, file) = (desired.get(edit.kind, name), edit.value.as_ref());
    let version = |value: Option<&std::sync::Arc<serde_json::Value>>| {
        value.map_or("none".to_owned(), |value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    match (edit.kind, stored, file) {
        (ResourceKind::Pin, _, _) => format!("{kind} {name} (store {}, file {})", version(stored), version(file)),
        (_, None, _) => format!("{kind} {name} (only in the file)"),
        (_, _, None) => format!("{kind} {name} (only in the store)"),
        _ => format!("{kind} {name}"),
    }
}

/// Whether an experiment is as the file says, but for its history.
fn is_as_desired(desired: &Entries, edit: &Edit) -> bool {
    let (Some(before), Some(asked)) = (desired.get(edit.kind, &edit.name), &edit.value) else { return false };
    edit.kind == ResourceKind::Experiment
        && with_history(&edit.name, Some(before), asked).is_ok_and(|content| content == **before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_config::ResourceKind::{Model, Pin, Tenant};
    use holdfast_config::Resources;

    #[test]
    fn a_file_that_says_something_else_is_told_of_by_name() {
        let entries = |pins: &[(&str, &str)]| {
            let mut all =
                Resources::from([((Tenant, "acme".to_owned()), 1.into()), ((Model, "a".to_owned()), 1.into())]);
            all.extend(pins.iter().map(|(name, version)| ((Pin, (*name).to_owned()), (*version).into())));
            Entries::from(all)
        };
        let desired = entries(&[("acme/a", "2")]);
        assert_eq!(differs(&desired, &desired.clone()), None);
        assert_eq!(differs(&desired, &Entries::default()), None, "a file of settings alone");
        assert_eq!(differs(&desired, &entries(&[("acme/a", "1")])).as_deref(), Some("pin acme/a (store 2, file 1)"));
        assert_eq!(differs(&desired, &entries(&[])).as_deref(), Some("pin acme/a (store 2, file none)"));
        let many: Vec<String> = (0..8).map(|n| format!("acme/b{n}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "1")).collect();
        let told = differs(&entries(&[]), &entries(&many)).unwrap();
        assert!(told.ends_with(" and 3 more") && told.matches("pin ").count() == 5, "{told}");
    }
}
