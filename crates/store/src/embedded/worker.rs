//! Threads for blocking work: a bounded queue each, and calls that end by their deadline whatever the disk does.

use crate::error::{Applied, Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

type Job<C> = Box<dyn FnOnce(&C) + Send>;

const WAITING: u8 = 0;
const STARTED: u8 = 1;
const WITHDRAWN: u8 = 2;

/// Whether a call writes: then a deadline that passes in its middle leaves its outcome open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Read,
    Write,
}

/// One thread that works through a queue of jobs over a shared context.
#[derive(Debug)]
pub(crate) struct Worker<C> {
    queue: Mutex<Option<SyncSender<Job<C>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    bound: usize,
}

impl<C: Send + Sync + 'static> Worker<C> {
    pub(crate) fn start(name: &str, bound: usize, context: Arc<C>) -> Result<Self> {
        let (queue, jobs) = sync_channel::<Job<C>>(bound);
        let run = move || work(&jobs, &*context);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.map_err(|e| Error::backend(format!("cannot start a thread: {e}")))?;
        Ok(Self { queue: Mutex::new(Some(queue)), thread: Mutex::new(Some(thread)), bound })
    }

    /// Runs a job and waits for its answer until the deadline. A job that has not begun by then, or whose caller has left, never runs.
    pub(crate) async fn call<T, F>(&self, deadline: Duration, work: Work, job: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&C) -> Result<T> + Send + 'static,
    {
        let ticket = Ticket(Arc::new(AtomicU8::new(WAITING)));
        let (reply, answer) = oneshot::channel();
        let started = Arc::clone(&ticket.0);
        let boxed: Job<C> = Box::new(move |context| {
            if started.compare_exchange(WAITING, STARTED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                // Nobody waits any more: the caller's deadline has told them that the outcome is open.
                let _ = reply.send(job(context));
            }
        });
        self.send(boxed)?;
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(Error::Closed),
            Err(_) => {
                let open = !ticket.withdraw() && work == Work::Write;
                let applied = if open { Applied::Maybe } else { Applied::No };
                Err(Error::Timeout { ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX), applied })
            }
        }
    }

    fn send(&self, job: Job<C>) -> Result<()> {
        match self.queue.lock().as_ref().map(|queue| queue.try_send(job)) {
            Some(Ok(())) => Ok(()),
            Some(Err(TrySendError::Full(_))) => Err(Error::Overloaded { waiting: self.bound }),
            Some(Err(TrySendError::Disconnected(_))) | None => Err(Error::Closed),
        }
    }

    /// Takes no more jobs; gives the thread, to be joined where blocking is allowed. It ends when its queue is empty.
    pub(crate) fn close(&self) -> Option<JoinHandle<()>> {
        self.queue.lock().take();
        self.thread.lock().take()
    }
}

fn work<C>(jobs: &Receiver<Job<C>>, context: &C) {
    while let Ok(job) = jobs.recv() {
        job(context);
    }
}

struct Ticket(Arc<AtomicU8>);

impl Ticket {
    /// Whether the job will never run.
    fn withdraw(&self) -> bool {
        self.0.compare_exchange(WAITING, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.withdraw();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;

    /// A worker whose thread is held until the returned sender is dropped.
    async fn held(bound: usize) -> (Arc<Worker<AtomicUsize>>, mpsc::Sender<()>, tokio::task::JoinHandle<Result<()>>) {
        let worker = Arc::new(Worker::start("test", bound, Arc::new(AtomicUsize::new(0))).unwrap());
        let (hold, held) = mpsc::channel::<()>();
        let (begun, has_begun) = oneshot::channel();
        let first = Arc::clone(&worker);
        let task = tokio::spawn(async move {
            let job = move |_: &AtomicUsize| {
                let _ = begun.send(());
                let _ = held.recv();
                Ok(())
            };
            first.call(Duration::from_secs(30), Work::Write, job).await
        });
        has_begun.await.unwrap();
        (worker, hold, task)
    }

    fn count(context: &AtomicUsize) -> Result<usize> {
        Ok(context.fetch_add(1, Ordering::SeqCst) + 1)
    }

    #[tokio::test]
    async fn a_job_that_waited_too_long_never_runs() {
        let (worker, hold, task) = held(4).await;
        let late = worker.call(Duration::from_millis(20), Work::Write, count).await;
        assert!(matches!(late, Err(Error::Timeout { applied: Applied::No, .. })), "{late:?}");
        drop(hold);
        task.await.unwrap().unwrap();
        assert_eq!(worker.call(Duration::from_secs(5), Work::Read, count).await.unwrap(), 1, "the late job has run");
    }

    #[tokio::test]
    async fn a_write_that_began_has_an_open_outcome_and_a_read_has_not() {
        let worker = Worker::start("test", 4, Arc::new(())).unwrap();
        for (work, expected) in [(Work::Write, Applied::Maybe), (Work::Read, Applied::No)] {
            let (hold, held) = mpsc::channel::<()>();
            let job = move |(): &()| {
                let _ = held.recv();
                Ok(())
            };
            let late = worker.call(Duration::from_millis(50), work, job).await;
            assert_eq!(late.unwrap_err().applied(), expected);
            drop(hold);
        }
    }

    #[tokio::test]
    async fn a_full_queue_refuses_at_once() {
        let (worker, hold, task) = held(1).await;
        let second = Arc::clone(&worker);
        let second = tokio::spawn(async move { second.call(Duration::from_secs(5), Work::Read, count).await });
        holdfast_testkit::eventually("a full queue", Duration::from_secs(5), async || {
            let third = worker.call(Duration::from_millis(1), Work::Read, count).await;
            matches!(third, Err(Error::Overloaded { waiting: 1 })).then_some(())
        })
        .await;
        drop(hold);
        task.await.unwrap().unwrap();
        let _ = second.await.unwrap();
    }

    #[tokio::test]
    async fn a_closed_worker_says_so() {
        let worker = Worker::start("test", 1, Arc::new(AtomicUsize::new(0))).unwrap();
        worker.close().unwrap().join().unwrap();
        let refused = worker.call(Duration::from_secs(1), Work::Read, count).await;
        assert!(matches!(refused, Err(Error::Closed)));
    }
}
