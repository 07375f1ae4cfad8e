//! What is kept of a submission: which version it was resolved to, for which model, under which revision, with which arms, and until when.

use holdfast_types::{ModelName, Revision, Version};

use crate::bytes::{Reader, put_number, put_text};

/// The form of these bytes.
const FORM: u8 = 1;
/// The most bytes of arms that are kept.
pub const MOST_ARMS: usize = 2_048;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The model that was asked.
    pub model: ModelName,
    /// The version that judges.
    pub version: Version,
    /// The revision of the table that it was looked up in.
    pub revision: Revision,
    /// The arms of experiments, as they are stamped. Opaque here.
    pub arms: Option<Box<str>>,
    /// Until when it counts, in milliseconds since 1970.
    pub until: u64,
}

impl Record {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        self.put(&mut out);
        out
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.push(FORM);
        put_number(out, self.until);
        put_number(out, self.revision.0);
        put_text(out, self.model.as_str());
        put_text(out, self.version.as_str());
        put_text(out, self.arms.as_deref().unwrap_or_default());
    }

    /// From bytes. None: they are no record that this release knows.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let record = Self::read(&mut reader)?;
        reader.0.is_empty().then_some(record)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        if reader.byte()? != FORM {
            return None;
        }
        let (until, revision) = (reader.number()?, Revision(reader.number()?));
        let model = ModelName::parse(reader.text()?).ok()?;
        let version = Version::parse(reader.text()?).ok()?;
        let arms = Some(reader.text()?).filter(|arms| !arms.is_empty());
        // They become a header's value.
        if arms.is_some_and(|arms| arms.len() > MOST_ARMS || !arms.bytes().all(|b| (0x20..0x7f).contains(&b))) {
            return None;
        }
        Some(Self { model, version, revision, arms: arms.map(Into::into), until })
    }
}
