//! One request and its answer on a kept connection.
//!
//! Reads just enough of HTTP/1.1 for the answers of the measured proxies: a length, or chunks. Not a client for the open network.

use std::io::{Read, Write};

/// An answer larger than this is none that was asked for.
const MAX_ANSWER: usize = 64 * 1024;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Good,
    /// Complete, but with another status or without the mark.
    Wrong,
    /// The connection is of no use any more.
    Broken,
}

/// The request, ready to be sent for any tenant, and the mark of a good answer.
pub(crate) struct Exchange {
    before_tenant: String,
    after_tenant: String,
    /// One of each tenant, where tenants are proved by tokens.
    tokens: Vec<String>,
    mark: Vec<u8>,
}

impl Exchange {
    pub(crate) fn new(path: &str, body: &str, tokens: Vec<String>, mark: &str) -> Self {
        let length = body.len();
        Self {
            before_tenant: format!(
                "POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nx-tenant: t"
            ),
            after_tenant: format!("\r\n\r\n{body}"),
            tokens,
            mark: mark.as_bytes().to_vec(),
        }
    }

    pub(crate) fn ask(&self, connection: &mut (impl Read + Write), tenant: usize) -> Answer {
        let token = self.tokens.get(tenant).map(|token| format!("\r\nauthorization: Bearer {token}")).unwrap_or_default();
        let request = format!("{}{tenant}{token}{}", self.before_tenant, self.after_tenant);
        if connection.write_all(request.as_bytes()).is_err() {
            return Answer::Broken;
        }
        let Some((head, body)) = read_answer(connection) else { return Answer::Broken };
        let good = head.starts_with("http/1.1 200 ") && contains(&body, &self.mark);
        if good { Answer::Good } else { Answer::Wrong }
    }
}

/// How the end of a body is found.
enum Framing {
    Length(usize),
    Chunked,
}

impl Framing {
    fn of(head: &str) -> Option<Self> {
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        match length {
            Some(length) => Some(Self::Length(length.trim().parse().ok()?)),
            None => head.contains("transfer-encoding: chunked").then_some(Self::Chunked),
        }
    }

    fn is_complete(&self, body: &[u8]) -> bool {
        match self {
            Self::Length(length) => body.len() >= *length,
            Self::Chunked => body.ends_with(b"0\r\n\r\n"),
        }
    }
}

/// The head in lower case, and the body; chunked bodies with their frames, which is enough to look for the mark.
fn read_answer(connection: &mut impl Read) -> Option<(String, Vec<u8>)> {
    let mut buffer = vec![0; 4096];
    let mut filled = 0;
    let mut framed: Option<(String, usize, Framing)> = None;
    loop {
        if let Some((head, body_at, framing)) = &framed
            && framing.is_complete(&buffer[*body_at..filled])
        {
            return Some((head.clone(), buffer[*body_at..filled].to_vec()));
        }
        if filled == buffer.len() {
            buffer.resize(filled * 2, 0);
        }
        let count = connection.read(&mut buffer[filled..]).ok()?;
        filled += count;
        if count == 0 || filled > MAX_ANSWER {
            return None;
        }
        if framed.is_none()
            && let Some(end) = buffer[..filled].windows(4).position(|bytes| bytes == b"\r\n\r\n")
        {
            let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
            let framing = Framing::of(&head)?;
            framed = Some((head, end + 4, framing));
        }
    }
}

fn contains(body: &[u8], mark: &[u8]) -> bool {
    mark.is_empty() || body.windows(mark.len()).any(|bytes| bytes == mark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// A connection whose answer arrives one byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(&mut buffer[..1])
        }
    }

    impl Write for Slow<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn answer(text: &str) -> Answer {
        Exchange::new("/", "{}", "\"7\"").ask(&mut Slow(text.as_bytes()), 3)
    }

    #[test]
    fn a_good_answer_has_status_200_and_the_mark() {
        assert_eq!(answer("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\"7\""), Answer::Good);
        assert_eq!(
            answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n\"7\"\r\n0\r\n\r\n"),
            Answer::Good
        );
        assert_eq!(answer("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\"8\""), Answer::Wrong);
        assert_eq!(answer("HTTP/1.1 503 X\r\nContent-Length: 3\r\n\r\n\"7\""), Answer::Wrong);
    }

    #[test]
    fn a_cut_or_unframed_answer_breaks_the_connection() {
        assert_eq!(answer("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\"7\""), Answer::Broken);
        assert_eq!(answer("HTTP/1.1 200 OK\r\n\r\n\"7\""), Answer::Broken);
        assert_eq!(answer(""), Answer::Broken);
    }
}
