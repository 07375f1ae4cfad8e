//! The deadlines of a client connection: what is over its time is asked to go, or ended.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use crate::conn::ConnState;
use crate::drain::Drain;
use crate::serve::ServeOptions;

/// Drives a connection and ends it when its time has come.
///
/// The timer is not touched for a request: it stands at the earliest moment at which something could be due, and what is due is worked out
/// when it fires. It is brought forward only when a head begins and does not end in the same read.
pub(crate) async fn keep<C, E>(
    mut conn: Pin<&mut C>,
    shut: impl Fn(Pin<&mut C>),
    options: &ServeOptions,
    mut drain: Drain,
    state: &ConnState,
    is_h1: bool,
) where
    C: Future<Output = Result<(), E>>,
{
    let seen = drain.clone();
    let mut draining = pin!(drain.wait());
    let now = Instant::now();
    let mut keeper = Keeper::new(options, state, is_h1, now);
    let mut timer = pin!(tokio::time::sleep_until(keeper.next_look(now, state.deadline(options.head, options.idle))));
    let mut first = true;
    poll_fn(|cx: &mut Context<'_>| {
        if conn.as_mut().poll(cx).is_ready() || state.is_gone() {
            return Poll::Ready(());
        }
        if first {
            // Registers this task with both; they wake it whichever poll came last.
            first = false;
            let _ = draining.as_mut().poll(cx);
            let _ = timer.as_mut().poll(cx);
        }
        while keeper.must_look(seen.started()) || timer.is_elapsed() {
            match keeper.look(Instant::now(), seen.started()) {
                Verdict::Kill => return Poll::Ready(()),
                Verdict::Shut(again) => {
                    shut(conn.as_mut());
                    timer.as_mut().reset(again);
                    if conn.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(());
                    }
                }
                Verdict::Wait(again) => timer.as_mut().reset(again),
            }
            let _ = timer.as_mut().poll(cx);
        }
        Poll::Pending
    })
    .await;
}

enum Verdict {
    /// End the connection now.
    Kill,
    /// Let the connection finish its requests and end; look again then.
    Shut(Instant),
    /// Look again then.
    Wait(Instant),
}

/// How long a connection whose requests are done may take to close.
const CLOSING: Duration = Duration::from_secs(5);

struct Keeper<'a> {
    options: &'a ServeOptions,
    state: &'a ConnState,
    is_h1: bool,
    drain_since: Option<Instant>,
    shut_since: Option<Instant>,
    armed_for_head: bool,
    /// How many writes there had been at the last look that found one more, and when that was.
    writes: u64,
    wrote_at: Instant,
    /// When the epoch of what is offered began.
    epoch_at: Instant,
}

impl<'a> Keeper<'a> {
    fn new(options: &'a ServeOptions, state: &'a ConnState, is_h1: bool, now: Instant) -> Self {
        let (drain_since, shut_since, armed_for_head) = (None, None, false);
        Self { options, state, is_h1, drain_since, shut_since, armed_for_head, writes: 0, wrote_at: now, epoch_at: now }
    }

    /// Whether something has happened that the timer does not know of.
    fn must_look(&self, draining: bool) -> bool {
        self.shut_since.is_none()
            && (self.state.is_refusal_due()
                || self.state.is_abusive()
                || (draining && self.drain_since.is_none())
                || (self.state.is_reading_head() && !self.armed_for_head))
    }

    fn look(&mut self, now: Instant, draining: bool) -> Verdict {
        if self.is_stalled(now) {
            return Verdict::Kill;
        }
        if let Some(since) = self.shut_since {
            let stuck = (self.state.active() == 0 || self.state.is_abusive()) && now >= since + CLOSING;
            return if stuck { Verdict::Kill } else { Verdict::Wait(now + CLOSING) };
        }
        self.armed_for_head = self.state.is_reading_head();
        if draining && self.drain_since.is_none() {
            self.drain_since = Some(now);
            self.state.set_closing();
        }
        let quiet = self.state.deadline(self.options.head, self.options.idle);
        let quiet = match self.drain_since {
            // A connection without a request is kept for the grace only.
            Some(since) if self.state.active() == 0 => quiet.map(|at| at.min(since + self.options.drain_grace)),
            _ => quiet,
        };
        let too_old = self.options.max_age.is_some_and(|most| self.state.age() >= most);
        if too_old {
            // In HTTP/1.1 the next answer says so: a request may be on its way.
            self.state.set_closing();
        }
        let leave = self.state.is_refusal_due()
            || self.state.is_abusive()
            || (!self.is_h1 && (too_old || self.drain_since.is_some()));
        match quiet {
            // In the middle of a head there is nothing to finish.
            Some(at) if at <= now && self.armed_for_head => Verdict::Kill,
            Some(at) if at <= now => self.shut(now),
            _ if leave => self.shut(now),
            _ => Verdict::Wait(self.next_look(now, quiet)),
        }
    }

    /// Whether the socket takes nothing because the client reads nothing. Seen from one look to the next, so it may take twice the time.
    fn is_stalled(&mut self, now: Instant) -> bool {
        let writes = self.state.writes();
        if writes != self.writes || !self.state.is_blocked() {
            (self.writes, self.wrote_at) = (writes, now);
        }
        now >= self.wrote_at + self.options.idle || self.is_refused_a_piece(now)
    }

    /// Whether some stream's client opens no window for a piece that is there. Like the socket, looked at from one look to the next.
    fn is_refused_a_piece(&mut self, now: Instant) -> bool {
        if self.is_h1 || now < self.epoch_at + self.options.idle {
            return false;
        }
        self.epoch_at = now;
        !self.state.next_epoch()
    }

    fn shut(&mut self, now: Instant) -> Verdict {
        self.shut_since = Some(now);
        Verdict::Shut(now + CLOSING)
    }

    fn next_look(&self, now: Instant, quiet: Option<Instant>) -> Instant {
        // While a request is being answered nothing is due, but its end may make the grace of a drain due.
        let idle = quiet.unwrap_or(now + self.drain_since.map_or(self.options.idle, |_| Duration::from_millis(100)));
        let young = self.options.max_age.filter(|_| !self.state.is_closing());
        let age = young.map(|most| now + most.saturating_sub(self.state.age()));
        age.map_or(idle, |at| idle.min(at))
    }
}
