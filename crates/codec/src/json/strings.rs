//! Strings of JSON: where they end, what they say, and what a key may be taken for.

/// The length of the rest of a string, its closing quote included. An error if the quote has not come: whether the next byte is escaped.
pub(super) fn string_end(rest: &[u8]) -> Result<usize, bool> {
    let mut at = 0;
    loop {
        let Some(found) = rest.get(at..).and_then(quote_or_escape) else { return Err(at > rest.len()) };
        at += found + 1;
        if rest[at - 1] == b'"' {
            return Ok(at);
        }
        // Past what is escaped.
        at += 1;
    }
}

/// Where the first quote or backslash is. The beginning is looked at by eight bytes at a time in place: most strings are shorter than what a
/// call of `memchr` costs.
#[inline]
pub(super) fn quote_or_escape(bytes: &[u8]) -> Option<usize> {
    const MOST: usize = 32;
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);
    const QUOTES: u64 = u64::from_le_bytes([b'"'; 8]);
    const ESCAPES: u64 = u64::from_le_bytes([b'\\'; 8]);
    // The high bit of each byte that is zero, and of some above the lowest that is; the lowest is what counts.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let mut at = 0;
    while let Some(word) = bytes[at..].first_chunk::<8>().filter(|_| at < MOST) {
        let word = u64::from_le_bytes(*word);
        let found = zeros(word ^ QUOTES) | zeros(word ^ ESCAPES);
        if found != 0 {
            return Some(at + (found.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    let rest = &bytes[at..];
    let found = match rest.len() {
        0..8 => rest.iter().position(|byte| matches!(byte, b'"' | b'\\')),
        _ => memchr::memchr2(b'"', b'\\', rest),
    };
    Some(at + found?)
}

/// Whether some reader takes a key for this one: equal without regard to case, with the letters beside ASCII that fold into it.
pub(super) fn reads_as(key: &str, watched: &str) -> bool {
    if key.is_ascii() {
        return key.eq_ignore_ascii_case(watched);
    }
    let fold = |c: char| match c {
        'ı' | 'İ' => 'i',
        c => c.to_uppercase().next().unwrap_or(c).to_ascii_lowercase(),
    };
    let fold = |c: char| if c == '\u{212a}' { 'k' } else { fold(c) };
    key.chars().map(fold).eq(watched.chars().map(fold))
}

/// Undoes JSON string escapes. `None` if the text is not a valid JSON string.
pub(super) fn unescape(raw: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(raw).ok()?;
    if !text.contains('\\') {
        return Some(text.to_owned());
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next()? {
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'u' => out.push(unicode_escape(&mut chars)?),
            c @ ('"' | '\\' | '/') => out.push(c),
            _ => return None,
        }
    }
    Some(out)
}

fn unicode_escape(chars: &mut std::str::Chars<'_>) -> Option<char> {
    let high = hex4(chars)?;
    if !(0xd800..0xdc00).contains(&high) {
        return char::from_u32(high);
    }
    if chars.next()? != '\\' || chars.next()? != 'u' {
        return None;
    }
    let low = hex4(chars)?;
    if !(0xdc00..0xe000).contains(&low) {
        return None;
    }
    char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))
}

fn hex4(chars: &mut std::str::Chars<'_>) -> Option<u32> {
    (0..4).try_fold(0, |n, _| Some(n * 16 + chars.next()?.to_digit(16)?))
}
