//! Saves the table once the gateway has it in force, so that what is saved is known to be good.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{error, info, warn};

use holdfast_plane::{Status, View};

use crate::held::Held;
use crate::proto::Tokens;
use crate::saved::{Folder, SavedError};

/// After a failure.
const AGAIN: Duration = Duration::from_secs(10);

/// The saved table. One that cannot be used is told of, and it is as if there were none.
pub(super) async fn load(folder: &Arc<Folder>) -> Option<Held> {
    let folder = folder.clone();
    match spawn_blocking(move || folder.load()).await {
        Ok(Ok(held)) => held,
        Ok(Err(why)) => {
            error!(%why, "the last good table cannot be used");
            None
        }
        Err(_) => None,
    }
}

/// Saves what is held whenever the gateway says that it is in force. Between two savings the latest wins.
pub(super) async fn run(
    folder: Option<Arc<Folder>>,
    mut held: watch::Receiver<Held>,
    mut status: watch::Receiver<Arc<Status>>,
    every: Duration,
) {
    let Some(folder) = folder else { return };
    let mut saved = held.borrow().stamp();
    loop {
        let good = held.borrow_and_update().clone();
        let in_force = status.borrow_and_update().in_force;
        if good.stamp() != saved && in_force == good.table().revision {
            let (stamp, revision) = (good.stamp(), good.table().revision);
            if save(&folder, good).await.inspect_err(|why| warn!(%why, %revision, "the table is not saved")).is_ok() {
                saved = stamp;
                info!(%revision, "the table is saved");
                sleep(every).await;
            } else {
                sleep(AGAIN).await;
            }
            continue;
        }
        let changed = tokio::select! {
            changed = held.changed() => changed,
            changed = status.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

async fn save(folder: &Arc<Folder>, held: Held) -> Result<(), SavedError> {
    let folder = folder.clone();
    // Panics only: there is nothing more to say of it.
    spawn_blocking(move || folder.save(&held)).await.unwrap_or(Ok(()))
}

/// The saved keys for tokens. What cannot be used is told of, and it is as if there were none.
pub(super) async fn load_tokens(folder: &Arc<Folder>) -> Option<Tokens> {
    let folder = folder.clone();
    let loaded = spawn_blocking(move || folder.load_tokens()).await;
    loaded.ok()?.inspect_err(|why| error!(%why, "the saved keys for tokens cannot be used")).ok()?
}

/// Saves the keys for tokens whenever later ones have come, so that a gateway that starts alone goes on with them.
pub(super) async fn run_tokens(folder: Option<Arc<Folder>>, mut view: watch::Receiver<View>) {
    let Some(folder) = folder else { return };
    let mut saved = view.borrow().tokens.stamp;
    loop {
        let tokens = view.borrow_and_update().tokens.clone();
        if tokens.stamp > saved {
            let message = Tokens { stamp: tokens.stamp, content: tokens.content.to_vec().into() };
            let folder = folder.clone();
            match spawn_blocking(move || folder.save_tokens(&message)).await {
                Ok(Err(why)) => {
                    warn!(%why, "the keys for tokens are not saved");
                    sleep(AGAIN).await;
                    continue;
                }
                _ => saved = tokens.stamp,
            }
        }
        if view.changed().await.is_err() {
            return;
        }
    }
}
