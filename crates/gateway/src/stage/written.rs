//! How a request's JSON lies in its body: tensors may be behind it, and a coding over it.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::{GzDecoder, ZlibDecoder};
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderName};

use holdfast_codec::oip;

use super::judge::number;

const JSON_LENGTH: HeaderName = HeaderName::from_static(oip::JSON_LENGTH_HEADER);

/// Most of a coded body that is unpacked: a few bytes may stand for any number.
const MOST: usize = 1 << 20;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// How many bytes of it are JSON, if not all.
    json: usize,
    coding: Coding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Plain,
    Gzip,
    Deflate,
}

impl Written {
    /// By the request's fields, in one pass. None: nobody can tell, or in a coding that is not read here.
    pub fn of(fields: &HeaderMap) -> Option<Self> {
        let mut this = Self { json: usize::MAX, coding: Coding::Plain };
        for (name, value) in fields {
            if *name == JSON_LENGTH {
                this.json = number(value).and_then(|length| usize::try_from(length).ok())?;
            } else if *name == CONTENT_ENCODING {
                let told = value.as_bytes().trim_ascii();
                this.coding = match this.coding {
                    same if told.eq_ignore_ascii_case(b"identity") => same,
                    Coding::Plain if told.eq_ignore_ascii_case(b"gzip") => Coding::Gzip,
                    Coding::Plain if told.eq_ignore_ascii_case(b"deflate") => Coding::Deflate,
                    // One over another, or an unknown one.
                    _ => return None,
                };
            }
        }
        Some(this)
    }

    /// The JSON, or its first `most` bytes if it is coded, and whether that is all of it. None: it cannot be unpacked.
    pub fn json<'b>(&self, body: &'b [u8], most: usize) -> Option<(Cow<'b, [u8]>, bool)> {
        let unpacked = match self.coding {
            Coding::Plain => return Some((Cow::Borrowed(body.get(..self.json).unwrap_or(body)), true)),
            Coding::Gzip => unpack(GzDecoder::new(body), most.min(MOST)),
            Coding::Deflate => unpack(ZlibDecoder::new(body), most.min(MOST)),
        };
        let (mut json, mut is_whole) = unpacked?;
        if self.json <= json.len() {
            json.truncate(self.json);
            is_whole = true;
        }
        Some((Cow::Owned(json), is_whole))
    }
}

fn unpack(from: impl Read, most: usize) -> Option<(Vec<u8>, bool)> {
    let mut out = Vec::new();
    from.take(most as u64 + 1).read_to_end(&mut out).ok()?;
    let is_whole = out.len() <= most;
    out.truncate(most);
    Some((out, is_whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use http::HeaderValue;

    const JSON: &[u8] = br#"{"id":"a","inputs":[]}"#;

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    fn deflate(bytes: &[u8]) -> Vec<u8> {
        let mut packer = ZlibEncoder::new(Vec::new(), Compression::best());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    #[test]
    fn json_is_found_under_a_coding_and_before_tensors() {
        let with_tensors = [JSON, b"\0\x01{\"id\":\"b\"}"].concat();
        for (coding, packed) in [
            ("identity", with_tensors.clone()),
            ("gzip", gzip(&with_tensors)),
            ("GZIP", gzip(&with_tensors)),
            ("deflate", deflate(&with_tensors)),
        ] {
            let written = Written::of(&fields(&[
                ("content-type", "application/octet-stream"),
                ("content-encoding", coding),
                (oip::JSON_LENGTH_HEADER, "22"),
            ]));
            let (json, is_whole) = written.unwrap().json(&packed, MOST).unwrap();
            assert_eq!((&*json, is_whole), (JSON, true), "{coding}");
        }
        let gzipped = Written::of(&fields(&[("content-encoding", "gzip")])).unwrap();
        assert_eq!(gzipped.json(&gzip(JSON), MOST).unwrap(), (Cow::Borrowed(JSON), true));
        assert_eq!(gzipped.json(&gzip(JSON), 9).unwrap(), (Cow::Borrowed(&JSON[..9]), false));
    }

    #[test]
    fn what_nobody_can_tell_is_not_read() {
        for unknown in [
            &[("content-encoding", "br")][..],
            &[("content-encoding", "gzip, deflate")],
            &[("content-encoding", "gzip"), ("content-encoding", "gzip")],
            &[("content-encoding", "")],
            &[(oip::JSON_LENGTH_HEADER, "x")],
        ] {
            assert_eq!(Written::of(&fields(unknown)), None, "{unknown:?}");
        }
        let gzipped = Written::of(&fields(&[("content-encoding", "gzip")])).unwrap();
        let whole = gzip(&[7; 4_000]);
        assert_eq!(gzipped.json(JSON, MOST), None);
        assert_eq!(gzipped.json(&whole[..whole.len() / 2], MOST), None);
    }

    #[test]
    fn of_what_a_few_bytes_stand_for_a_bounded_part_is_unpacked() {
        let bomb = gzip(&vec![b' '; 64 << 20]);
        assert!(bomb.len() < 128 << 10);
        let gzipped = Written::of(&fields(&[("content-encoding", "gzip")])).unwrap();
        let (json, is_whole) = gzipped.json(&bomb, usize::MAX).unwrap();
        assert_eq!((json.len(), is_whole), (MOST, false));
    }
}
