//! An access record as a line of JSON: what the log's own thread does for each request.

use std::hint::black_box;
use std::time::Duration;

use holdfast_telemetry::{AccessRecord, Endpoint, Outcome, Timing, Wall};
use holdfast_types::{ModelName, Mono, ReplicaName, Revision, TenantId, Version};

pub(crate) fn run(count: u32) {
    let micros = Duration::from_micros;
    let record = AccessRecord {
        ended: Mono::ZERO.after(Duration::from_secs(7)),
        request_id: "0123456789abcdef000000000001".to_owned().into(),
        tenant: TenantId::parse("t42").ok(),
        model: ModelName::parse("m").ok(),
        version: Version::parse("7").ok(),
        revision: Some(Revision(1)),
        reason: Some("pin"),
        replica: ReplicaName::parse("r0").ok(),
        method: "POST",
        client: Some("127.0.0.1:45678".into()),
        outcome: Outcome {
            endpoint: Endpoint::Infer,
            status: 200,
            error: None,
            attempts: 1,
            bytes_in: 1_024,
            bytes_out: 204,
            timing: Timing { total: micros(312), wait: micros(0), upstream: Some(micros(271)) },
        },
    };
    let (wall, mut text) = (Wall::read(), String::new());
    crate::laps(count, |_| {
        text.clear();
        black_box(&record).push_line(wall, &mut text);
        assert!(black_box(text.len()) > 200);
    });
}
