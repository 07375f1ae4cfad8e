//! The mask over what a client sends (RFC 6455, 5.3).

/// Four bytes that are laid over a payload again and again.
pub type Key = [u8; 4];

/// Lays the mask over the bytes. `from` is how many bytes of the payload came before them.
pub fn apply(key: Key, from: u64, bytes: &mut [u8]) {
    // It holds: the remainder is below four.
    let turn = (from % 4) as usize;
    let turned = [key[turn], key[(turn + 1) % 4], key[(turn + 2) % 4], key[(turn + 3) % 4]];
    let word = u32::from_ne_bytes(turned);
    let wide = u64::from(word) << 32 | u64::from(word);
    let mut words = bytes.chunks_exact_mut(8);
    for eight in &mut words {
        if let Ok(plain) = <[u8; 8]>::try_from(&*eight) {
            eight.copy_from_slice(&(u64::from_ne_bytes(plain) ^ wide).to_ne_bytes());
        }
    }
    for (byte, mask) in words.into_remainder().iter_mut().zip(turned.iter().cycle()) {
        *byte ^= mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_laid_in_pieces_is_the_mask_laid_at_once() {
        let key = [1, 2, 4, 248];
        let plain: Vec<u8> = (0..100).collect();
        let mut whole = plain.clone();
        for (at, byte) in whole.iter_mut().enumerate() {
            *byte ^= key[at % 4];
        }
        for cut in 0..=plain.len() {
            let mut pieces = plain.clone();
            let (first, second) = pieces.split_at_mut(cut);
            apply(key, 0, first);
            apply(key, cut as u64, second);
            assert_eq!(pieces, whole, "{cut}");
        }
    }
}
