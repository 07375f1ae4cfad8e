//! A bounded buffer between threads that must not block and one thread that may.
//!
//! A push is one short critical section: append to a vector, no allocation once it has grown. The writer takes the whole vector at once. It
//! is woken only for the first item after it went idle, and then lingers, so that under load there are few wake-ups and large batches: a
//! wake-up for every item would cost the pushing thread more than the item itself. An item that finds the buffer full is dropped and counted.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::metric::Counter;

/// What the writer thread does with what it takes.
pub(crate) trait Drain<T>: Send + 'static {
    /// Disposes of a batch; may block. What it leaves in `batch` is thrown away.
    fn write(&mut self, batch: &mut Vec<T>);

    /// Someone called [`Spool::poke`] since the last batch.
    fn poked(&mut self) {}
}

/// How the writer behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpoolOptions {
    pub(crate) name: &'static str,
    pub(crate) most: usize,
    /// How long the writer waits for company after the first item. Ended early when the buffer is half full.
    pub(crate) linger: Duration,
}

/// What a shutdown achieved within its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Everything queued was given to the sink.
    All,
    /// The bound passed first: what was queued, or being written, may be lost.
    TimedOut,
}

#[derive(Debug)]
struct State<T> {
    items: Vec<T>,
    /// The writer waits for a first item, so a push has to wake it.
    idle: bool,
    poked: bool,
    closing: bool,
    finished: bool,
}

#[derive(Debug)]
struct Shared<T> {
    options: SpoolOptions,
    dropped: Counter,
    state: Mutex<State<T>>,
    to_writer: Condvar,
    finished: Condvar,
}

/// The pushing side. Cheap to clone.
#[derive(Debug)]
pub(crate) struct Spool<T>(Arc<Shared<T>>);

impl<T> Clone for Spool<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Send + 'static> Spool<T> {
    /// Starts the writer thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(options: SpoolOptions, dropped: Counter, drain: impl Drain<T>) -> io::Result<Self> {
        let state = State { items: Vec::new(), idle: false, poked: false, closing: false, finished: false };
        let spool = Self(Arc::new(Shared {
            options,
            dropped,
            state: Mutex::new(state),
            to_writer: Condvar::new(),
            finished: Condvar::new(),
        }));
        let shared = Arc::clone(&spool.0);
        thread::Builder::new().name(options.name.to_owned()).spawn(move || shared.run(drain))?;
        Ok(spool)
    }

    /// Queues an item, or drops and counts it.
    pub(crate) fn push(&self, item: T) {
        let shared = &*self.0;
        let mut state = shared.state.lock();
        if state.items.len() >= shared.options.most || state.closing {
            drop(state);
            shared.dropped.inc();
            return;
        }
        state.items.push(item);
        let wake = state.idle || state.items.len() == shared.half();
        state.idle = false;
        drop(state);
        if wake {
            shared.to_writer.notify_one();
        }
    }

    /// Has the writer call [`Drain::poked`] soon.
    pub(crate) fn poke(&self) {
        self.0.state.lock().poked = true;
        self.0.to_writer.notify_one();
    }

    /// Refuses further items and waits until those queued are written, for at most `bound`.
    pub(crate) fn shutdown(&self, bound: Duration) -> Flushed {
        let deadline = Instant::now().checked_add(bound);
        let mut state = self.0.state.lock();
        state.closing = true;
        self.0.to_writer.notify_one();
        while !state.finished {
            let Some(deadline) = deadline else {
                self.0.finished.wait(&mut state);
                continue;
            };
            if self.0.finished.wait_until(&mut state, deadline).timed_out() && !state.finished {
                return Flushed::TimedOut;
            }
        }
        Flushed::All
    }
}

impl<T> Shared<T> {
    const fn half(&self) -> usize {
        self.options.most.div_ceil(2)
    }

    fn run(&self, mut drain: impl Drain<T>) {
        let mut batch = Vec::new();
        loop {
            let (poked, last) = self.take(&mut batch);
            if poked {
                drain.poked();
            }
            if !batch.is_empty() {
                drain.write(&mut batch);
            }
            batch.clear();
            if last {
                break;
            }
        }
        self.state.lock().finished = true;
        self.finished.notify_all();
    }

