//! Requests that come too early: before their table, their token's key, or the ledger's word. What they wait for, and for how long.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;

use holdfast_telemetry::Clock;
use holdfast_types::{Failure, FailureKind, Revision};

use super::accept::budget;
use super::finish;
use super::flow::{Entered, enter_now, enter_once};
use super::submission::{self, Asking};
use crate::body::AnswerBody;
use crate::exchange::Exchange;
use crate::identity::Issuer;
use crate::table::Table;

/// A request that was here before its table, or before its token's key.
pub struct Early {
    pub(super) exchange: Box<Exchange>,
    pub(super) request: Request<Incoming>,
    pub(super) waits: Waits,
}

/// What a request waits for before it can be entered, and how long at most.
pub(super) enum Waits {
    Table(Revision, Duration),
    Keys(Arc<Issuer>, Duration),
    Ledger(Box<Asking>),
}

/// What a request may wait for before it has its route: its token's keys, its table, the ledger. Each of them once.
const EARLIES: usize = 3;

/// A request whose token's key is being fetched.
pub(super) fn wait_for_issuer(
    exchange: Box<Exchange>,
    request: Request<Incoming>,
    table: &Table,
    issuer: Arc<Issuer>,
) -> Entered {
    let settings = &table.settings;
    let most = budget(request.headers(), settings).unwrap_or(settings.request);
    Entered::Early(Box::new(Early { exchange, request, waits: Waits::Keys(issuer, most) }))
}

/// Waits for what a request came too early for, and then enters it.
///
/// # Cancel safety
/// Dropping the future settles the exchange.
pub async fn enter_later(mut early: Box<Early>) -> Entered {
    for _ in 0..EARLIES {
        let Early { exchange, request, waits } = *early;
        let entered = match waits {
            Waits::Table(revision, most) => wait_for_table(exchange, request, (revision, most)).await,
            Waits::Keys(issuer, most) => wait_for_keys(exchange, request, &issuer, most).await,
            Waits::Ledger(asking) => wait_for_ledger(exchange, request, *asking).await,
        };
        match entered {
            // Now that it is known whose it is, it may insist on a table, or be a submission that the ledger may know.
            Entered::Early(next) => early = next,
            entered => return entered,
        }
    }
    Entered::Early(early)
}

/// Asks the ledger what a submission was resolved to. After that it is known, or is not.
async fn wait_for_ledger(mut exchange: Box<Exchange>, request: Request<Incoming>, asking: Asking) -> Entered {
    let gateway = exchange.gateway().clone();
    let begun = Clock::now();
    exchange.note(|journal| journal.waits("ledger", begun));
    let how = submission::settle(&gateway, &mut exchange, asking).await;
    let now = Clock::now();
    exchange.wait += now.since(begun);
    exchange.note(|journal| journal.waited(now, how));
    enter_now(exchange, request, false)
}

/// Waits until its token's keys have been fetched. It does so once: after that its key is known, or is not.
async fn wait_for_keys(
    mut exchange: Box<Exchange>,
    request: Request<Incoming>,
    issuer: &Issuer,
    most: Duration,
) -> Entered {
    let begun = Clock::now();
    exchange.note(|journal| journal.waits("keys", begun));
    issuer.settled(most).await;
    let now = Clock::now();
    exchange.wait += now.since(begun);
    exchange.note(|journal| journal.waited(now, "ready"));
    enter_once(exchange, request, false)
}

async fn wait_for_table(
    mut exchange: Box<Exchange>,
    request: Request<Incoming>,
    (revision, most): (Revision, Duration),
) -> Entered {
    let gateway = exchange.gateway().clone();
    let begun = Clock::now();
    exchange.note(|journal| journal.waits("table", begun));
    let came = gateway.tables.reaches(revision, most).await.is_ok();
    let now = Clock::now();
    exchange.wait += now.since(begun);
    exchange.note(|journal| journal.waited(now, if came { "ready" } else { "revision" }));
    if came {
        // What its token proved was under another table, and some time ago.
        exchange.subject = None;
        return enter_now(exchange, request, false);
    }
    Entered::answered(no_such_table(exchange, revision))
}

/// The answer to a request that has waited and would wait again.
pub fn refused(early: Box<Early>) -> Response<AnswerBody> {
    let Early { exchange, waits, .. } = *early;
    match waits {
        Waits::Table(revision, _) => no_such_table(exchange, revision),
        Waits::Ledger(_) => {
            let why = "whether this submission was resolved before is not known yet";
            finish::failed(exchange, &Failure::new(FailureKind::Overloaded, why))
        }
        Waits::Keys(..) => {
            let why = "the keys of the token's issuer are being fetched";
            finish::failed(exchange, &Failure::new(FailureKind::IdentityStale, why))
        }
    }
}

/// The answer to a request whose table did not come.
fn no_such_table(exchange: Box<Exchange>, revision: Revision) -> Response<AnswerBody> {
    let in_force = exchange.gateway().tables.load().snapshot.revision();
    let why = format!("the table here is at revision {in_force}; the request insists on {revision} (revision)");
    let failure = Failure::new(FailureKind::NoHolder, why).retry_in(Duration::from_secs(1));
    finish::failed(exchange, &failure)
}
