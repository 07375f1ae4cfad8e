//! Loads and unloads: from the request to the shelf.
//!
//! A load belongs to the server, not to the request that asked for it: as with real servers it goes on when the client leaves, unless
//! the options say otherwise. It ends early only by an unload of its name or with the server.

use std::sync::Arc;
use std::time::Duration;

use holdfast_types::Bytes;
use http::StatusCode;
use tokio::task::JoinSet;

use crate::error::Error;
use crate::injector::LoadPlan;
use crate::model::Model;
use crate::options::Wish;
use crate::reply::{Refusal, Reply, empty};
use crate::repository::{Layout, Repository, RepositoryError};
use crate::server::Server;
use crate::shelf::{Begin, Outcome, Waiter};

impl From<RepositoryError> for Refusal {
    fn from(why: RepositoryError) -> Self {
        let status = match why {
            RepositoryError::Unknown(_) => StatusCode::NOT_FOUND,
            RepositoryError::Faulty { .. } | RepositoryError::TooMany => StatusCode::BAD_REQUEST,
            RepositoryError::Io { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, why.to_string())
    }
}

/// Runs file-system work off the async threads.
pub(crate) async fn on_disk<T: Send + 'static>(
    repository: &Arc<Repository>,
    work: impl FnOnce(&Repository) -> Result<T, RepositoryError> + Send + 'static,
) -> Result<T, Refusal> {
    let repository = repository.clone();
    let done = tokio::task::spawn_blocking(move || work(&repository)).await;
    let done = done.map_err(|why| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why.to_string()))?;
    Ok(done?)
}

/// `POST /v2/repository/models/NAME/load`: answers when the load has ended.
pub(crate) async fn load(server: &Arc<Server>, name: &str) -> Result<Reply, Refusal> {
    let mut work = server.counters.wait();
    let done = load_and_wait(server, name).await;
    work.done();
    done
}

async fn load_and_wait(server: &Arc<Server>, name: &str) -> Result<Reply, Refusal> {
    let owned = name.to_owned();
    let models = on_disk(&server.repository, move |repository| repository.read(&owned)).await?;
    let begin = server.shelf.lock().begin(name, models);
    let (mut waiter, mut owner) = match begin {
        Begin::Held => return Ok(empty()),
        Begin::Joined(waiter) => (waiter, None),
        Begin::NoRoom { needs, free } => {
            server.counters.refused();
            return Err(no_room(name, needs, free));
        }
        Begin::Started { id, time, waiter } => {
            carry_out(server, name, id, time.unwrap_or(server.load_time), waiter.clone());
            let owner =
                server.loads_end_with_client.then(|| Owner { server: server.clone(), name: name.to_owned(), id });
            (waiter, owner)
        }
    };
    let outcome = waiter.wait_for(Option::is_some).await.map(|outcome| outcome.clone());
    // The load has ended: dropping the owner finds nothing left to cancel.
    owner.take();
    match outcome {
        Ok(None | Some(Outcome::Loaded)) => Ok(empty()),
        Ok(Some(Outcome::Failed(why))) => Err(Refusal::bad_request(format!("failed to load '{name}', {why}"))),
        Err(_) => Err(Refusal::bad_request(format!("failed to load '{name}', load cancelled"))),
    }
}

fn no_room(name: &str, needs: Bytes, free: Bytes) -> Refusal {
    let text = format!("failed to load '{name}', does not fit: needs {needs}, {free} free");
    Refusal::new(StatusCode::INSUFFICIENT_STORAGE, text)
}

/// Cancels a load when the request that began it is dropped.
struct Owner {
    server: Arc<Server>,
    name: String,
    id: u64,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.server.shelf.lock().cancel(&self.name, self.id);
    }
}

