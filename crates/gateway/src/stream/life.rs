//! Whether a client still lives, and whether it keeps its pings within bounds. Pure: the time is an argument.

use std::time::Duration;

use holdfast_types::Mono;

/// Control frames that one peer may send in a span: they cost it little.
const CONTROLS: u32 = 100;
const CONTROLS_SPAN: Duration = Duration::from_secs(10);

/// See the module.
pub struct Life {
    heard: Mono,
    is_pinged: bool,
    /// When credentials are checked again.
    check: Mono,
    controls: (Mono, u32),
}

/// What is to be done about a silent client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Nothing.
    None,
    /// It is asked.
    Ping,
    /// It is gone.
    Gone,
}

impl Life {
    /// A client that has just come.
    pub fn new(now: Mono, every: Duration) -> Self {
        Self { heard: now, is_pinged: false, check: now.after(every), controls: (now, 0) }
    }

    /// Something has come from it.
    pub fn heard(&mut self, now: Mono) {
        (self.heard, self.is_pinged) = (now, false);
    }

    /// A ping or a pong has come. True: too many have.
    pub fn is_flood(&mut self, now: Mono) -> bool {
        let (begun, count) = self.controls;
        self.controls = if now.since(begun) > CONTROLS_SPAN { (now, 1) } else { (begun, count + 1) };
        self.controls.1 > CONTROLS
    }

    /// Whether its credentials are to be checked now. True once for each span.
    pub fn is_check_due(&mut self, now: Mono, every: Duration) -> bool {
        let is_due = now >= self.check;
        if is_due {
            self.check = now.after(every);
        }
        is_due
    }

    /// What its silence means. A client that is not read cannot be heard.
    pub fn sign(&mut self, now: Mono, every: Duration, is_read: bool) -> Sign {
        let quiet = now.since(self.heard);
        if !is_read || quiet < every {
            return Sign::None;
        }
        if self.is_pinged {
            return if quiet >= every * 2 { Sign::Gone } else { Sign::None };
        }
        self.is_pinged = true;
        Sign::Ping
    }

    /// When there is something to do, if nothing comes.
    pub fn wakes_at(&self, every: Duration, is_read: bool) -> Mono {
        if !is_read {
            return self.check;
        }
        self.heard.after(if self.is_pinged { every * 2 } else { every }).min(self.check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(10);

    fn at(secs: u64) -> Mono {
        Mono(1 + secs * 1_000_000_000)
    }

    #[test]
    fn a_silent_client_is_asked_once_and_then_gone() {
        let mut life = Life::new(at(0), EVERY);
        assert_eq!((life.sign(at(9), EVERY, true), life.wakes_at(EVERY, true)), (Sign::None, at(10)));
        assert_eq!([life.sign(at(10), EVERY, true), life.sign(at(11), EVERY, true)], [Sign::Ping, Sign::None]);
        life.heard(at(15));
        assert_eq!([life.sign(at(24), EVERY, true), life.sign(at(25), EVERY, true)], [Sign::None, Sign::Ping]);
        assert_eq!([life.sign(at(34), EVERY, true), life.sign(at(35), EVERY, true)], [Sign::None, Sign::Gone]);
        let mut unread = Life::new(at(0), EVERY);
        assert_eq!(unread.sign(at(100), EVERY, false), Sign::None);
    }

    #[test]
    fn pings_are_few_and_checks_come_once_in_a_span() {
        let mut life = Life::new(at(0), EVERY);
        assert_eq!((0..200).position(|_| life.is_flood(at(1))), Some(100));
        assert!(!life.is_flood(at(12)), "another span");
        assert_eq!([9, 10, 11, 20].map(|secs| life.is_check_due(at(secs), EVERY)), [false, true, false, true]);
    }
}
