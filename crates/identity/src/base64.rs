//! Base64url without padding (RFC 7515, 2), one text for each sequence of bytes: no padding, no white space, no bits that mean nothing.

const INVALID: u8 = 0xff;

const VALUES: [u8; 256] = {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut values = [INVALID; 256];
    let mut at = 0u8;
    while (at as usize) < alphabet.len() {
        values[alphabet[at as usize] as usize] = at;
        at += 1;
    }
    values
};

/// The bytes of a text. None: it is not the one text of any bytes.
#[must_use]
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.chunks(4) {
        let mut word = 0u32;
        for byte in chunk {
            let value = VALUES[usize::from(*byte)];
            if value == INVALID {
                return None;
            }
            word = word << 6 | u32::from(value);
        }
        let (bytes, unused) = match chunk.len() {
            4 => (3, 0),
            3 => (2, 2),
            2 => (1, 4),
            _ => return None,
        };
        if word & ((1 << unused) - 1) != 0 {
            return None;
        }
        let word = word >> unused;
        out.extend_from_slice(&word.to_be_bytes()[4 - bytes..]);
    }
    Some(out)
}

/// The text of these bytes.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut word = [0u8; 4];
        word[1..=chunk.len()].copy_from_slice(chunk);
        let word = u32::from_be_bytes(word);
        for at in 0..=chunk.len() {
            out.push(char::from(ALPHABET[(word >> (18 - 6 * at) & 63) as usize]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_text_for_each_sequence_of_bytes() {
        assert_eq!(decode(b"").as_deref(), Some(&b""[..]));
        assert_eq!(decode(b"Zm9v").as_deref(), Some(&b"foo"[..]));
        assert_eq!(decode(b"Zm8").as_deref(), Some(&b"fo"[..]));
        assert_eq!(decode(b"-_8").as_deref(), Some(&[0xfb, 0xff][..]));
        for bad in [
            "Z",
            "Zm9vY",
            "Zg==",
            "Zm8=",
            "Zm9",
            "Zh",
            "Zm9v ",
            " Zm9v",
            "Zm9v\n",
            "Zm+v",
            "Zm/v",
            "Zm9v\0",
            "Zm.v",
            "\u{17f}m9v",
        ] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(decode(encode(&bytes).as_bytes()), Some(bytes));
        }

        #[test]
        fn what_is_decoded_has_no_other_text(text in "[A-Za-z0-9_-]{0,12}") {
            if let Some(bytes) = decode(text.as_bytes()) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
