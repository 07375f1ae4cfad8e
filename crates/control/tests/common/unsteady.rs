//! A store whose commits go wrong as a test says.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use holdfast_store::{Applied, Commit, Committed, Error, Fut, Layer, Store};

/// What becomes of a commit.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "each test program uses a part of it")]
pub enum Next {
    Through,
    /// It happens, and the answer is lost.
    LostAfter,
    /// It does not happen, and nobody knows.
    LostBefore,
    /// It does not happen.
    Down,
    /// Another one happens first.
    Meanwhile(Commit),
}

type Fate = Box<dyn FnMut() -> Next + Send>;

pub struct Unsteady {
    below: Arc<dyn Store>,
    fate: Mutex<Fate>,
    lost: AtomicU64,
}

#[allow(dead_code, reason = "each test program uses a part of it")]
impl Unsteady {
    /// Everything goes through, until something else is said.
    pub fn over(below: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { below, fate: Mutex::new(Box::new(|| Next::Through)), lost: AtomicU64::new(0) })
    }

    /// What becomes of the next commits; those after them go through.
    pub fn next(&self, next: impl IntoIterator<Item = Next>) {
        let mut next: VecDeque<Next> = next.into_iter().collect();
        self.fate(move || next.pop_front().unwrap_or(Next::Through));
    }

    /// What becomes of each commit from here on.
    pub fn fate(&self, fate: impl FnMut() -> Next + Send + 'static) {
        *self.fate.lock().unwrap() = Box::new(fate);
    }

    /// Commits whose author was not told that they went through.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn lose(&self, applied: Applied) -> Error {
        self.lost.fetch_add(1, Ordering::Relaxed);
        match applied {
            Applied::No => Error::Unavailable { what: "cut".to_owned(), applied },
            Applied::Maybe => Error::Timeout { ms: 1, applied },
        }
    }
}

impl Layer for Unsteady {
    fn below(&self) -> &dyn Store {
        &*self.below
    }

    fn pass_commit(&self, commit: Commit) -> Fut<'_, Committed> {
        let next = (*self.fate.lock().unwrap())();
        Box::pin(async move {
            match next {
                Next::Through => self.below.commit(commit).await,
                Next::LostAfter => self.below.commit(commit).await.and_then(|_| Err(self.lose(Applied::Maybe))),
                Next::LostBefore => Err(self.lose(Applied::Maybe)),
                Next::Down => Err(self.lose(Applied::No)),
                Next::Meanwhile(other) => {
                    self.below.commit(other).await.unwrap();
                    self.below.commit(commit).await
                }
            }
        })
    }
}
