//! A bounded buffer between threads that must not block and one thread that may.
//!
//! Each worker pushes into a part of its own: one short critical section that nobody but the writer enters, an append to a vector without an
//! allocation once it has grown. The writer takes each part's whole vector at once. It is woken only for the first item after it went idle, and
//! then lingers, so that under load there are few wake-ups and large batches: a wake-up for every item would cost the pushing thread more than the
//! item itself. An item that finds its part full is dropped and counted.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
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

    /// Every part has been looked into once. `last`: nothing comes after this.
    fn rounded(&mut self, last: bool) {
        let _ = last;
    }
}

/// How the writer behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpoolOptions {
    pub(crate) name: &'static str,
    /// How many parts there are, at least one: threads that share a part keep the order of their items, and wait for each other.
    pub(crate) parts: usize,
    /// The most items that wait in each part.
    pub(crate) most: usize,
    /// How long the writer waits for company after the first item. Ended early when a part is half full.
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

thread_local! {
    static PART: Cell<usize> = const { Cell::new(0) };
}

/// Gives this thread a part of its own in every spool that has as many. A thread that is given none uses the first.
pub fn use_part(number: usize) {
    PART.set(number);
}

/// The part that this thread was given, or the first.
#[must_use]
pub fn part() -> usize {
    PART.get()
}

/// What one thread pushes into. On cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Part<T>(Mutex<Waiting<T>>);

#[derive(Debug)]
struct Waiting<T> {
    items: Vec<T>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Control {
    /// A part is half full.
    full: bool,
    poked: bool,
    closing: bool,
    finished: bool,
}

#[derive(Debug)]
struct Shared<T> {
    options: SpoolOptions,
    dropped: Counter,
    parts: Box<[Part<T>]>,
    /// The writer waits for a first item, so a push has to wake it. The writer sets this before it looks into the parts for the last time, and a
    /// push looks at it after it has left its part: one of the two sees the other.
    idle: AtomicBool,
    control: Mutex<Control>,
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
    /// There is no thread to be had.
    pub(crate) fn start(options: SpoolOptions, dropped: Counter, drain: impl Drain<T>) -> io::Result<Self> {
        let part = || Part(Mutex::new(Waiting { items: Vec::new(), closed: false }));
        let parts = std::iter::repeat_with(part).take(options.parts.max(1)).collect();
        let (idle, control) = (AtomicBool::new(false), Mutex::default());
        let (to_writer, finished) = (Condvar::new(), Condvar::new());
        let spool = Self(Arc::new(Shared { options, dropped, parts, idle, control, to_writer, finished }));
        let shared = Arc::clone(&spool.0);
        thread::Builder::new().name(options.name.to_owned()).spawn(move || shared.run(drain))?;
        Ok(spool)
    }

    /// Queues an item, or drops and counts it.
    pub(crate) fn push(&self, item: T) {
        let shared = &*self.0;
        let Some(Part(part)) = shared.parts.get(PART.get() % shared.parts.len()) else { return };
        let mut waiting = part.lock();
        if waiting.items.len() >= shared.options.most || waiting.closed {
            drop(waiting);
            shared.dropped.inc();
            return;
        }
        waiting.items.push(item);
        let half = waiting.items.len() == shared.half();
        drop(waiting);
        if half || (shared.idle.load(Relaxed) && shared.idle.swap(false, Relaxed)) {
            shared.control.lock().full |= half;
            shared.to_writer.notify_one();
        }
    }

    /// Has the writer call [`Drain::poked`] soon.
    pub(crate) fn poke(&self) {
        self.0.control.lock().poked = true;
        self.0.to_writer.notify_one();
    }

