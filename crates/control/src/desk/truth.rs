//! An immutable picture of the store: both spaces at one revision.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use holdfast_config::ResourceKind;
use holdfast_plane::{Edit, Entries, Name, Pending, Table};
use holdfast_store::digest::{Tree, leaf};
use holdfast_store::{Digests, Error, Head, Json as Text, MAX_PAGE, Space, Store};
use holdfast_types::{ModelName, Revision, TenantId, Version};

use super::error::DeskError;

/// Both spaces at one revision. Values that are the same in both are there once.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// Where the store stood at this revision.
    pub head: Head,
    /// What people asked for.
    pub desired: Entries,
    /// What gateways serve.
    pub in_force: Entries,
    /// Pins that are desired and in force at different versions, by `TENANT/MODEL`.
    pub pending: Arc<BTreeMap<Arc<str>, Pending>>,
}

/// An edit of a space, and where its value is.
pub(super) type Moved = (Space, Edit);

impl Truth {
    /// What is in force, as gateways are told.
    #[must_use]
    pub fn table(&self) -> Table {
        let digest = self.head.digests.in_force.to_string().into();
        Table { revision: self.head.in_force, digest, entries: self.in_force.clone() }
    }

    /// Takes the edits of the next revision in.
    pub(super) fn apply(&mut self, edits: Vec<Moved>, head: Head) {
        for (space, edit) in edits {
            let pin = (edit.kind == ResourceKind::Pin).then(|| edit.name.clone());
            match space {
                Space::Desired => self.desired.apply(edit),
                Space::InForce => self.in_force.apply(edit),
            }
            pin.into_iter().for_each(|name| self.look_at(&name));
        }
        self.head = head;
    }

    fn look_at(&mut self, name: &Arc<str>) {
        let now = pending(name, self.desired.get(ResourceKind::Pin, name), self.in_force.get(ResourceKind::Pin, name));
        match now {
            Some(pending) => _ = Arc::make_mut(&mut self.pending).insert(name.clone(), pending),
            None if self.pending.contains_key(name) => _ = Arc::make_mut(&mut self.pending).remove(name),
            None => {}
        }
    }
}

/// A pin on its way: desired at another version than the one in force.
pub(super) fn pending(name: &str, desired: Option<&Arc<Json>>, in_force: Option<&Arc<Json>>) -> Option<Pending> {
    let (to, from) = (desired?.as_str()?, in_force?.as_str()?);
    let (tenant, model) = name.split_once('/').filter(|_| to != from)?;
    Some(Pending {
        tenant: TenantId::parse(tenant).ok()?,
        model: ModelName::parse(model).ok()?,
        to: Version::parse(to).ok()?,
        words: None,
    })
}

/// Everything that a store holds at its head.
pub(super) async fn read(store: &dyn Store) -> Result<Truth, DeskError> {
    let head = store.head().await?;
    if head.revision == Revision(0) {
        return Ok(Truth { head, ..Truth::default() });
    }
    let desired = space(store, Space::Desired, &head, &Entries::default()).await?;
    let in_force = space(store, Space::InForce, &head, &desired).await?;
    let mut truth = Truth { head, desired, in_force, pending: Arc::default() };
    let pins: Vec<Arc<str>> = truth
        .in_force
        .iter()
        .filter(|((kind, name), value)| {
            *kind == ResourceKind::Pin && truth.desired.get(ResourceKind::Pin, name) != Some(*value)
        })
        .map(|((_, name), _)| name.clone())
        .collect();
    pins.iter().for_each(|name| truth.look_at(name));
    Ok(truth)
}

/// A space whole. Its digest is computed again: a file that was damaged while nothing had it open may read as other content.
async fn space(store: &dyn Store, space: Space, at: &Head, like: &Entries) -> Result<Entries, DeskError> {
    let (mut all, mut after): (Vec<(Name, Arc<Json>)>, _) = (Vec::new(), None);
    let mut digest = Tree::<(Arc<str>, Arc<str>)>::default();
    loop {
        let page = store.read(space, Some(at.revision), after, MAX_PAGE).await?;
        for resource in page.items {
            let kind = kind_of(resource.key.kind())?;
            let key = (resource.key.kind().into(), resource.key.name().into());
            digest.set(key, Some(leaf(resource.value.as_bytes())));
            let value = value_of(&resource.value)?;
            let shared = like.get(kind, resource.key.name()).filter(|known| ***known == value);
            let value = shared.cloned().unwrap_or_else(|| Arc::new(value));
            all.push(((kind, resource.key.name().into()), value));
        }
        after = page.next;
        if after.is_some() {
            continue;
        }
        if digest.root() != at.digests.of(space) {
            let what = format!("what is {space} at revision {} is not what was written: restore a backup", at.revision);
            return Err(DeskError::Store(Error::Corrupt { what }));
        }
        return Ok(all.into_iter().collect());
    }
}

/// The edits of one revision.
pub(super) async fn edits(store: &dyn Store, revision: Revision) -> Result<Vec<Moved>, DeskError> {
    let (mut all, mut after): (Vec<Moved>, _) = (Vec::new(), None);
    loop {
        let page = store.edits(revision, after, MAX_PAGE).await?;
        for edit in page.items {
            all.push((edit.place.space, edit_of(edit.place.key.kind(), edit.place.key.name(), edit.value.as_ref())?));
        }
        after = page.next;
        if after.is_none() {
            return Ok(all);
        }
    }
}

/// A resource of the store as the desk has it.
pub(super) fn edit_of(kind: &str, name: &str, value: Option<&Text>) -> Result<Edit, DeskError> {
    let value = value.map(value_of).transpose()?.map(Arc::new);
    Ok(Edit { kind: kind_of(kind)?, name: name.into(), value })
}

fn kind_of(word: &str) -> Result<ResourceKind, DeskError> {
    ResourceKind::parse(word).ok_or_else(|| {
        let what = format!("the store holds resources of kind {word:?}, which this release does not know");
        DeskError::Unavailable(what)
    })
}

fn value_of(text: &Text) -> Result<Json, DeskError> {
    text.value().map_err(DeskError::Store)
}

/// Where a store stands after a revision of this desk.
pub(super) fn after(head: &Head, revision: Revision, digests: Digests, term: Option<u64>) -> Head {
    let moved = |space: Space, before: Revision| {
        if digests.of(space) == head.digests.of(space) { before } else { revision }
    };
    Head {
        revision,
        desired: moved(Space::Desired, head.desired),
        in_force: moved(Space::InForce, head.in_force),
        floor: head.floor,
        term: term.unwrap_or_default().max(head.term),
        digests,
    }
}