    /// Waits for items and swaps them into `batch`. Returns whether someone poked, and whether this is the last batch.
    fn take(&self, batch: &mut Vec<T>) -> (bool, bool) {
        let mut state = self.state.lock();
        while state.items.is_empty() && !state.closing && !state.poked {
            state.idle = true;
            self.to_writer.wait(&mut state);
        }
        state.idle = false;
        let deadline = Instant::now() + self.options.linger;
        while state.items.len() < self.half() && !state.closing && !state.poked {
            if self.to_writer.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        std::mem::swap(&mut state.items, batch);
        (std::mem::take(&mut state.poked), state.closing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    const LONG: Duration = Duration::from_secs(60);

    /// Tells when it was handed a batch, and goes on only when it is told to.
    struct Gate {
        arrived: SyncSender<Vec<u32>>,
        go: Receiver<()>,
    }

    impl Drain<u32> for Gate {
        fn write(&mut self, batch: &mut Vec<u32>) {
            let _ = self.arrived.send(std::mem::take(batch));
            let _ = self.go.recv();
        }
    }

    fn gated(most: usize, linger: Duration) -> (Spool<u32>, Counter, Receiver<Vec<u32>>, SyncSender<()>) {
        let (arrived, arrivals) = sync_channel(64);
        let (go, gone) = sync_channel(64);
        let dropped = Counter::default();
        let options = SpoolOptions { name: "test", most, linger };
        let spool = Spool::start(options, dropped.clone(), Gate { arrived, go: gone }).unwrap();
        (spool, dropped, arrivals, go)
    }

    #[test]
    fn a_full_buffer_drops_and_counts_and_recovers() {
        let (spool, dropped, arrivals, go) = gated(4, Duration::ZERO);
        spool.push(0);
        assert_eq!(arrivals.recv().unwrap(), [0]);
        // The writer is stuck with item 0: four more fit, the rest is dropped, and no push waits.
        (1..=10).for_each(|i| spool.push(i));
        assert_eq!(dropped.get(), 6);
        go.send(()).unwrap();
        assert_eq!(arrivals.recv().unwrap(), [1, 2, 3, 4]);
        spool.push(11);
        go.send(()).unwrap();
        assert_eq!(arrivals.recv().unwrap(), [11], "it recovers by itself");
        go.send(()).unwrap();
        assert_eq!(spool.shutdown(LONG), Flushed::All);
        assert_eq!(dropped.get(), 6);
    }

    #[test]
    fn the_shutdown_is_bounded_and_refuses_new_items() {
        let (spool, dropped, arrivals, go) = gated(4, Duration::ZERO);
        spool.push(0);
        arrivals.recv().unwrap();
        assert_eq!(spool.shutdown(Duration::from_millis(1)), Flushed::TimedOut);
        spool.push(1);
        assert_eq!(dropped.get(), 1);
        go.send(()).unwrap();
        assert_eq!(spool.shutdown(LONG), Flushed::All);
    }

    #[test]
    fn a_shutdown_does_not_wait_for_company() {
        let (spool, _, arrivals, go) = gated(100, LONG);
        spool.push(0);
        go.send(()).unwrap();
        assert_eq!(spool.shutdown(LONG * 60), Flushed::All);
        assert_eq!(arrivals.recv().unwrap(), [0]);
    }

    #[test]
    fn half_a_buffer_ends_the_wait_for_company() {
        let (spool, _, arrivals, go) = gated(8, LONG * 60);
        (0..4).for_each(|i| spool.push(i));
        assert_eq!(arrivals.recv().unwrap(), [0, 1, 2, 3]);
        go.send(()).unwrap();
        assert_eq!(spool.shutdown(LONG), Flushed::All);
    }

    #[test]
    fn many_threads_lose_nothing_that_fits() {
        struct Sum(Arc<Mutex<(u64, u64)>>);
        impl Drain<u32> for Sum {
            fn write(&mut self, batch: &mut Vec<u32>) {
                let mut sum = self.0.lock();
                sum.0 += batch.len() as u64;
                sum.1 += batch.iter().map(|i| u64::from(*i)).sum::<u64>();
            }
        }
        let sum = Arc::new(Mutex::new((0, 0)));
        let options = SpoolOptions { name: "test", most: 40_000, linger: Duration::from_millis(1) };
        let spool = Spool::start(options, Counter::default(), Sum(Arc::clone(&sum))).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|i| spool.push(i)));
            }
        });
        assert_eq!(spool.shutdown(LONG), Flushed::All);
        assert_eq!(*sum.lock(), (40_000, 4 * (0..10_000).sum::<u64>()));
    }
}
