//! From a peer's bytes to its messages.

use super::code;
use super::frame::{CONTROL_MOST, Head, HeadReader, Opcode};
use super::mask;
use crate::utf8::Utf8;

/// Whose bytes are sent from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The peer is a client: its frames are masked.
    Server,
    /// The peer is a server: its frames are not.
    Client,
}

/// What one message may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most bytes of a message, over all of its fragments.
    pub message: usize,
    /// Most frames of a message.
    pub fragments: u32,
}

/// Text or binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// Anything.
    Binary,
}

/// The payload of a control frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Control {
    bytes: [u8; CONTROL_MOST],
    length: u8,
}

impl Control {
    const EMPTY: Self = Self { bytes: [0; CONTROL_MOST], length: 0 };

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(usize::from(self.length)) {
            *place = byte;
            self.length += 1;
        }
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.bytes().fmt(f)
    }
}

/// What has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A whole message; text is UTF-8.
    Message(Kind, Vec<u8>),
    /// To be answered with the same bytes.
    Ping(Control),
    /// An answer to a ping.
    Pong(Control),
    /// The peer closes, with a code if it named one. Nothing comes after it.
    Close(Option<u16>),
}

/// Why nothing more is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The close code that the peer is told.
    pub code: u16,
    /// The reason that it is told.
    pub why: &'static str,
}

impl Broken {
    pub(super) const fn protocol(why: &'static str) -> Self {
        Self { code: code::PROTOCOL, why }
    }
}

/// A message of which not all has come.
#[derive(Debug)]
struct Begun {
    kind: Kind,
    data: Vec<u8>,
    frames: u32,
    check: Utf8,
}

#[derive(Clone, Copy, Debug)]
enum At {
    Head(HeadReader),
    Payload { head: Head, read: u64 },
}

/// See the module. Some 80 bytes while nothing is under way.
#[derive(Debug)]
pub struct Reader {
    role: Role,
    at: At,
    begun: Option<Box<Begun>>,
    control: Option<Box<Control>>,
    over: bool,
}

/// A text must not end within a character.
const CUT: Broken = Broken { code: code::INVALID, why: "a text is not UTF-8" };

impl Reader {
    /// One that has read nothing.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self { role, at: At::Head(HeadReader::default()), begun: None, control: None, over: false }
    }

    /// Whether a message or a frame has begun and not ended.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.begun.is_some() || self.control.is_some() || matches!(self.at, At::Payload { .. })
    }

    /// Takes bytes off the input until something has come. None: the input is used up.
    ///
    /// # Errors
    /// What broke a rule or a bound. Nothing more is to be read then.
    pub fn take(&mut self, input: &mut &[u8], bounds: Bounds) -> Result<Option<Event>, Broken> {
        while !self.over {
            match self.at {
                At::Head(mut reader) => {
                    let head = reader.take(input, self.role);
                    self.at = At::Head(reader);
                    let Some(head) = head? else { return Ok(None) };
                    self.begin(head, bounds)?;
                    self.at = At::Payload { head, read: 0 };
                }
                At::Payload { head, read } => {
                    let left = head.length - read;
                    if left > 0 && input.is_empty() {
                        return Ok(None);
                    }
                    let take = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    let (bytes, rest) = input.split_at(take);
                    *input = rest;
                    self.append(head, read, bytes)?;
                    let read = read + take as u64;
                    self.at = At::Payload { head, read };
                    if read < head.length {
                        return Ok(None);
                    }
                    self.at = At::Head(HeadReader::default());
                    if let Some(event) = self.end(head)? {
                        return Ok(Some(event));
                    }
                }
            }
        }
        *input = &[];
        Ok(None)
    }

    fn begin(&mut self, head: Head, bounds: Bounds) -> Result<(), Broken> {
        if head.opcode.is_control() {
            self.control = Some(Box::new(Control::EMPTY));
            return Ok(());
        }
        let kind = match (head.opcode, &self.begun) {
            (Opcode::Continuation, None) => return Err(Broken::protocol("a continuation of nothing")),
            (Opcode::Text | Opcode::Binary, Some(_)) => {
                return Err(Broken::protocol("a message begins within another"));
            }
            (Opcode::Binary, None) => Kind::Binary,
            _ => Kind::Text,
        };
        let begun = self
            .begun
            .get_or_insert_with(|| Box::new(Begun { kind, data: Vec::new(), frames: 0, check: Utf8::default() }));
        begun.frames += 1;
        let whole = (begun.data.len() as u64).saturating_add(head.length);
        if whole > bounds.message as u64 {
            return Err(Broken { code: code::TOO_BIG, why: "a message is over its bound of bytes" });
        }
        if begun.frames > bounds.fragments {
            return Err(Broken { code: code::TOO_BIG, why: "a message has too many fragments" });
        }
        Ok(())
    }

    fn append(&mut self, head: Head, read: u64, bytes: &[u8]) -> Result<(), Broken> {
        if head.opcode.is_control() {
            let Some(control) = &mut self.control else { return Ok(()) };
            let key = head.mask.unwrap_or_default();
            let masks = key.iter().cycle().skip(usize::from(control.length) % 4);
            bytes.iter().zip(masks).for_each(|(byte, mask)| control.push(byte ^ mask));
            return Ok(());
        }
        let Some(begun) = &mut self.begun else { return Ok(()) };
        let from = begun.data.len();
        begun.data.extend_from_slice(bytes);
        let fresh = begun.data.get_mut(from..).unwrap_or_default();
        if let Some(key) = head.mask {
            mask::apply(key, read, fresh);
        }
        // At once: a text that is none is not waited for to its end.
        if begun.kind == Kind::Text {
            begun.check.take(fresh).map_err(|_| CUT)?;
        }
        Ok(())
    }

    fn end(&mut self, head: Head) -> Result<Option<Event>, Broken> {
        if head.opcode.is_control() {
            let Some(control) = self.control.take() else { return Ok(None) };
            return match head.opcode {
                Opcode::Ping => Ok(Some(Event::Ping(*control))),
                Opcode::Pong => Ok(Some(Event::Pong(*control))),
                _ => self.close(control.bytes()).map(Some),
            };
        }
        if !head.last {
            return Ok(None);
        }
        let Some(begun) = self.begun.take() else { return Ok(None) };
        if begun.kind == Kind::Text && !begun.check.is_whole() {
            return Err(CUT);
        }
        Ok(Some(Event::Message(begun.kind, begun.data)))
    }

    fn close(&mut self, payload: &[u8]) -> Result<Event, Broken> {
        self.over = true;
        let (code, reason) = match payload {
            [] => return Ok(Event::Close(None)),
            [_] => return Err(Broken::protocol("a close frame has half a code")),
            [high, low, reason @ ..] => (u16::from_be_bytes([*high, *low]), reason),
        };
        if !code::is_sendable(code) {
            return Err(Broken::protocol("a close frame has a code that may not be sent"));
        }
        if std::str::from_utf8(reason).is_err() {
            return Err(CUT);
        }
        Ok(Event::Close(Some(code)))
    }
}
