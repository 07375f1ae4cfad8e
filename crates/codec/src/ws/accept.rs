//! The answer to a handshake's key (RFC 6455, 4.2.2): it shows that the server knows what it was asked, and proves nothing else.

use sha1_smol::Sha1;

const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key`. None: it is not the base64 of 16 bytes.
#[must_use]
pub fn accept_key(key: &str) -> Option<String> {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    let digits = key.strip_suffix("==")?;
    // 16 bytes are 22 digits; the last has four bits that are not used, and clients that leave some there are not refused for it.
    if digits.len() != 22 || !digits.bytes().all(is_digit) {
        return None;
    }
    let mut hash = Sha1::new();
    hash.update(key.as_bytes());
    hash.update(MAGIC.as_bytes());
    Some(base64(&hash.digest().bytes()))
}

fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let digit = (word >> (18 - 6 * at)) & 63;
            out.push(if at <= chunk.len() { char::from(DIGITS[digit as usize]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_standard() {
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ==").as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for key in [
            "",
            "==",
            "dGhlIHNhbXBsZSBub25jZQ",
            "dGhlIHNhbXBsZSBub25jZQ=",
            "dGhlIHNhbXBsZSBub25jZ===",
            "dGhlIHNhbXBsZSBub25j Q==",
        ] {
            assert_eq!(accept_key(key), None, "{key:?}");
        }
    }

    #[test]
    fn base64_of_each_remainder() {
        let text = |bytes: &[u8]| base64(bytes);
        assert_eq!([text(b""), text(b"f"), text(b"fo"), text(b"foo")], ["", "Zg==", "Zm8=", "Zm9v"]);
    }
}
