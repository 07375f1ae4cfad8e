//! Whether a version on a replica gives back the `id` of a request in its answer, learnt from its answers.
//!
//! The protocol has it so, but some servers always make up an id of their own, or have one answer for all. Such a one is held to nothing. One that has given
//! many different ids back, and in between none that was not sent, is held to it, so that an answer with another id is told for what it is: the answer to
//! another request. Fewer would let a client decide it that sends the ids that it expects.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use holdfast_codec::answer::{AnswerId, Compared};

/// So many different ids in a row make a server that gives them back.
const LEARNT: u8 = 16;
/// So many answers in a row with other ids are another server, one that gives none back, and no longer answers to other requests.
const ROW: u8 = 8;
/// After so many answers with ids that were not sent, a server that gives none back is taken for one that makes them up, and requests are not read to their
/// ends for it any more. One look at each goes on.
const MADE_UP: u8 = 64;

/// See the module. Requests that end at the same time may count as one; nothing hangs on it.
#[derive(Debug, Default)]
pub struct Echo {
    /// Different ids that were given back in a row.
    given: AtomicU8,
    /// A hash of the last of them.
    last: AtomicU64,
    /// How many more answers with another id are refused. Zero: it is held to nothing.
    left: AtomicU8,
    /// Answers with ids that were not sent, while it is held to nothing.
    made_up: AtomicU8,
}

impl Echo {
    /// Takes note of an answer with this id. True: it is the answer to another request.
    pub fn takes(&self, id: &AnswerId, compared: Compared) -> bool {
        match compared {
            Compared::Unknown => false,
            Compared::Same => {
                self.given_back(id);
                false
            }
            Compared::Other => self.not_sent(),
        }
    }

    /// Whether a request is to be read to its end for the id in its answer.
    pub fn is_worth_reading(&self) -> bool {
        self.left.load(Relaxed) > 0 || self.made_up.load(Relaxed) < MADE_UP
    }

    fn given_back(&self, id: &AnswerId) {
        match self.left.load(Relaxed) {
            // Nearly always it is so already, and nothing is written.
            ROW => {}
            0 => {
                let hash = xxhash_rust::xxh3::xxh3_64(id.as_bytes());
                if self.last.swap(hash, Relaxed) != hash && self.given.fetch_add(1, Relaxed) + 1 >= LEARNT {
                    self.given.store(0, Relaxed);
                    self.made_up.store(0, Relaxed);
                    self.left.store(ROW, Relaxed);
                }
            }
            _ => self.left.store(ROW, Relaxed),
        }
    }

    fn not_sent(&self) -> bool {
        if self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            return true;
        }
        self.given.store(0, Relaxed);
        if self.made_up.load(Relaxed) < MADE_UP {
            self.made_up.fetch_add(1, Relaxed);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> AnswerId {
        AnswerId::from_text(text).unwrap()
    }

    /// So many different ids are given back.
    fn gives_back(echo: &Echo, count: u8) {
        for n in 0..count {
            assert!(!echo.takes(&id(&n.to_string()), Compared::Same));
        }
    }

    fn other(echo: &Echo) -> bool {
        echo.takes(&id("x"), Compared::Other)
    }

    #[test]
    fn who_has_given_many_ids_back_is_held_to_it_until_it_is_another_server() {
        let echo = Echo::default();
        assert!(!other(&echo), "it makes ids up");
        gives_back(&echo, LEARNT - 1);
        assert!(!other(&echo), "not yet, and from the beginning");
        gives_back(&echo, LEARNT - 1);
        assert!(!echo.takes(&id("x"), Compared::Unknown) && !echo.takes(&id("last"), Compared::Same));
        assert!(other(&echo) && !echo.takes(&id("x"), Compared::Unknown) && other(&echo));
        assert!(!echo.takes(&id("y"), Compared::Same));
        let refused = (0..20).filter(|_| other(&echo)).count();
        assert_eq!(refused, usize::from(ROW), "a row without one of its own is another server's");
        gives_back(&echo, 1);
        assert!(!other(&echo), "which has to be learnt anew");
    }

    #[test]
    fn one_id_for_all_is_learnt_by_nobody_who_sends_it() {
        let echo = Echo::default();
        for _ in 0..200 {
            assert!(!echo.takes(&id("ok"), Compared::Same));
        }
        assert!(!other(&echo));
    }

    #[test]
    fn requests_are_not_read_for_who_makes_ids_up_until_it_gives_them_back() {
        let echo = Echo::default();
        for answer in 0..MADE_UP {
            assert!(echo.is_worth_reading() && !other(&echo), "answer {answer}");
        }
        assert!(!echo.is_worth_reading());
        gives_back(&echo, LEARNT);
        assert!(echo.is_worth_reading() && other(&echo));
    }
}
