//! Waiting for a condition, with a deadline and a message.

use std::time::{Duration, Instant};

/// Time between two polls. The only short sleep of the kit.
const POLL: Duration = Duration::from_millis(10);

/// Calls `probe` until it answers `Some`, and returns that value.
///
/// `what` completes the sentence "timed out after 5s waiting for ...".
///
/// The future is not `Send` (an async closure borrows freely): await it in the test, not in a spawned task.
///
/// # Panics
/// When `timeout` passes first. A single probe that hangs is cut at the deadline too.
pub async fn eventually<T, F>(what: &str, timeout: Duration, probe: F) -> T
where
    F: AsyncFnMut() -> Option<T>,
{
    match try_eventually(timeout, probe).await {
        Some(value) => value,
        None => panic!("timed out after {timeout:?} waiting for {what}"),
    }
}

/// Like [`eventually`], but answers `None` at the deadline.
pub async fn try_eventually<T, F>(timeout: Duration, mut probe: F) -> Option<T>
where
    F: AsyncFnMut() -> Option<T>,
{
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if let Ok(Some(value)) = tokio::time::timeout(left, probe()).await {
            return Some(value);
        }
        if Instant::now() >= deadline {
            return None;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Checks `probe` all through `window` and panics the moment it answers `false`: for "this must not happen".
///
/// # Panics
/// When the condition does not hold at some poll.
pub async fn always<F>(what: &str, window: Duration, mut probe: F)
where
    F: AsyncFnMut() -> bool,
{
    let broken = try_eventually(window, async || (!probe().await).then_some(())).await;
    assert!(broken.is_none(), "did not hold for {window:?}: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn returns_the_first_value() {
        let mut polls = 0;
        let got = eventually("three polls", Duration::from_secs(5), async || {
            polls += 1;
            (polls == 3).then_some(polls)
        })
        .await;
        assert_eq!(got, 3);
    }

    #[tokio::test]
    async fn a_hanging_probe_is_cut_at_the_deadline() {
        let got: Option<()> = try_eventually(Duration::from_millis(30), async || std::future::pending().await).await;
        assert_eq!(got, None);
    }

    #[tokio::test]
    #[should_panic(expected = "waiting for the impossible")]
    async fn says_what_it_waited_for() {
        eventually("the impossible", Duration::from_millis(20), async || None::<()>).await;
    }
}
