//! Whether a replica gives back the `id` of a request in its answer, learnt from its answers.
//!
//! The protocol has it so, but some servers always make up an id of their own, or have one answer for all. Such a one is held to nothing. One that has given
//! an id back is held to it, so that an answer with another id is told for what it is: the answer to another request.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use holdfast_codec::answer::Compared;

/// So many answers in a row with other ids are another server, one that gives none back, and no longer answers to other requests.
const ROW: u8 = 8;

/// How many more answers with another id are refused. Zero: it has given none back.
#[derive(Debug, Default)]
pub struct Echo(AtomicU8);

impl Echo {
    /// Takes note of an answer. True: it is the answer to another request.
    pub fn takes(&self, compared: Compared) -> bool {
        match compared {
            Compared::Same => {
                // Nearly always it is so already, and nothing is written.
                if self.0.load(Relaxed) != ROW {
                    self.0.store(ROW, Relaxed);
                }
                false
            }
            Compared::Other => self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok(),
            Compared::Unknown => false,
        }
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
}
