//! The head of one frame (RFC 6455, 5.2).

use super::mask::{self, Key};
use super::reader::{Broken, Role};

/// The most bytes of a control frame's payload.
pub const CONTROL_MOST: usize = 125;
/// Two bytes, eight of length, four of mask.
const LONGEST: usize = 14;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// More of the message that has begun.
    Continuation = 0,
    /// The beginning of a text.
    Text = 1,
    /// The beginning of binary data.
    Binary = 2,
    /// The end of the connection.
    Close = 8,
    /// Asks for a pong.
    Ping = 9,
    /// The answer to a ping.
    Pong = 10,
}

impl Opcode {
    const fn of(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    /// Whether it is about the connection, and no part of a message.
    #[must_use]
    pub const fn is_control(self) -> bool {
        self as u8 >= 8
    }
}

/// A head that has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) opcode: Opcode,
    pub(super) last: bool,
    pub(super) length: u64,
    pub(super) mask: Option<Key>,
}

/// A head that is being read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeadReader {
    bytes: [u8; LONGEST],
    have: u8,
}

impl HeadReader {
    /// Takes bytes off the input until the head is whole.
    pub(super) fn take(&mut self, input: &mut &[u8], role: Role) -> Result<Option<Head>, Broken> {
        loop {
            let have = usize::from(self.have);
            if have >= 2 {
                let head = self.look(role)?;
                if let Some(head) = head {
                    self.have = 0;
                    return Ok(Some(head));
                }
            }
            let Some((first, rest)) = input.split_first() else { return Ok(None) };
            if let Some(place) = self.bytes.get_mut(have) {
                *place = *first;
            }
            self.have += 1;
            *input = rest;
        }
    }

    /// The head, if it is whole. Faults of the first two bytes are told before the rest is there.
    fn look(&self, role: Role) -> Result<Option<Head>, Broken> {
        let [first, second, ..] = self.bytes;
        if first & 0x70 != 0 {
            return Err(Broken::protocol("a reserved bit is set, and no extension was agreed upon"));
        }
        let opcode = Opcode::of(first & 0x0f).ok_or(Broken::protocol("there is no such opcode"))?;
        let (last, is_masked, short) = (first & 0x80 != 0, second & 0x80 != 0, second & 0x7f);
        if is_masked != (role == Role::Server) {
            return Err(Broken::protocol(if is_masked {
                "a server's frame is masked"
            } else {
                "a client's frame is not masked"
            }));
        }
        if opcode.is_control() && (short > 125 || !last) {
            return Err(Broken::protocol("a control frame is fragmented or has more than 125 bytes"));
        }
        let wide = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let whole = 2 + wide + if is_masked { 4 } else { 0 };
        if usize::from(self.have) < whole {
            return Ok(None);
        }
        let number = self.bytes.iter().skip(2).take(wide).fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        if number >> 63 != 0 {
            return Err(Broken::protocol("a length has its highest bit set"));
        }
        let length = if wide == 0 { u64::from(short) } else { number };
        if (wide == 2 && length < 126) || (wide == 8 && length <= 0xffff) {
            return Err(Broken::protocol("a length is written longer than it need be"));
        }
        let key = self.bytes.get(2 + wide..whole).and_then(|key| Key::try_from(key).ok());
        Ok(Some(Head { opcode, last, length, mask: key.filter(|_| is_masked) }))
    }
}

/// Appends one frame. With a mask it is a client's.
pub fn write_frame(out: &mut Vec<u8>, opcode: Opcode, last: bool, payload: &[u8], key: Option<Key>) {
    let masked = if key.is_some() { 0x80 } else { 0 };
    out.reserve(payload.len() + LONGEST);
    out.push(opcode as u8 | if last { 0x80 } else { 0 });
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length), _) if length < 126 => out.push(masked | length),
        (_, Ok(length)) => {
            out.push(masked | 126);
            out.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            out.push(masked | 127);
            out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    let Some(key) = key else { return out.extend_from_slice(payload) };
    out.extend_from_slice(&key);
    let from = out.len();
    out.extend_from_slice(payload);
    if let Some(fresh) = out.get_mut(from..) {
        mask::apply(key, 0, fresh);
    }
}

/// The payload of a close frame: the code and as much of the reason as fits, cut between characters.
#[must_use]
pub fn close_payload(code: u16, reason: &str) -> Vec<u8> {
    let mut end = reason.len().min(CONTROL_MOST - 2);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let mut payload = code.to_be_bytes().to_vec();
    payload.extend_from_slice(reason.as_bytes().get(..end).unwrap_or_default());
    payload
}
