//! Reading answers within a deadline and a bound: small ones whole, long ones until they have named their version.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::answer::{Fault, Reading};
use crate::until::until;

/// Why an answer could not be read whole.
pub enum Whole {
    /// The deadline came first.
    Late,
    /// It was broken off.
    Broken,
    /// It is larger than the bound: its beginning.
    TooLarge(Bytes),
}

/// Reads an answer whole.
///
/// # Errors
/// [`Whole`].
pub async fn read_whole(mut incoming: Incoming, most: usize, deadline: Instant) -> Result<Bytes, Whole> {
    let mut whole = BytesMut::new();
    while let Some(frame) = until(deadline, incoming.frame()).await.map_err(|_| Whole::Late)? {
        let Ok(data) = frame.map_err(|_| Whole::Broken)?.into_data() else { continue };
        let room = most - whole.len();
        if data.len() > room {
            whole.extend_from_slice(&data[..room]);
            return Err(Whole::TooLarge(whole.freeze()));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// The beginning of an answer, checked.
pub struct Holding {
    /// What may be passed on.
    pub ready: VecDeque<Bytes>,
    /// The check of the rest.
    pub reading: Reading,
    /// Where the rest comes from.
    pub incoming: Incoming,
    /// Whether there is no rest.
    pub is_complete: bool,
}

/// Why an answer may not be passed on.
pub enum Held {
    /// The deadline came first.
    Late,
    /// It was broken off, or is shorter than it says.
    Broken,
    /// It names another version, or none where it must.
    Fault(Fault),
}

impl Holding {
    /// Nothing has been read yet.
    pub fn new(incoming: Incoming, reading: Reading) -> Self {
        Self { ready: VecDeque::new(), reading, incoming, is_complete: false }
    }

    /// Reads on until the answer is complete or, if it is long, until it has named its version or the bound is reached.
    ///
    /// # Errors
    /// [`Held`].
    pub async fn read(&mut self, most: usize, deadline: Instant) -> Result<(), Held> {
        let mut read = 0;
        let short = self.incoming.size_hint().exact().is_some_and(|length| length <= most as u64);
        while short || (read < most && (read == 0 || !self.reading.is_decided())) {
            let frame = until(deadline, self.incoming.frame()).await.map_err(|_| Held::Late)?;
            let Some(frame) = frame else {
                if !self.reading.is_complete() {
                    return Err(Held::Broken);
                }
                self.reading.finish(&mut self.ready);
                self.is_complete = true;
                break;
            };
            let Ok(data) = frame.map_err(|_| Held::Broken)?.into_data() else { continue };
            read += data.len();
            self.reading.feed(data, &mut self.ready).map_err(Held::Fault)?;
        }
        self.reading.judge().map_err(Held::Fault)
    }
}
