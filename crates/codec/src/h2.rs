//! The frames of an HTTP/2 connection, looked at from outside: whether a client has begun something that it has to end before anything else can follow.
//!
//! A header block may lie in many frames, and none but the next of them may come in between (RFC 9113, 4.3 and 6.10). So a client that does not end one
//! holds its whole connection, which a time-out for idle connections does not see as a head. The same goes for a frame other than DATA that is sent in part.

/// The octets of a frame's header (RFC 9113, 4.1).
const HEADER: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// Follows the frames of one direction. It is fed what comes after the preface.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    header: [u8; HEADER],
    have: usize,
    /// Octets of the frame's payload that are still to come.
    left: usize,
    /// A header block has begun and has not ended.
    block: bool,
    /// The first frame, the settings, has been seen.
    begun: bool,
    /// The first frame was another.
    refused: bool,
}

impl Frames {
    /// Takes the next bytes. True: at some moment on the way, or after them, nothing was owed, so that what is owed now has begun within them.
    pub fn feed(&mut self, mut bytes: &[u8]) -> bool {
        let mut was_even = false;
        while !bytes.is_empty() {
            let passed = self.left.min(bytes.len());
            bytes = &bytes[passed..];
            self.left -= passed;
            was_even |= !self.is_owing();
            if self.left > 0 {
                break;
            }
            let taken = (HEADER - self.have % HEADER).min(bytes.len());
            if taken == 0 {
                break;
            }
            let from = self.have % HEADER;
            self.header[from..from + taken].copy_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            self.have = from + taken;
            if self.have == HEADER {
                self.begin();
                was_even |= !self.is_owing();
            }
        }
        was_even
    }

    fn begin(&mut self) {
        let [a, b, c, kind, flags, ..] = self.header;
        self.left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        // Those of the server are acknowledged later: an ACK tells nothing of this side's own (RFC 9113, 3.4).
        self.refused |= !self.begun && (kind != SETTINGS || flags & ACK != 0);
        self.begun = true;
        if matches!(kind, HEADERS | CONTINUATION) {
            self.block = flags & END_HEADERS == 0;
        }
    }

    /// Whether the first frame was no settings of the client's own, which the connection has to begin with.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// Whether the client owes the rest of something that has to be whole soon: its settings, a header block, a frame that is no DATA.
    #[must_use]
    pub fn is_owing(&self) -> bool {
        let in_header = !matches!(self.have, 0 | HEADER);
        let in_payload = self.left > 0 && self.header[3] != DATA;
        !self.begun || self.block || in_header || in_payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        frame.extend(std::iter::repeat_n(7, usize::from(length)));
        frame
    }

    /// What is owed after each piece.
    fn owing(pieces: &[&[u8]]) -> Vec<bool> {
        let mut frames = Frames::default();
        let after = |piece: &&[u8]| {
            frames.feed(piece);
            frames.is_owing()
        };
        pieces.iter().map(after).collect()
    }

    #[test]
    fn the_first_frame_is_the_clients_own_settings() {
        let first = |kind, flags| {
            let mut frames = Frames::default();
            for byte in &frame(kind, flags, 0)[..HEADER - 1] {
                frames.feed(&[*byte]);
                assert!(!frames.is_refused(), "not before its header is whole");
            }
            frames.feed(&frame(kind, flags, 0)[HEADER - 1..]);
            let refused = frames.is_refused();
            frames.feed(&frame(SETTINGS, 0, 0));
            assert_eq!(frames.is_refused(), refused, "what comes later makes no difference");
            refused
        };
        assert!(!first(SETTINGS, 0) && !first(SETTINGS, 2), "flags without a meaning are none");
        assert!(first(SETTINGS, ACK) && first(SETTINGS, 3));
        assert!([DATA, HEADERS, 2, 3, 6, 7, 8, CONTINUATION, 200].iter().all(|kind| first(*kind, 0)));
    }

    #[test]
    fn a_header_block_is_owed_until_its_last_frame_is_whole() {
        let settings = frame(4, 0, 0);
        assert!(Frames::default().is_owing(), "the settings have to come");
        let (half, rest, last) = (frame(HEADERS, 1, 5), frame(CONTINUATION, 0, 3), frame(CONTINUATION, END_HEADERS, 3));
        let (before, end) = last.split_at(last.len() - 1);
        assert_eq!(owing(&[&settings, &half, &rest, before, end]), [false, true, true, true, false]);
        assert_eq!(owing(&[&settings, &frame(HEADERS, END_HEADERS, 9)]), [false, false]);
        assert_eq!(owing(&[&[settings, half, rest, last].concat()]), [false]);
    }

    #[test]
    fn half_a_frame_is_owed_but_for_data() {
        let settings = frame(4, 0, 0);
        for kind in [HEADERS, 2, 3, 4, 6, 7, 8, 200] {
            let whole = frame(kind, END_HEADERS, 6);
            for cut in 1..whole.len() {
                let (a, b) = whole.split_at(cut);
                assert_eq!(owing(&[&settings, a, b]), [false, true, false], "{kind} at {cut}");
            }
        }
        let data = frame(DATA, 0, 6);
        let (a, b) = data.split_at(HEADER + 2);
        assert_eq!(owing(&[&settings, a, b]), [false, false, false]);
        assert_eq!(owing(&[&settings, &data[..4]]), [false, true]);
    }

    #[test]
    fn what_is_owed_after_whole_frames_has_begun_with_them() {
        let (settings, ping) = (frame(4, 0, 0), frame(6, 0, 8));
        let (head, rest) = ping.split_at(5);
        let mut frames = Frames::default();
        assert!(frames.feed(&settings));
        assert!(frames.feed(head) && frames.is_owing());
        for _ in 0..3 {
            // The end of one frame, and half of the next.
            assert!(frames.feed(&[rest, head].concat()) && frames.is_owing());
        }
        assert!(!frames.feed(&rest[..2]) && frames.feed(&rest[2..]) && !frames.is_owing());
        // A header block that goes on over frames is one thing.
        let (first, next) = (frame(HEADERS, 0, 3), frame(CONTINUATION, 0, 3));
        assert!(frames.feed(&[first, next.clone()].concat()) && frames.is_owing());
        assert!(!frames.feed(&[next.clone(), next].concat()) && frames.is_owing());
        // The half header of a frame of data is owed; its payload is not.
        let data = [frame(CONTINUATION, END_HEADERS, 0), frame(DATA, 0, 6)].concat();
        assert!(frames.feed(&data[..HEADER + 4]) && frames.is_owing());
        assert!(frames.feed(&data[HEADER + 4..HEADER * 2 + 2]) && !frames.is_owing());
    }

    #[test]
    fn the_cuts_of_the_pieces_change_nothing() {
        let all =
            [frame(4, 0, 6), frame(HEADERS, 0, 4), frame(CONTINUATION, END_HEADERS, 0), frame(DATA, 1, 3)].concat();
        let mut whole = Frames::default();
        whole.feed(&all);
        let mut single = Frames::default();
        for byte in &all {
            single.feed(&[*byte]);
        }
        assert_eq!((whole.is_owing(), single.is_owing()), (false, false));
        assert_eq!((whole.left, whole.have), (single.left, single.have));
    }
}
