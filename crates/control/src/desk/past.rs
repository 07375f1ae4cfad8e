//! What was: thin words over the store, in pages; and the way back.

use std::fmt;
use std::sync::Arc;

use holdfast_config::ResourceKind;
use holdfast_plane::{Edit, Entries};
use holdfast_store::{Difference, Header, MAX_PAGE, Page, Place, Purpose, Space};
use holdfast_types::Revision;

use super::truth::{Truth, edit_of};
use super::{Desk, DeskError};

/// One revision.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Who, when, why.
    pub header: Header,
    /// What it changed in either space, a page of it.
    pub edits: Page<holdfast_store::Edit, Place>,
}

/// Where a revert leads.
#[derive(Clone, Debug, PartialEq)]
pub struct RevertTarget {
    /// The revision whose pins in force are to be desired.
    pub to: Revision,
    /// What is desired now has this revision: the base of the change.
    pub base: Revision,
    /// Edits of desired pins that lead there.
    pub edits: Vec<Edit>,
    /// Where each of these pins is now, in the same order: in force, and desired.
    pub now: Vec<(Option<String>, Option<String>)>,
    /// Those of them that cannot be made, since what they name has left the catalogue.
    pub gone: Vec<GonePin>,
}

/// What becomes of one pin. The versions; none: there is no pin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// `TENANT/MODEL`.
    pub pin: Arc<str>,
    /// What is in force.
    pub in_force: Option<String>,
    /// What is desired.
    pub desired: Option<String>,
    /// What is to be both.
    pub to: Option<String>,
}

/// A pin that cannot go back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GonePin {
    /// `TENANT/MODEL`.
    pub pin: Arc<str>,
    /// Where it was.
    pub version: String,
    /// Why it cannot go there.
    pub why: String,
}

impl RevertTarget {
    /// Leaves out what cannot be made.
    pub fn skip_gone(&mut self) {
        let gone = &self.gone;
        let kept = |edit: &Edit| gone.iter().all(|pin| pin.pin != edit.name);
        let (edits, now) = (std::mem::take(&mut self.edits), std::mem::take(&mut self.now));
        (self.edits, self.now) = edits.into_iter().zip(now).filter(|(edit, _)| kept(edit)).unzip();
    }

    /// What becomes of each pin. After a change that failed or was aborted what is desired is elsewhere than what is in force, and a revert moves both.
    #[must_use]
    pub fn moves(&self) -> Vec<Move> {
        let version = |value: &Option<Arc<serde_json::Value>>| value.as_ref()?.as_str().map(str::to_owned);
        let pins = self.edits.iter().zip(&self.now);
        let pin = |(edit, (in_force, desired)): (&Edit, &(Option<String>, Option<String>))| Move {
            pin: edit.name.clone(),
            in_force: in_force.clone(),
            desired: desired.clone(),
            to: version(&edit.value),
        };
        pins.map(pin).collect()
    }
}

impl fmt::Display for GonePin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}: {}", self.pin, self.version, self.why)
    }
}

impl Desk {
    /// Headers below a revision (`None`: from the head), newest first. At most [`MAX_PAGE`].
    ///
    /// # Errors
    /// The store gives no answer.
    pub async fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Header>, DeskError> {
        Ok(self.store.history(before, limit).await?)
    }

    /// One revision, with a page of its edits.
    ///
    /// # Errors
    /// There is no such revision, or it is not kept any more; or the store gives no answer.
    pub async fn show(&self, revision: Revision, after: Option<Place>, limit: usize) -> Result<Shown, DeskError> {
        let edits = self.store.edits(revision, after, limit).await?;
        let found = self.store.history(Some(Revision(revision.0.saturating_add(1))), 1).await?;
        let header = found.into_iter().find(|header| header.revision == revision);
        let header = header.ok_or_else(|| DeskError::NotFound(format!("there is no revision {revision}")))?;
        Ok(Shown { header, edits })
    }

    /// What differs between two revisions, a page of it.
    ///
    /// # Errors
    /// One of the revisions is not there or not kept any more; or the store gives no answer.
    pub async fn diff(
        &self,
        from: Revision,
        to: Revision,
        after: Option<Place>,
        limit: usize,
    ) -> Result<Page<Difference, Place>, DeskError> {
        Ok(self.store.diff(from, to, after, limit).await?)
    }

