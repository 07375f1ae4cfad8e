//! A socket's bytes to messages and back. Sans tasks: one `poll` moves both directions as far as they go.
//!
//! Bounded is: what was read and not understood yet (one read), a message that is coming in (the reader's bound), frames that wait to be written (whoever
//! writes looks at [`Wire::waiting`] first), and pongs: only the latest is kept, whatever comes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use holdfast_codec::ws::{Bounds, Broken, Control, Event, Key, Opcode, Reader, Role, close_payload, write_frame};
use holdfast_net::Socket;
use holdfast_telemetry::Clock;
use holdfast_types::Mono;

/// What is read at a time.
const READ: usize = 16 * 1024;

thread_local! {
    /// A worker's sockets are read one after the other, so they need one buffer together.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ].into());
}

/// What comes of a poll.
pub enum Came {
    /// The peer has sent something.
    Event(Event),
    /// The peer has broken a rule or a bound.
    Broken(Broken),
    /// Something was written, and nothing is to be read: there may be room again. Or nothing more can be written now: from here on that takes time.
    Written,
    /// There is nothing more to be read.
    Ended,
}

/// See the module.
pub struct Wire {
    socket: Socket,
    reader: Reader,
    /// Read, and not looked at yet.
    left: Bytes,
    out: VecDeque<Vec<u8>>,
    /// Bytes of the first of them that are written.
    written: usize,
    waiting: usize,
    pong: Option<Box<Control>>,
    /// Since when the socket takes nothing.
    blocked: Option<Mono>,
    /// What still comes is thrown away.
    deaf: bool,
    /// Nothing more comes, and that has been told.
    ended: bool,
    masks: Option<u64>,
}

impl Wire {
    /// The side of a server. With a seed for masks the side of a client.
    pub fn new(socket: Socket, masks: Option<u64>) -> Self {
        let role = if masks.is_some() { Role::Client } else { Role::Server };
        Self {
            socket,
            reader: Reader::new(role),
            left: Bytes::new(),
            out: VecDeque::new(),
            written: 0,
            waiting: 0,
            pong: None,
            blocked: None,
            deaf: false,
            ended: false,
            masks,
        }
    }

    /// Bytes that wait to be written.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Since when the peer has taken nothing of what waits.
    pub fn blocked_since(&self) -> Option<Mono> {
        self.blocked
    }

    /// Queues a frame.
    pub fn send(&mut self, opcode: Opcode, payload: &[u8]) {
        let key = self.key();
        let mut frame = Vec::new();
        write_frame(&mut frame, opcode, true, payload, key);
        self.waiting += frame.len();
        self.out.push_back(frame);
    }

    /// Queues a close frame. Nothing is to be sent after it.
    pub fn close(&mut self, code: Option<u16>, reason: &str) {
        let payload = code.map(|code| close_payload(code, reason)).unwrap_or_default();
        self.pong = None;
        self.send(Opcode::Close, &payload);
    }

    /// Answers a ping once there is room; an older one that waits is forgotten.
    pub fn pong(&mut self, control: Control) {
        self.pong = Some(Box::new(control));
    }

    /// From now on what comes is thrown away.
    pub fn stop_listening(&mut self) {
        self.deaf = true;
        self.left = Bytes::new();
    }

    /// Whether what comes is thrown away.
    pub fn is_deaf(&self) -> bool {
        self.deaf
    }

    fn key(&mut self) -> Option<Key> {
        let seed = self.masks.as_mut()?;
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let [a, b, c, d, ..] = seed.to_be_bytes();
        Some([a, b, c, d])
    }

    /// The same, where another side waits for room here before it is read: that there is some again is told, also if this side is read all the while.
    pub fn poll_for(&mut self, cx: &mut Context<'_>, may_read: bool, bounds: Bounds, is_awaited: bool) -> Poll<Came> {
        let before = self.waiting;
        let came = self.poll(cx, may_read, bounds);
        if came.is_pending() && is_awaited && self.waiting < before { Poll::Ready(Came::Written) } else { came }
    }

    /// Writes what can be written, and reads until something has come. `may_read`: whether anything is to be read at all.
    pub fn poll(&mut self, cx: &mut Context<'_>, may_read: bool, bounds: Bounds) -> Poll<Came> {
        let (before, was_blocked) = (self.waiting, self.blocked.is_some());
        if self.poll_write(cx).is_err() {
            // What is left will never be written.
            (self.out, self.waiting, self.pong) = (VecDeque::new(), 0, None);
            return self.end();
        }
        if self.blocked.is_some() && !was_blocked {
            return Poll::Ready(Came::Written);
        }
        if !may_read || self.ended {
            return if self.waiting < before { Poll::Ready(Came::Written) } else { Poll::Pending };
        }
        loop {
            if !self.left.is_empty() {
                let mut input = &self.left[..];
                let taken = self.reader.take(&mut input, bounds);
                let used = self.left.len() - input.len();
                self.left.advance(used);
                if let Some(came) = came(taken) {
                    return Poll::Ready(came);
                }
                self.left = Bytes::new();
            }
            match ready!(self.poll_read(cx, bounds)) {
                Ok(None) => {}
                Ok(Some(Came::Ended)) => return self.end(),
                Ok(Some(came)) => return Poll::Ready(came),
                Err(_) => return self.end(),
            }
        }
    }

    /// The end is told once.
    fn end(&mut self) -> Poll<Came> {
        if std::mem::replace(&mut self.ended, true) { Poll::Pending } else { Poll::Ready(Came::Ended) }
    }

    /// Reads once, into the worker's buffer, and keeps a copy of what is not understood at once.
    fn poll_read(&mut self, cx: &mut Context<'_>, bounds: Bounds) -> Poll<io::Result<Option<Came>>> {
        ready!(self.socket.poll_readable(cx))?;
        SCRATCH.with_borrow_mut(|scratch| {
            let mut read = ReadBuf::new(scratch);
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(Some(Came::Ended)));
            }
            if self.deaf {
                return Poll::Ready(Ok(None));
            }
            let mut input = read.filled();
            let came = came(self.reader.take(&mut input, bounds));
            self.left = Bytes::copy_from_slice(input);
            Poll::Ready(Ok(came))
        })
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            if self.out.is_empty()
                && let Some(pong) = self.pong.take()
            {
                self.send(Opcode::Pong, pong.bytes());
            }
            let Some(first) = self.out.front() else { break };
            let rest = first.get(self.written..).unwrap_or_default();
            match Pin::new(&mut self.socket).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => {
                    let written = written?;
                    let is_whole = written == rest.len();
                    (self.blocked, self.written, self.waiting) =
                        (None, self.written + written, self.waiting.saturating_sub(written));
                    if is_whole {
                        self.out.pop_front();
                        self.written = 0;
                    }
                }
                Poll::Pending => {
                    self.blocked.get_or_insert_with(Clock::now);
                    return Ok(());
                }
            }
        }
        if self.out.capacity() > 0 {
            self.out = VecDeque::new();
            if let Poll::Ready(flushed) = Pin::new(&mut self.socket).poll_flush(cx) {
                flushed?;
            }
        }
        Ok(())
    }
}

fn came(taken: Result<Option<Event>, Broken>) -> Option<Came> {
    match taken {
        Ok(event) => event.map(Came::Event),
        Err(broken) => Some(Came::Broken(broken)),
    }
}
