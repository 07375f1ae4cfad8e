//! The query of a request to the admin port.

/// The part behind `?`.
pub(crate) struct Query<'a>(pub(crate) &'a str);

impl Query<'_> {
    /// All values of a name.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = String> {
        let pairs = self.0.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(move |(key, _)| *key == name).map(|(_, value)| percent_decoded(value))
    }

    /// The first value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.all(name).next()
    }
}

/// A path or query without its percent signs. What is no number after one is `?`.
pub(crate) fn percent_decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let hex = |bytes: &mut std::str::Bytes<'_>| (bytes.next()? as char).to_digit(16);
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let value = hex(&mut bytes).and_then(|high| Some(high * 16 + hex(&mut bytes)?));
                u8::try_from(value.unwrap_or(u32::from(b'?'))).unwrap_or(b'?')
            }
            other => other,
        });
    }
    String::from_utf8_lossy(&out).into_owned()
}
