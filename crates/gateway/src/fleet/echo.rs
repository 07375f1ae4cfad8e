//! Whether a replica gives back the `id` of a request in its answer, learnt from its answers.
//!
//! The protocol has it so, but some servers always make up an id of their own, or have one answer for all. Such a one is held to nothing. One that has given
//! an id back is held to it, so that an answer with another id is told for what it is: the answer to another request.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use holdfast_codec::answer::Compared;

/// So many answers in a row with other ids are another server, one that gives none back, and no longer answers to other requests.
const ROW: u8 = 8;

/// After so many answers with ids that were not sent, a server that has given none back is taken for one that makes them up, and requests are not read to
/// their ends for it any more. One look at each goes on.
const MADE_UP: u8 = 64;

/// See the module.
#[derive(Debug, Default)]
pub struct Echo {
    /// How many more answers with another id are refused. Zero: it has given none back.
    left: AtomicU8,
    /// Answers with ids that were not sent, while it has given none back.
    made_up: AtomicU8,
}

impl Echo {
    /// Takes note of an answer. True: it is the answer to another request.
    pub fn takes(&self, compared: Compared) -> bool {
        match compared {
            Compared::Same => {
                // Nearly always it is so already, and nothing is written.
                if self.left.load(Relaxed) != ROW {
                    self.left.store(ROW, Relaxed);
                    self.made_up.store(0, Relaxed);
                }
                false
            }
            Compared::Other => {
                let is_refused = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
                if !is_refused {
                    let _ = self.made_up.fetch_update(Relaxed, Relaxed, |count| count.checked_add(1));
                }
                is_refused
            }
            Compared::Unknown => false,
        }
    }

    /// Whether a request is to be read to its end for the id in its answer.
    pub fn is_worth_reading(&self) -> bool {
        self.left.load(Relaxed) > 0 || self.made_up.load(Relaxed) < MADE_UP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_given_ids_back_is_held_to_it_until_it_is_another_server() {
        let echo = Echo::default();
        assert!(!echo.takes(Compared::Other), "it makes ids up");
        assert!(!echo.takes(Compared::Unknown) && !echo.takes(Compared::Same));
        assert!(echo.takes(Compared::Other) && !echo.takes(Compared::Unknown) && echo.takes(Compared::Other));
        assert!(!echo.takes(Compared::Same));
        let refused = (0..20).filter(|_| echo.takes(Compared::Other)).count();
        assert_eq!(refused, usize::from(ROW), "a row without one of its own is another server's");
        assert!(!echo.takes(Compared::Same) && echo.takes(Compared::Other));
    }

    #[test]
    fn requests_are_not_read_for_who_makes_ids_up_until_it_gives_one_back() {
        let echo = Echo::default();
        for answer in 0..MADE_UP {
            assert!(echo.is_worth_reading() && !echo.takes(Compared::Other), "answer {answer}");
        }
        assert!(!echo.is_worth_reading() && !echo.takes(Compared::Unknown));
        assert!(!echo.takes(Compared::Same) && echo.is_worth_reading() && echo.takes(Compared::Other));
    }
}
