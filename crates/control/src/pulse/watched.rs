//! A store, each of whose calls is noted.

use std::sync::Arc;

use holdfast_store::{Call, Commit, Committed, Fut, Layer, Store};

use super::{Pulse, Work};

/// See the module.
pub struct Watched {
    store: Arc<dyn Store>,
    pulse: Arc<Pulse>,
}

impl Watched {
    /// Notes in the pulse what becomes of the calls.
    #[must_use]
    pub fn over(store: Arc<dyn Store>, pulse: Arc<Pulse>) -> Arc<dyn Store> {
        Arc::new(Self { store, pulse })
    }
}

impl Layer for Watched {
    fn below(&self) -> &dyn Store {
        &*self.store
    }

    fn around<'a, T: 'a>(&'a self, call: Call, answer: Fut<'a, T>) -> Fut<'a, T> {
        let work = match call {
            Call::Read => Work::Read,
            Call::Write => Work::Write,
            // What keeps a backup from being written is most often where it is written to.
            Call::Beside => return answer,
        };
        Box::pin(async move {
            let outcome = answer.await;
            self.pulse.note(work, outcome.as_ref().err());
            outcome
        })
    }

    fn pass_commit(&self, commit: Commit) -> Fut<'_, Committed> {
        let answer = self.store.commit(commit);
        Box::pin(async move {
            let begun = (self.pulse.now)();
            let done = answer.await?;
            self.pulse.committed((self.pulse.now)().since(begun));
            Ok(done)
        })
    }
}