fn carry_out(server: &Arc<Server>, name: &str, id: u64, time: Duration, waiter: Waiter) {
    let plan = server.injector.lock().load();
    let count = server.counters.load();
    let (shelf, name) = (server.shelf.clone(), name.to_owned());
    let mut tasks = server.tasks.lock();
    reap(&mut tasks);
    tasks.spawn(async move {
        tokio::select! {
            () = take_time(&plan, time) => {}
            () = cancelled(waiter) => return,
        }
        let outcome = if let LoadPlan::Fail(why) = plan { Outcome::Failed(why) } else { Outcome::Loaded };
        let failed = outcome != Outcome::Loaded;
        // Counted under the shelf's lock: whoever hears of the end finds it counted.
        let mut shelf = shelf.lock();
        if shelf.finish(&name, id, outcome) {
            if failed { count.failed() } else { count.finished() }
        }
    });
}

async fn take_time(plan: &LoadPlan, time: Duration) {
    if *plan == LoadPlan::Hang {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(time).await;
}

async fn cancelled(mut waiter: Waiter) {
    // Either way the load is over for the shelf, and the task with it.
    let _ = waiter.wait_for(Option::is_some).await;
}

/// Forgets tasks that have ended, so that the set is as large as the loads under way.
fn reap(tasks: &mut JoinSet<()>) {
    while tasks.try_join_next().is_some() {}
}

/// `POST /v2/repository/models/NAME/unload`.
pub(crate) fn unload(server: &Server, name: &str) -> Result<Reply, Refusal> {
    let Some((dropped, _)) = server.shelf.lock().unload(name) else {
        return Err(Refusal::new(StatusCode::NOT_FOUND, format!("Model {name} not found")));
    };
    if dropped > 0 {
        server.counters.unload();
    }
    Ok(empty())
}

/// Puts on the shelf what is to be held from the start. It takes no time: a server is announced when it holds it.
pub(crate) fn preload(server: &Server, wishes: &[Wish], all: bool) -> Result<(), Error> {
    let names =
        server.repository.index()?.into_iter().filter(|_| all).map(|entry| Wish { name: entry.name, version: None });
    let mut wishes: Vec<Wish> = names.chain(wishes.iter().cloned()).collect();
    wishes.dedup();
    for (name, models) in gather(server, &wishes)? {
        let begin = server.shelf.lock().begin(&name, models);
        match begin {
            Begin::Started { id, .. } => {
                server.shelf.lock().finish(&name, id, Outcome::Loaded);
            }
            Begin::NoRoom { needs, free } => return Err(Error::DoesNotFit { name, needs, free }),
            Begin::Held | Begin::Joined(_) => {}
        }
    }
    Ok(())
}

/// Reads the wished versions, by name: two wishes for versions of one name are one load of both.
fn gather(server: &Server, wishes: &[Wish]) -> Result<Vec<(String, Vec<Model>)>, Error> {
    let mut batches: Vec<(String, Vec<Model>)> = Vec::new();
    for wish in wishes {
        let (name, models) = read_wish(server, wish)?;
        let at = batches.iter().position(|(known, _)| *known == name).unwrap_or(batches.len());
        if at == batches.len() {
            batches.push((name, Vec::new()));
        }
        if let Some((_, batch)) = batches.get_mut(at) {
            batch.extend(
                models.into_iter().filter(|model| wish.version.as_deref().is_none_or(|v| v == model.version.as_str())),
            );
            batch.sort_by(|a, b| a.version.cmp(&b.version));
            batch.dedup_by(|a, b| a.version == b.version);
        }
    }
    Ok(batches)
}

/// With a name per version, `screen:1` may stand for the folder `screen-1`.
fn read_wish(server: &Server, wish: &Wish) -> Result<(String, Vec<Model>), Error> {
    let holds = |models: &[Model]| {
        wish.version.as_deref().is_none_or(|version| models.iter().any(|model| model.version.as_str() == version))
    };
    let alias = match (&wish.version, server.repository.layout()) {
        (Some(version), Layout::Names) => Some(format!("{}-{version}", wish.name)),
        _ => None,
    };
    let missing = || {
        RepositoryError::Unknown(
            wish.name.clone() + wish.version.as_ref().map(|v| format!(":{v}")).as_deref().unwrap_or(""),
        )
    };
    for name in [Some(wish.name.clone()), alias].into_iter().flatten() {
        match server.repository.read(&name) {
            Ok(models) if holds(&models) => return Ok((name, models)),
            Ok(_) | Err(RepositoryError::Unknown(_)) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Err(missing().into())
}
