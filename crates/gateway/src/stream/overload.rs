//! What is kept of a socket that has met a limit: its ladder, and the newest message of each stream that is held.

use std::collections::BTreeMap;

use holdfast_config::{MessagePriority, MessageType, Stream};
use holdfast_quota::ladder::{Ladder, Message, Priority, Rules};
use holdfast_types::Mono;

/// See the module. Made when it is first needed: most sockets never are near a limit.
pub struct Overload<T> {
    /// The steps.
    pub ladder: Ladder,
    held: BTreeMap<u64, (T, usize)>,
    bytes: usize,
}

impl<T> Overload<T> {
    /// Nothing has happened yet.
    pub fn new(config: &Stream, now: Mono) -> Self {
        let rules = Rules {
            below: u8::try_from(config.ladder.below).unwrap_or(100),
            coalesce: config.ladder.coalesce,
            warn: config.ladder.warn,
            violations: config.ladder.violations,
            window: config.ladder.window,
            ..Rules::default()
        };
        Self { ladder: Ladder::new(rules, now), held: BTreeMap::new(), bytes: 0 }
    }

    /// What the ladder is asked about a message. Held messages have a bound together, that of one message; one that has no place under it is as if it were of no stream.
    pub fn weighed(&self, config: &Stream, kind: &MessageType, stream: Option<u64>, bytes: usize) -> Message {
        let has_place = |stream: &u64| {
            self.held.contains_key(stream) || (self.bytes as u64).saturating_add(bytes as u64) <= config.message.0
        };
        let priority = match kind.priority {
            MessagePriority::Droppable => Priority::Droppable,
            MessagePriority::Normal => Priority::Normal,
            MessagePriority::Critical => Priority::Critical,
        };
        Message { priority, stream: stream.filter(has_place), cost: 1 }
    }

    /// Holds the newest message of a stream; gives the one before it.
    pub fn hold(&mut self, stream: u64, message: T, bytes: usize) -> Option<T> {
        let older = self.take(stream);
        self.bytes += bytes;
        self.held.insert(stream, (message, bytes));
        older
    }

    /// Takes the held message of a stream.
    pub fn take(&mut self, stream: u64) -> Option<T> {
        let (message, bytes) = self.held.remove(&stream)?;
        self.bytes -= bytes;
        Some(message)
    }

    /// When a held message is due.
    pub fn wakes_at(&self) -> Option<Mono> {
        self.ladder.wakes_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_quota::bucket::Metered;

    #[test]
    fn what_limits_keep_of_a_socket_is_small() {
        let idle = size_of::<Option<Box<Overload<Vec<u8>>>>>() + size_of::<crate::limits::OnConnection>();
        assert!(idle + size_of::<Box<Metered>>() <= 200, "{idle} bytes of one that has met none");
        let busy = idle + size_of::<Overload<Vec<u8>>>();
        assert!(busy <= 400, "{busy} bytes of one that is on the ladder");
    }
}
