#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use http_body_util::Empty;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::*;
use crate::{Bound, Connector, Target, Tasks};

const LONG: Duration = Duration::from_secs(30);

type Nothing = Empty<Bytes>;

/// A replica that only counts connections that end, and workers with a pool each under one bound.
struct World {
    bound: Arc<Bound<Nothing>>,
    workers: [Arc<ReplicaPool<Nothing>>; 2],
    ends: mpsc::UnboundedReceiver<()>,
}

impl World {
    async fn of(most: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (ended, ends) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let ended = ended.clone();
                tokio::spawn(async move {
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                    let _ = ended.send(());
                });
            }
        });
        let connector = Arc::new(Connector::new(Target::new("127.0.0.1", port)));
        let bound = Bound::new(most);
        let workers = [(); 2].map(|()| ReplicaPool::new(connector.clone(), &bound, Tasks::new(Handle::current())));
        Self { bound, workers, ends }
    }

    /// Has so many idle connections at a worker.
    async fn idle(&self, worker: &Arc<ReplicaPool<Nothing>>, count: usize) {
        let mut open = Vec::new();
        for _ in 0..count {
            open.push(worker.checkout(LONG, LONG).await.unwrap());
        }
        // Each connection's task has begun: one that has not is taken for no good one.
        tokio::task::yield_now().await;
        open.into_iter().for_each(|conn| conn.give_back());
    }
}

#[tokio::test]
async fn a_seat_counts_until_it_is_left_and_who_waits_has_it_then() {
    let world = World::of(2).await;
    let [worker, other] = &world.workers;
    let (first, second) = (worker.seat(LONG, LONG).await.unwrap(), other.seat(LONG, LONG).await.unwrap());
    assert_eq!((world.bound.open(), worker.has_turn()), (2, false), "requests find no turn either");
    let mut waits = Box::pin(worker.seat(LONG, LONG));
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(waits.as_mut().poll(cx).is_pending())).await);
    drop(first);
    let third = waits.await.unwrap();
    assert_eq!(world.bound.open(), 2);
    drop((second, third));
    assert_eq!((world.bound.open(), worker.has_turn()), (0, true));
}

#[tokio::test]
async fn one_idle_connection_is_closed_for_a_seat_and_no_second_one() {
    for [at_first, at_second] in [[2, 1], [1, 2], [0, 3], [3, 0]] {
        let mut world = World::of(3).await;
        let [worker, other] = world.workers.clone();
        world.idle(&worker, at_first).await;
        world.idle(&other, at_second).await;
        let seat = worker.seat(LONG, LONG).await.unwrap();
        world.ends.recv().await.unwrap();
        let take = |pool: &Arc<ReplicaPool<Nothing>>| std::iter::from_fn(|| pool.take_idle(LONG)).collect::<Vec<_>>();
        let left = [take(&worker), take(&other)];
        assert_eq!(left.iter().map(Vec::len).sum::<usize>(), 2, "two are as they were");
        assert_eq!((world.bound.open(), worker.has_turn()), (3, false));
        assert!(world.ends.try_recv().is_err(), "and none but the one was closed");
        drop(seat);
        assert_eq!(world.bound.open(), 2);
    }
}

#[tokio::test]
async fn who_leaves_while_waiting_takes_nothing_along() {
    let world = World::of(1).await;
    let [worker, _] = &world.workers;
    for _ in 0..50 {
        let seat = worker.seat(LONG, LONG).await.unwrap();
        let mut waits = Box::pin(worker.seat(LONG, LONG));
        assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(waits.as_mut().poll(cx).is_pending())).await);
        // The turn has come to who waits, does not know it, and leaves.
        drop(seat);
        drop(waits);
        assert_eq!((world.bound.open(), worker.has_turn()), (0, true));
    }
}

#[tokio::test]
async fn a_place_that_does_not_come_is_told_in_time_and_its_turn_goes_back() {
    let world = World::of(1).await;
    let [worker, _] = &world.workers;
    // A connection that is being closed and does not end: its place is taken, its turn is not.
    let closing = Place::take(&world.bound).unwrap();
    let told = worker.seat(LONG, Duration::from_millis(20)).await;
    assert!(matches!(&told, Err(Checkout::Connect(why)) if why.kind() == std::io::ErrorKind::TimedOut));
    assert!(worker.has_turn());
    drop(closing);
    drop(worker.seat(LONG, LONG).await.unwrap());
    assert_eq!(world.bound.open(), 0);
}