    /// Refuses further items and waits until those queued are written, for at most `bound`.
    pub(crate) fn shutdown(&self, bound: Duration) -> Flushed {
        let deadline = Instant::now().checked_add(bound);
        for Part(part) in &self.0.parts {
            part.lock().closed = true;
        }
        let mut control = self.0.control.lock();
        control.closing = true;
        self.0.to_writer.notify_one();
        while !control.finished {
            let Some(deadline) = deadline else {
                self.0.finished.wait(&mut control);
                continue;
            };
            if self.0.finished.wait_until(&mut control, deadline).timed_out() && !control.finished {
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
            let (poked, last) = self.wait();
            if poked {
                drain.poked();
            }
            for Part(part) in &self.parts {
                std::mem::swap(&mut part.lock().items, &mut batch);
                if !batch.is_empty() {
                    drain.write(&mut batch);
                }
                batch.clear();
            }
            drain.rounded(last);
            if last {
                break;
            }
        }
        // First: whoever waits for the end may open the same files.
        drop(drain);
        self.control.lock().finished = true;
        self.finished.notify_all();
    }

    /// Waits until it is time to look into the parts. Returns whether someone poked, and whether it is the last time.
    fn wait(&self) -> (bool, bool) {
        let mut control = self.control.lock();
        while !control.closing && !control.poked {
            self.idle.store(true, Relaxed);
            if self.parts.iter().any(|Part(part)| !part.lock().items.is_empty()) {
                break;
            }
            self.to_writer.wait(&mut control);
        }
        self.idle.store(false, Relaxed);
        let deadline = Instant::now() + self.options.linger;
        while !control.full && !control.closing && !control.poked {
            if self.to_writer.wait_until(&mut control, deadline).timed_out() {
                break;
            }
        }
        control.full = false;
        (std::mem::take(&mut control.poked), control.closing)
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
        let options = SpoolOptions { name: "test", parts: 1, most, linger };
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
        for parts in [1, 2, 4] {
            let sum = Arc::new(Mutex::new((0, 0)));
            let options = SpoolOptions { name: "test", parts, most: 40_000, linger: Duration::from_millis(1) };
            let spool = Spool::start(options, Counter::default(), Sum(Arc::clone(&sum))).unwrap();
            thread::scope(|scope| {
                for worker in 0..4 {
                    let spool = &spool;
                    scope.spawn(move || {
                        use_part(worker);
                        (0..10_000).for_each(|i| spool.push(i));
                    });
                }
            });
            assert_eq!(spool.shutdown(LONG), Flushed::All);
            assert_eq!(*sum.lock(), (40_000, 4 * (0..10_000).sum::<u64>()), "{parts} parts");
        }
    }

    #[test]
    fn each_worker_has_its_own_room_and_a_full_one_costs_the_others_nothing() {
        let (arrived, arrivals) = sync_channel(64);
        let (go, gone) = sync_channel(64);
        let dropped = Counter::default();
        let options = SpoolOptions { name: "test", parts: 2, most: 2, linger: Duration::ZERO };
        let spool = Spool::start(options, dropped.clone(), Gate { arrived, go: gone }).unwrap();
        let as_worker = |number: usize, items: &[u32]| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    use_part(number);
                    items.iter().for_each(|i| spool.push(*i));
                });
            });
        };
        as_worker(1, &[0]);
        assert_eq!(arrivals.recv().unwrap(), [0]);
        // The writer is stuck.
        as_worker(1, &[1, 2, 3]);
        assert_eq!(dropped.get(), 1);
        as_worker(0, &[4, 5]);
        as_worker(2, &[6]);
        assert_eq!(dropped.get(), 2, "a third worker shares the first one's part, which is full");
        (0..4).for_each(|_| go.send(()).unwrap());
        assert_eq!((arrivals.recv().unwrap(), arrivals.recv().unwrap()), (vec![4, 5], vec![1, 2]));
        assert_eq!(spool.shutdown(LONG), Flushed::All);
        assert_eq!(dropped.get(), 2);
    }

    #[test]
    fn an_idle_writer_is_woken_by_any_worker() {
        let (arrived, arrivals) = sync_channel(64);
        let (go, gone) = sync_channel(64);
        let options = SpoolOptions { name: "test", parts: 3, most: 100, linger: Duration::ZERO };
        let spool = Spool::start(options, Counter::default(), Gate { arrived, go: gone }).unwrap();
        for round in 0..1_000 {
            use_part(round as usize);
            spool.push(round);
            go.send(()).unwrap();
            assert_eq!(arrivals.recv_timeout(LONG).unwrap(), [round]);
        }
        assert_eq!(spool.shutdown(LONG), Flushed::All);
    }
}
