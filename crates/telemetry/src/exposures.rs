//! Exposures: who was given which arm of an experiment, each once while it is remembered, as JSON lines in rotated files.
//!
//! A request asks a set whether this person's arm is told already, and only if not puts an event into a bounded queue; a thread of its own writes. What finds
//! the queue full or cannot be written is lost and counted. The set has two generations of a bounded size, so what comes again within one is told once; after
//! a restart it is told again, so whoever counts takes the first of each `experiment`, `bucket_version` and `subject`.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use holdfast_types::{ModelName, Mono, Revision, TenantId, Version};

use crate::clock::Wall;
use crate::family::{Family, Label};
use crate::lines::{Lines, LinesOptions};
use crate::metric::Counter;
use crate::once::Once;
use crate::registry::Registry;
use crate::spool::{Drain, Flushed, Spool, SpoolOptions};
use crate::text::utc;

/// How long an event waits for company.
const LINGER: Duration = Duration::from_millis(200);

/// An arm that somebody was given.
#[derive(Clone, Debug)]
pub struct Exposure {
    /// When.
    pub at: Mono,
    /// By which request.
    pub request_id: Bytes,
    /// Whose request.
    pub tenant: TenantId,
    /// For which model.
    pub model: ModelName,
    /// The arm's version.
    pub version: Version,
    /// Under which table.
    pub revision: Revision,
    /// The experiment.
    pub experiment: Arc<str>,
    /// Its bucket version.
    pub bucket_version: u32,
    /// The arm.
    pub arm: Arc<str>,
    /// How it came about: `experiment`, or `sticky` where the key was kept from before.
    pub reason: &'static str,
    /// By which key: `user`, `device` or `tenant`.
    pub key: &'static str,
    /// Who: a published hash of the key, the same in all experiments.
    pub subject: u64,
}

impl Exposure {
    fn line(&self, wall: Wall, out: &mut Vec<u8>) {
        let told = json!({
            "time": utc(wall.millis_at(self.at)),
            "experiment": &*self.experiment,
            "bucket_version": self.bucket_version,
            "arm": &*self.arm,
            "reason": self.reason,
            "key": self.key,
            "subject": format!("{:016x}", self.subject),
            "tenant": self.tenant.as_str(),
            "model": self.model.as_str(),
            "version": self.version.as_str(),
            "revision": self.revision.0,
            "request_id": String::from_utf8_lossy(&self.request_id),
        });
        out.extend_from_slice(told.to_string().as_bytes());
        out.push(b'\n');
    }
}

/// How exposures are kept.
#[derive(Clone, Debug)]
pub struct ExposureOptions {
    /// Where their files are.
    pub folder: PathBuf,
    /// A file that has this many bytes is followed by the next.
    pub max_file_size: u64,
    /// The most bytes of all files.
    pub max_total_size: u64,
    /// How long they are kept, if there is room.
    pub retention: Duration,
    /// The most events of a worker that wait to be written.
    pub queue: usize,
    /// How many workers there are ([`crate::use_part`]).
    pub workers: usize,
    /// How many are remembered, so that they are told once.
    pub remember: usize,
}

/// What is counted.
#[derive(Clone, Debug, Default)]
pub struct ExposureLosses {
    /// Events that were written.
    pub written: Counter,
    /// Events that found the queue full.
    pub queue_full: Counter,
    /// Events that the disk did not take.
    pub write_failed: Counter,
}

impl ExposureLosses {
    /// Shown from the start, so that a loss is a rise.
    pub(crate) fn register(registry: &Registry) -> Self {
        let lost: Family<Counter, 1> = registry.family(
            "holdfast_exposures_lost_total",
            "Exposures that were lost, by reason: the queue was full, or the disk did not take them.",
            [Label::closed("reason")],
            (),
        );
        Self {
            written: registry.counter("holdfast_exposures_total", "Exposures written: arms that people were given."),
            queue_full: lost.get(["queue_full"]),
            write_failed: lost.get(["write_failed"]),
        }
    }
}

/// The handle. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ExposureLog(Option<Arc<On>>);

#[derive(Debug)]
struct On {
    spool: Spool<Exposure>,
    told: Once,
}

impl ExposureLog {
    /// Starts the writer.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(options: ExposureOptions, losses: ExposureLosses) -> io::Result<Self> {
        let spool_options =
            SpoolOptions { name: "exposures", parts: options.workers, most: options.queue.max(1), linger: LINGER };
        let told = Once::new(options.remember);
        let lines = LinesOptions {
            folder: options.folder,
            max_file_size: options.max_file_size,
            max_total_size: options.max_total_size,
            retention: options.retention,
        };
        let writer = Writer { lines: Lines::new(lines), losses: losses.clone(), failing: false, batch: Vec::new() };
        let spool = Spool::start(spool_options, losses.queue_full, writer)?;
        Ok(Self(Some(Arc::new(On { spool, told }))))
    }

    /// One that keeps none.
    #[must_use]
    pub const fn off() -> Self {
        Self(None)
    }

    /// Whether this arm of this person has to be told. It counts as told from now on. `arm` is a hash of experiment, bucket version and arm.
    #[must_use]
    pub fn is_due(&self, subject: u64, arm: u64) -> bool {
        self.0.as_ref().is_some_and(|on| on.told.is_first(subject ^ arm.rotate_left(32)))
    }

    /// Queues an event. Never blocks.
    pub fn record(&self, exposure: Exposure) {
        if let Some(on) = &self.0 {
            on.spool.push(exposure);
        }
    }

    /// Writes what is queued, for at most `bound`; nothing is taken after that.
    #[must_use]
    pub fn shutdown(&self, bound: Duration) -> Flushed {
        self.0.as_ref().map_or(Flushed::All, |on| on.spool.shutdown(bound))
    }
}

