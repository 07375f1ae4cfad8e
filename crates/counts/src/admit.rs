//! Admission at three levels, warm: connection, user and tenant by rate, and what runs by user and tenant; taken and given back.

use std::hint::black_box;

use holdfast_config::{Source, load};
use holdfast_gateway::Measured;
use holdfast_types::{ModelName, Mono, TenantId};

/// Users that ask in turn.
const USERS: usize = 100;

/// `with_counts`: also what runs at once and bytes.
pub(crate) fn run(with_counts: bool, count: u32) {
    let more = if with_counts { ", concurrency: 100, bytes: 1GiB/s" } else { "" };
    let text = format!(
        "auth: {{ trusted_header: x-tenant, trusted_user_header: x-user }}\nplans:\n  - name: p\n    connection: {{ requests: 1000000/s }}\n    \
         user: {{ requests: 1000000/s{more} }}\n    tenant: {{ requests: 1000000/s{more} }}\ntenants: [{{ name: a, plan: p }}]\n"
    );
    let config = load(&Source::text("counts.yaml", &text)).expect("the configuration is right").config;
    let limits =
        Measured::new(&config, &TenantId::parse("a").expect("a name"), &ModelName::parse("m").expect("a name"));
    let users: Vec<String> = (0..USERS).map(|user| format!("user-{user}@example.com")).collect();
    crate::laps(count, |lap| {
        let user = &users[lap as usize % USERS];
        // From a moment after the start on, 10,000 requests a second.
        let now = Mono((1 << 60) + u64::from(lap) * 100_000);
        assert!(limits.request(now, black_box(user.as_bytes()), 1_024));
    });
}
