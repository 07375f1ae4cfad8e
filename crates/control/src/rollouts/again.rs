//! Pins that a roll-out has left elsewhere, and requests to try them again: read from the store, by whoever is asked and by whoever drives.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_store::{Commit, MAX_PAGE, Store};

use super::forms::is_unsettled;
use super::jobs::Outcome;
use super::policy::is_before_flip;
use super::records;
use crate::desk::{PIN_RETRY, PinRetry, Truth};

/// The pins whose last roll-out has ended elsewhere than where it was to take them, with that version.
pub(crate) async fn failed(store: &dyn Store) -> Result<BTreeMap<String, String>, String> {
    let (heads, _) = records::heads(store).await.map_err(|e| e.public())?;
    let mut failed = BTreeMap::new();
    for head in heads.iter().filter(|head| !head.meta.replaced && (!head.is_over() || head.unsettled)) {
        let Some(stored) = records::load(store, head.id).await.map_err(|e| e.to_string())? else { continue };
        for pin in stored.saved.pins {
            let name = format!("{}/{}", pin.tenant, pin.model);
            if is_unsettled(&pin) || (pin.back && !is_before_flip(&pin)) {
                failed.insert(name, pin.new.version);
            } else {
                failed.remove(&name);
            }
        }
    }
    Ok(failed)
}

/// The last request for each pin that is still desired as it was then; records of which there is none go.
pub(super) async fn requests(store: Arc<dyn Store>, term: u64, truth: Arc<Truth>) -> Outcome {
    match read(&*store, term, &truth).await {
        Ok(of) => Outcome::Again { at: truth.head.revision.0, of },
        Err(error) => {
            tracing::warn!(%error, "what is asked for again could not be read");
            Outcome::Again { at: 0, of: BTreeMap::new() }
        }
    }
}

async fn read(store: &dyn Store, term: u64, truth: &Truth) -> holdfast_store::Result<BTreeMap<Arc<str>, u64>> {
    let (mut of, mut after, mut seen) = (BTreeMap::new(), None, Vec::new());
    loop {
        let page = store.records(PIN_RETRY.to_owned(), after.take(), MAX_PAGE).await?;
        let full = page.len() == MAX_PAGE;
        after = page.last().map(|record| record.id.clone());
        for record in page {
            let retry = serde_json::from_slice::<PinRetry>(record.value.as_bytes()).ok();
            retry.iter().for_each(|retry| take(retry, truth, &mut of));
            seen.push((record.id, record.version, retry));
        }
        if !full {
            break;
        }
    }
    let is_last = |retry: &PinRetry| {
        let later = retry.revision > truth.head.revision.0;
        later || retry.pins.iter().any(|(name, _)| of.get(&**name) == Some(&retry.revision))
    };
    for (id, version, _) in seen.into_iter().filter(|(.., retry)| !retry.as_ref().is_some_and(is_last)) {
        let records = vec![records::write(PIN_RETRY, id, Some(version), None)];
        store.commit(Commit { records, term: Some(term), ..Commit::default() }).await?;
    }
    Ok(of)
}

fn take(retry: &PinRetry, truth: &Truth, of: &mut BTreeMap<Arc<str>, u64>) {
    for (name, to) in &retry.pins {
        let pending = truth.pending.get_key_value(&**name);
        if let Some((name, _)) = pending.filter(|(_, wish)| wish.to.as_str() == to) {
            let last = of.entry(name.clone()).or_default();
            *last = retry.revision.max(*last);
        }
    }
}
