//! Turns at a bounded number of things, with a bound that may change while they are taken.
//!
//! A semaphore forgets only turns that are free. Those that are taken while the bound is lowered below their number are a debt, paid as they are
//! given back. So free and taken turns together are always the bound and the debt.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst, fence};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// See the module.
#[derive(Debug)]
pub(crate) struct Turns {
    free: Semaphore,
    /// The bound. Locked while the debt changes.
    most: Mutex<usize>,
    /// Turns that are to be forgotten and could not be yet.
    debt: AtomicUsize,
}

/// One turn, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Turns>);

impl Turns {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { free: Semaphore::new(most), most: Mutex::new(most), debt: AtomicUsize::new(0) })
    }

    /// The bound.
    pub(crate) fn most(&self) -> usize {
        *self.most.lock()
    }

    /// Sets another bound. Turns that are taken stay taken.
    pub(crate) fn set_most(&self, most: usize) {
        let mut bound = self.most.lock();
        let before = std::mem::replace(&mut *bound, most);
        if most >= before {
            let paid = self.debt.load(SeqCst).min(most - before);
            self.debt.fetch_sub(paid, SeqCst);
            self.free.add_permits(most - before - paid);
        } else {
            // First the debt is seen, then free turns are looked for; who gives back does it the other way round. One of the two sees the other.
            self.debt.fetch_add(before - most, SeqCst);
            self.pay();
        }
    }

    /// Pays with free turns. To be called with the bound locked.
    fn pay(&self) {
        fence(SeqCst);
        let paid = self.free.forget_permits(self.debt.load(SeqCst));
        self.debt.fetch_sub(paid, SeqCst);
    }

    /// Pays what free turns can pay, if there is a debt: where a turn may have become free past it.
    pub(crate) fn settle(&self) {
        fence(SeqCst);
        if self.debt.load(SeqCst) > 0 {
            let _bound = self.most.lock();
            self.pay();
        }
    }

    /// Whether a turn is free.
    pub(crate) fn is_free(&self) -> bool {
        self.free.available_permits() > 0
    }

    /// A turn, if one is free.
    pub(crate) fn try_take(self: &Arc<Self>) -> Option<Turn> {
        self.free.try_acquire().ok()?.forget();
        Some(Turn(self.clone()))
    }

    /// Waits for a turn, in order. None never comes: the semaphore is not closed.
    ///
    /// # Cancel safety
    /// Cancel safe, but a turn that was just given to who leaves becomes free past a debt: [`Turns::settle`] is to follow.
    pub(crate) async fn take(self: &Arc<Self>) -> Option<Turn> {
        self.free.acquire().await.ok()?.forget();
        Some(Turn(self.clone()))
    }

    /// Whether this turn pays the debt by not coming back.
    fn pays(&self) -> bool {
        if self.debt.load(SeqCst) == 0 {
            return false;
        }
        let _bound = self.most.lock();
        self.debt.fetch_update(SeqCst, SeqCst, |debt| debt.checked_sub(1)).is_ok()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.0.pays() {
            self.0.free.add_permits(1);
            self.0.settle();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many as can be taken now.
    fn take_all(turns: &Arc<Turns>) -> Vec<Turn> {
        std::iter::from_fn(|| turns.try_take()).collect()
    }

    #[test]
    fn a_bound_lowered_under_load_and_raised_again_is_still_the_bound() {
        let turns = Turns::new(8);
        for round in 0..1000 {
            let taken = take_all(&turns);
            assert_eq!(taken.len(), 8, "round {round}");
            turns.set_most(2);
            turns.set_most(5);
            turns.set_most(1);
            assert!(!turns.is_free());
            let mut taken = taken.into_iter();
            taken.by_ref().take(round % 8).for_each(drop);
            assert!(!turns.is_free(), "one at least is still taken, and one is the bound");
            turns.set_most(8);
            assert_eq!(take_all(&turns).len(), round % 8, "what has been given back, round {round}");
        }
    }

    #[test]
    fn turns_given_back_pay_before_anybody_has_them() {
        let turns = Turns::new(4);
        let mut taken = take_all(&turns);
        turns.set_most(2);
        for left in [3, 2] {
            taken.pop();
            assert!(!turns.is_free(), "{left} are taken of 2");
        }
        taken.pop();
        assert!(turns.is_free() && take_all(&turns).len() == 1);
        drop(taken);
        assert_eq!(take_all(&turns).len(), 2);
    }

    #[test]
    fn many_at_once_end_at_the_bound() {
        let turns = Turns::new(6);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        drop((turns.try_take(), turns.try_take()));
                    }
                });
            }
            for n in 0..5000 {
                turns.set_most(1 + n % 7);
            }
            turns.set_most(3);
        });
        assert_eq!(turns.debt.load(SeqCst), 0);
        assert_eq!(take_all(&turns).len(), 3);
    }

    #[tokio::test]
    async fn who_leaves_while_waiting_leaves_no_turn_behind() {
        let turns = Turns::new(1);
        for _ in 0..100 {
            turns.set_most(2);
            let mut taken = take_all(&turns);
            let mut waiting = Box::pin(turns.take());
            assert!(futures_poll(waiting.as_mut()).await.is_none());
            // The one that waits has it now, does not know it, and leaves after the bound was lowered.
            taken.pop();
            turns.set_most(1);
            drop(waiting);
            turns.settle();
            assert!(!turns.is_free());
            drop(taken);
            assert_eq!(take_all(&turns).len(), 1);
        }
    }

    async fn futures_poll<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        std::future::poll_fn(|cx| {
            std::task::Poll::Ready(match future.as_mut().poll(cx) {
                std::task::Poll::Ready(out) => Some(out),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }
}