struct Writer {
    lines: Lines,
    losses: ExposureLosses,
    /// It is told once when it begins to fail, and once when that ends.
    failing: bool,
    batch: Vec<u8>,
}

impl Drain<Exposure> for Writer {
    fn write(&mut self, batch: &mut Vec<Exposure>) {
        let wall = Wall::read();
        self.batch.clear();
        batch.iter().for_each(|exposure| exposure.line(wall, &mut self.batch));
        match self.lines.append(&self.batch) {
            Ok(()) => {
                self.losses.written.add(batch.len() as u64);
                if std::mem::take(&mut self.failing) {
                    tracing::info!("exposures are written again");
                }
            }
            Err(error) => {
                self.losses.write_failed.add(batch.len() as u64);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::error!(%error, "exposures cannot be written, and are lost");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::numbered;
    use holdfast_testkit::TempDir;
    use serde_json::Value;

    const LONG: Duration = Duration::from_secs(20);

    fn options(dir: &TempDir) -> ExposureOptions {
        ExposureOptions {
            folder: dir.join("exposures"),
            max_file_size: 1 << 20,
            max_total_size: 1 << 22,
            retention: Duration::from_secs(86_400),
            queue: 1_000,
            workers: 1,
            remember: 3_200,
        }
    }

    fn exposure(subject: u64) -> Exposure {
        Exposure {
            reason: "experiment",
            at: Mono(5),
            request_id: "r-1".into(),
            tenant: TenantId::parse("acme").unwrap(),
            model: ModelName::parse("screen").unwrap(),
            version: Version::parse("2").unwrap(),
            revision: Revision(7),
            experiment: "ab".into(),
            bucket_version: 3,
            arm: "new".into(),
            key: "user",
            subject,
        }
    }

    fn written(dir: &TempDir) -> Vec<Value> {
        let files = numbered(&dir.join("exposures")).unwrap();
        let texts = files.iter().map(|(_, path)| std::fs::read_to_string(path).unwrap());
        texts.collect::<String>().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn each_is_told_once_as_a_line() {
        let dir = TempDir::new();
        let losses = ExposureLosses::default();
        let log = ExposureLog::start(options(&dir), losses.clone()).unwrap();
        for subject in [1, 2, 1, 1, 2, 3] {
            if log.is_due(subject, 9) {
                log.record(exposure(subject));
            }
        }
        assert!(log.is_due(1, 8), "another arm, or another bucket version, is another exposure");
        assert_eq!(log.shutdown(LONG), Flushed::All);
        let lines = written(&dir);
        let subjects: Vec<&str> = lines.iter().map(|line| line["subject"].as_str().unwrap()).collect();
        assert_eq!(subjects, ["0000000000000001", "0000000000000002", "0000000000000003"]);
        let mut first = lines[0].clone();
        assert!(first.as_object_mut().unwrap().remove("time").unwrap().is_string());
        let want = json!({
            "experiment": "ab", "bucket_version": 3, "arm": "new", "reason": "experiment", "key": "user", "subject": "0000000000000001",
            "tenant": "acme", "model": "screen", "version": "2", "revision": 7, "request_id": "r-1",
        });
        assert_eq!(first, want);
        assert_eq!((losses.written.get(), losses.queue_full.get(), losses.write_failed.get()), (3, 0, 0));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_what_comes_often_is_not_forgotten() {
        let dir = TempDir::new();
        let log = ExposureLog::start(options(&dir), ExposureLosses::default()).unwrap();
        let spread = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        assert!(log.is_due(spread(1_000_000), 0));
        for n in 0..20_000 {
            assert!(log.is_due(spread(n), 0), "{n}");
            assert!(!log.is_due(spread(1_000_000), 0), "it has been asked for all the time");
        }
        let on = log.0.as_ref().unwrap();
        let kept = on.told.kept();
        assert!(kept <= 3_200, "{kept}");
        assert!(log.is_due(spread(0), 0), "what was long ago is told again");
    }

    #[test]
    fn what_is_lost_is_counted() {
        let dir = TempDir::new();
        let losses = ExposureLosses::default();
        std::fs::write(dir.join("exposures"), "no folder").unwrap();
        let log = ExposureLog::start(ExposureOptions { queue: 4, ..options(&dir) }, losses.clone()).unwrap();
        (0..1_000).for_each(|subject| log.record(exposure(subject)));
        assert_eq!(log.shutdown(LONG), Flushed::All);
        assert_eq!(losses.written.get(), 0);
        assert_eq!(losses.queue_full.get() + losses.write_failed.get(), 1_000);
        assert!(losses.write_failed.get() > 0);
        assert!(!ExposureLog::off().is_due(1, 1));
    }
}
