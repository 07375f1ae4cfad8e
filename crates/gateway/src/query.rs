//! The query of a request to the admin port.

/// See the module.
pub struct Query<'a>(pub &'a str);

impl Query<'_> {
    /// Every value of a name.
    pub fn all(&self, name: &str) -> impl Iterator<Item = String> {
        let pairs = self.0.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(move |(key, _)| *key == name).map(|(_, value)| percent_decoded(value))
    }

    /// The first value of a name.
    pub fn get(&self, name: &str) -> Option<String> {
        self.all(name).next()
    }
}

/// Text of a path or a query as it was meant.
pub fn percent_decoded(text: &str) -> String {
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