    /// What to ask for so that the pins in force at a revision are desired, and in force, again (`None`: those before the last flip). Pins of tenants that
    /// are gone are left out. A pin that is desired so already but in force otherwise is among them: to ask for it is to ask again. Whether it can be
    /// is for the change to say.
    ///
    /// # Errors
    /// The revision is not there or not kept any more, or no pin has flipped; or the store gives no answer.
    pub async fn revert_target(&self, to: Option<Revision>) -> Result<RevertTarget, DeskError> {
        let truth = self.refresh().await?;
        let to = match to {
            Some(to) => to,
            None => self.before_the_last_flip(truth.head.revision).await?,
        };
        let mut then = truth.in_force.clone();
        let mut after = None;
        loop {
            let page = self.store.diff(truth.head.revision, to, after, MAX_PAGE).await?;
            for Difference { place, after, .. } in page.items {
                if place.space == Space::InForce {
                    then.apply(edit_of(place.key.kind(), place.key.name(), after.as_ref())?);
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let edits = back(&truth, &then);
        let gone = edits.iter().filter_map(|edit| gone(&truth.desired, edit)).collect();
        let at = |space: &Entries, name: &str| space.get(ResourceKind::Pin, name)?.as_str().map(str::to_owned);
        let now = edits.iter().map(|edit| (at(&truth.in_force, &edit.name), at(&truth.desired, &edit.name))).collect();
        Ok(RevertTarget { to, base: truth.head.revision, edits, now, gone })
    }

    /// The revision before the last one that flipped a pin.
    async fn before_the_last_flip(&self, head: Revision) -> Result<Revision, DeskError> {
        let mut before = Some(Revision(head.0.saturating_add(1)));
        loop {
            let page = self.store.history(before, MAX_PAGE).await?;
            if let Some(flip) = page.iter().find(|header| header.purpose == Purpose::Activation && header.edits > 0) {
                return Ok(Revision(flip.revision.0.saturating_sub(1)));
            }
            match page.last() {
                Some(last) if last.revision.0 > 1 => before = Some(last.revision),
                _ => return Err(DeskError::NotFound("no pin has flipped, as far as the history goes".to_owned())),
            }
        }
    }

    /// What differs in what is desired since a revision, in words: the first few.
    pub(super) async fn changed_since(&self, seen: Revision, now: Revision) -> Vec<String> {
        const NAMED: usize = 16;
        // What is not kept any more cannot be named; the conflict is one all the same.
        let Ok(page) = self.store.diff(seen, now, None, NAMED).await else { return Vec::new() };
        let desired = page.items.into_iter().filter(|difference| difference.place.space == Space::Desired);
        desired.map(|difference| difference.place.key.to_string()).collect()
    }
}

/// From the pins that are desired and in force to those that were in force.
fn back(truth: &Truth, then: &Entries) -> Vec<Edit> {
    let (desired, in_force) = (&truth.desired, &truth.in_force);
    let has_tenant = |pin: &str| {
        let tenant = pin.split_once('/').map_or(pin, |(tenant, _)| tenant);
        desired.get(ResourceKind::Tenant, tenant).is_some()
    };
    let edit = |name: &Arc<str>, value| Edit { kind: ResourceKind::Pin, name: name.clone(), value };
    let was = then.of_kind(ResourceKind::Pin).filter(|(name, value)| {
        let is = |now: &Entries| now.get(ResourceKind::Pin, name) == Some(*value);
        has_tenant(name) && !(is(desired) && is(in_force))
    });
    let was = was.map(|(name, value)| edit(name, Some(value.clone())));
    let new = desired.of_kind(ResourceKind::Pin).filter(|(name, _)| then.get(ResourceKind::Pin, name).is_none());
    let mut edits: Vec<Edit> = was.chain(new.map(|(name, _)| edit(name, None))).collect();
    edits.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    edits
}

/// Whether a pin leads to something that is not desired any more.
fn gone(desired: &Entries, edit: &Edit) -> Option<GonePin> {
    let version = edit.value.as_ref()?.as_str()?;
    let (_, model) = edit.name.split_once('/')?;
    let why = if desired.get(ResourceKind::Model, model).is_none() {
        format!("model {model} is not in the catalogue any more")
    } else if desired.get(ResourceKind::Version, &format!("{model}/{version}")).is_none() {
        format!("version {version} of model {model} is not in the catalogue any more")
    } else {
        return None;
    };
    Some(GonePin { pin: edit.name.clone(), version: version.to_owned(), why })
}
