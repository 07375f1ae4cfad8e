//! Tasks that somebody waits for. Every task of the product is spawned through one of these, so that a shutdown knows what is left.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

#[derive(Debug, Default)]
struct Shared {
    running: AtomicUsize,
    ended: Notify,
}

/// A group of tasks on one runtime. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tasks {
    runtime: Handle,
    shared: Arc<Shared>,
}

struct Running(Arc<Shared>);

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.ended.notify_waiters();
        }
    }
}

impl Tasks {
    /// A group whose tasks run on this runtime.
    #[must_use]
    pub fn new(runtime: Handle) -> Self {
        Self { runtime, shared: Arc::default() }
    }

    /// Runs a future as a task of the group. It is counted until it ends or its runtime drops it.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.shared.running.fetch_add(1, Ordering::AcqRel);
        let running = Running(self.shared.clone());
        drop(self.runtime.spawn(async move {
            let _running = running;
            task.await;
        }));
    }

    /// How many tasks have not ended.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.running.load(Ordering::Acquire)
    }

    /// Waits until all tasks have ended, at most this long. True if they have.
    ///
    /// Cancel safe.
    pub async fn ended(&self, most: Duration) -> bool {
        let all = async {
            loop {
                let ended = self.shared.ended.notified();
                if self.running() == 0 {
                    return;
                }
                ended.await;
            }
        };
        tokio::time::timeout(most, all).await.is_ok()
    }
}
