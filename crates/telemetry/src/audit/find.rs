//! Which records are asked for.

use std::io;

use serde_json::Value;

use super::files::{AuditFiles, read_lines};
use super::sealed::unseal;

/// What is looked for; what is None matches everything.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// The request's id.
    pub request_id: Option<String>,
    /// The tenant.
    pub tenant: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The version.
    pub version: Option<String>,
    /// From this time on, as it stands in records, or a beginning of it.
    pub since: Option<String>,
    /// Before this time.
    pub until: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Records of answers, in the order of the log.
    pub records: Vec<Value>,
    /// Gaps within the times that were asked for: records that may be among the missing ones.
    pub gaps: Vec<Value>,
    /// Lines that are no whole record.
    pub unreadable: u64,
}

impl AuditFiles {
    /// Reads the log from its beginning.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn find(&self, query: &AuditQuery) -> io::Result<Found> {
        let mut found = Found::default();
        for (_, path) in self.list()? {
            match read_lines(&path, |_, line, ended| query.look(line, ended, &mut found)) {
                // Retention has just removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        Ok(found)
    }
}

impl AuditQuery {
    fn look(&self, line: &[u8], ended: bool, found: &mut Found) {
        // An unfinished line is being written.
        if !ended {
            return;
        }
        let Ok(sealed) = unseal(line) else {
            found.unreadable += 1;
            return;
        };
        if !self.is_within(&sealed.facts.time) {
            return;
        }
        match &*sealed.facts.kind {
            "answer" => {
                let value: Value = serde_json::from_slice(line).unwrap_or_default();
                if self.wants(&value) {
                    found.records.push(value);
                }
            }
            "gap" => found.gaps.push(serde_json::from_slice(line).unwrap_or_default()),
            _ => {}
        }
    }

    /// Times are of one form, so that their order is that of their texts; a beginning of one stands for its first moment.
    fn is_within(&self, time: &str) -> bool {
        let whole = |asked: &str| asked.trim_end_matches('Z').to_owned();
        self.since.as_deref().is_none_or(|since| time >= whole(since).as_str())
            && self.until.as_deref().is_none_or(|until| time < whole(until).as_str())
    }

    fn wants(&self, record: &Value) -> bool {
        let asked = [
            ("request_id", &self.request_id),
            ("tenant", &self.tenant),
            ("model", &self.model),
            ("version", &self.version),
        ];
        asked.iter().all(|(key, asked)| {
            asked.as_deref().is_none_or(|asked| record.get(key).and_then(Value::as_str) == Some(asked))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::record::tests::entry;
    use crate::audit::record::{Line, Tip, seal};

    fn found(query: &AuditQuery) -> Vec<String> {
        let (mut tip, mut text, mut found) = (Tip::START, String::new(), Found::default());
        // 2023-11-14T22:13:20.000Z, and a second more each time.
        for (number, id) in ["a", "b", "c"].iter().enumerate() {
            seal(&mut tip, 1_700_000_000_000 + number as u64 * 1_000, &Line::Answer(&entry(id)), &mut text);
        }
        text.push_str("{}\n");
        for line in text.lines() {
            query.look(line.as_bytes(), true, &mut found);
        }
        assert_eq!(found.unreadable, 1);
        found.records.iter().map(|r| r["request_id"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn by_each_name_and_by_times() {
        let all = AuditQuery::default();
        assert_eq!(found(&all), ["a", "b", "c"]);
        assert_eq!(found(&AuditQuery { request_id: Some("b".into()), ..all.clone() }), ["b"]);
        assert_eq!(found(&AuditQuery { tenant: Some("acme".into()), ..all.clone() }).len(), 3);
        for (tenant, model, version) in [("globex", "screen", "1"), ("acme", "x", "1"), ("acme", "screen", "2")] {
            let (tenant, model, version) = (Some(tenant.into()), Some(model.into()), Some(version.into()));
            assert!(found(&AuditQuery { tenant, model, version, ..all.clone() }).is_empty());
        }
        let since = |text: &str| found(&AuditQuery { since: Some(text.into()), ..AuditQuery::default() });
        let until = |text: &str| found(&AuditQuery { until: Some(text.into()), ..AuditQuery::default() });
        assert_eq!(since("2023-11-14T22:13:21Z"), ["b", "c"]);
        assert_eq!(until("2023-11-14T22:13:21Z"), ["a"]);
        assert_eq!((since("2023-11-14").len(), until("2023-11-14").len(), until("2023-11-15").len()), (3, 0, 3));
    }
}
