//! Waiting with a deadline, where most of what is waited for is there already.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::time::{Instant, Sleep, sleep_until};

/// The deadline came first.
#[derive(Debug, PartialEq, Eq)]
pub struct Late;

/// What the future gives, if that is by the deadline. Unlike with tokio's `timeout_at` there is no timer before it is needed. A large future is better pinned
/// by the caller: there is room for it twice in this one.
///
/// # Errors
/// [`Late`].
pub async fn until<F: Future>(deadline: Instant, future: F) -> Result<F::Output, Late> {
    let mut future = pin!(future);
    let mut timer = pin!(None::<Sleep>);
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        if timer.is_none() {
            timer.set(Some(sleep_until(deadline)));
        }
        timer.as_mut().as_pin_mut().map_or(Poll::Pending, |timer| timer.poll(cx).map(|()| Err(Late)))
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn what_is_there_comes_also_when_it_is_late() {
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        assert_eq!(until(begun, async { 5 }).await, Ok(5), "there is no reason to throw it away");
        let slow = async |ms| sleep_until(after(ms)).await;
        assert_eq!(until(after(60_000), slow(10)).await, Ok(()));
        assert_eq!(until(after(30), slow(60_000)).await, Err(Late));
        assert!(begun.elapsed() >= Duration::from_millis(30));
        assert_eq!(until(begun, std::future::pending::<()>()).await, Err(Late), "a deadline that is past");
    }
}
