//! Whether a text that comes in chunks is UTF-8, wherever the chunks cut it.

/// The check of one text. Keeps at most three bytes, of a character that a chunk's end has cut in two.
#[derive(Debug, Default)]
pub struct Utf8 {
    begun: [u8; 4],
    length: usize,
}

impl Utf8 {
    /// Whether the text so far ends with a whole character.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.length == 0
    }

    /// Takes the next chunk. A text that ends in the middle of a character is for the caller to see: in JSON that is never the end.
    ///
    /// # Errors
    /// Where in the chunk the bytes end that are no character. Everything before that, they included, has one meaning however the text is cut.
    #[inline]
    pub fn take(&mut self, chunk: &[u8]) -> Result<(), usize> {
        // Nearly every chunk, and the cheapest question about it.
        if self.length == 0 && chunk.is_ascii() { Ok(()) } else { self.take_more(chunk) }
    }

    #[cold]
    fn take_more(&mut self, chunk: &[u8]) -> Result<(), usize> {
        let mut from = 0;
        while self.length > 0 {
            let Some(byte) = chunk.get(from) else { return Ok(()) };
            self.begun[self.length] = *byte;
            match std::str::from_utf8(&self.begun[..=self.length]) {
                Ok(_) => self.length = 0,
                Err(error) if error.error_len().is_none() => self.length += 1,
                // The byte is not a part of what went wrong before it.
                Err(_) => return Err(from),
            }
            from += 1;
        }
        let rest = &chunk[from..];
        let Err(error) = std::str::from_utf8(rest) else { return Ok(()) };
        if let Some(bad) = error.error_len() {
            return Err(from + error.valid_up_to() + bad);
        }
        let cut = &rest[error.valid_up_to()..];
        self.begun[..cut.len()].copy_from_slice(cut);
        self.length = cut.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The verdict over a text in pieces: where the bad bytes end, counted from the text's beginning.
    fn in_pieces(text: &[u8], cuts: &[usize]) -> Result<(), usize> {
        let (mut check, mut last) = (Utf8::default(), 0);
        for cut in cuts.iter().copied().chain([text.len()]) {
            check.take(&text[last..cut]).map_err(|end| last + end)?;
            last = cut;
        }
        Ok(())
    }

    #[test]
    fn every_cut_gives_the_same_verdict() {
        let texts: [&[u8]; 12] = [
            b"plain",
            "é€\u{1f600}\u{feff}".as_bytes(),
            b"a\xff",
            b"a\xc3(",
            b"\xe2\x82(",
            b"\xf0\x9f\x98\xff",
            b"\xc0\xaf over-long",
            b"\xed\xa0\x80 half a pair",
            b"\xf4\x90\x80\x80 too high",
            b"\x80 goes on with nothing",
            b"caf\xe9 in Latin-1",
            b"\xc3\xa9\xc3",
        ];
        for text in texts {
            let whole = in_pieces(text, &[]);
            // The end of the text is not the end of a character: no verdict.
            let valid = std::str::from_utf8(text).is_ok() || text.ends_with(b"\xa9\xc3");
            assert_eq!(whole.is_ok(), valid, "{text:?}");
            for first in 0..=text.len() {
                for second in first..=text.len() {
                    assert_eq!(in_pieces(text, &[first, second]), whole, "{text:?} cut at {first} and {second}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_what_the_standard_library_says(
            text in proptest::collection::vec(prop_oneof![0x20u8..0x7f, 0x80u8..=0xff, Just(0xe2u8), Just(0x82u8)], 0..24),
            cuts in proptest::collection::vec(0usize..24, 0..4),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.sort_unstable();
            let bad = match std::str::from_utf8(&text) {
                Ok(_) => Ok(()),
                Err(error) => error.error_len().map_or(Ok(()), |bad| Err(error.valid_up_to() + bad)),
            };
            prop_assert_eq!(in_pieces(&text, &cuts), bad);
        }
    }
}
