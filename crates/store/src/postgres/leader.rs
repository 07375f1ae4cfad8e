//! Leadership: a session's advisory lock on a connection of its own, and a term that grows with each acquisition.
//!
//! The lock keeps two live leaders apart; the term refuses the writes of one that was cut off and does not know yet. The server ends a
//! session that is silent for [`SILENCE`], so a process that hangs or a machine that vanishes does not lead for long.

use super::commit;
use super::fault::{Fault, Phase};
use super::pool::{Attempt, Backoff, Conn, Pool, millis};
use crate::api::Leader;
use crate::error::{Applied, Error, Result};
use holdfast_types::Revision;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};

/// Between two probes of a quiet connection.
const PROBE: Duration = Duration::from_secs(1);
/// After this the server gives up a silent session.
const SILENCE: Duration = Duration::from_secs(10);
/// Between two looks at the head when no notification comes.
const LOOK: Duration = Duration::from_secs(15);

/// Tries once to become the leader.
pub(super) async fn lead(pool: &Arc<Pool>, closing: watch::Receiver<bool>) -> Result<Option<Leader>> {
    let ms = millis(pool.options.deadline);
    let phase = Arc::new(Phase::default());
    let until = Instant::now() + pool.options.deadline;
    let won = match timeout_at(until, acquire(pool, &phase, ms)).await {
        Ok(outcome) => outcome.map_err(|fault| fault.into_error(&phase, ms))?,
        // A raised term without a leader harms nobody.
        Err(_) => return Err(Error::Timeout { ms, applied: Applied::No }),
    };
    let Some((conn, term)) = won else { return Ok(None) };
    let (leader, alive, probes) = Leader::new(term);
    tokio::spawn(keep(conn, pool.options.connect, alive, probes, closing));
    Ok(Some(leader))
}

async fn acquire(pool: &Pool, phase: &Arc<Phase>, ms: u64) -> Result<Option<(Conn, u64)>, Fault> {
    let conn = pool.connect(|_| {}).await?;
    let setup = format!(
        "SET idle_session_timeout = {}; SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; \
         SET tcp_keepalives_count = 3",
        SILENCE.as_millis()
    );
    conn.client.batch_execute(&setup).await?;
    let locked = conn.client.query_one("SELECT pg_try_advisory_lock($1)", &[&pool.options.lock(0)]).await?;
    if !locked.get::<_, bool>(0) {
        return Ok(None);
    }
    let (client, phase) = (Arc::clone(&conn.client), Arc::clone(phase));
    let term = commit::next_term(&Attempt { client, phase, timeout_ms: ms, idle_ms: ms }).await?;
    Ok(Some((conn, term)))
}

/// Holds the connection until the leader's value is dropped, the store is closed, or a probe fails.
async fn keep(
    conn: Conn,
    patience: Duration,
    alive: watch::Sender<bool>,
    mut probes: mpsc::Receiver<oneshot::Sender<()>>,
    mut closing: watch::Receiver<bool>,
) {
    let mut ticks = interval(PROBE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let reply = tokio::select! {
            probe = probes.recv() => match probe {
                Some(reply) => Some(reply),
                None => break,
            },
            _ = ticks.tick() => None,
            _ = closing.wait_for(|closing| *closing) => break,
        };
        let answered = timeout(patience, conn.client.batch_execute("")).await;
        if !matches!(answered, Ok(Ok(()))) {
            break;
        }
        if let Some(reply) = reply {
            // A checker that has left needs no answer.
            let _ = reply.send(());
        }
    }
    // Before the probes end: whoever is told by a probe finds it said here too.
    alive.send_replace(false);
}

/// Follows the head over a connection of its own, for as long as the store is there.
pub(super) async fn listen(pool: Arc<Pool>, head: Arc<watch::Sender<Revision>>) {
    let mut backoff = Backoff::default();
    loop {
        if listen_once(&pool, &head, &mut backoff).await.is_err() {
            tracing::debug!("the store's listener has lost its connection");
        }
        backoff.wait().await;
    }
}

async fn listen_once(pool: &Pool, head: &Arc<watch::Sender<Revision>>, backoff: &mut Backoff) -> Result<(), Fault> {
    let told = Arc::clone(head);
    let conn = pool.connect(move |payload| {
        if let Ok(revision) = payload.parse() {
            raise(&told, Revision(revision));
        }
    });
    let conn = conn.await?;
    conn.client.batch_execute(&format!("LISTEN {}", pool.options.channel())).await?;
    loop {
        // What came while nobody listened is seen here.
        let state = timeout(pool.options.connect, super::read::state(&conn.client)).await;
        raise(head, state.unwrap_or(Err(Fault::NoConnection))?.head.revision);
        backoff.reset();
        // A connection that dies is noticed at once, a server that hangs at the next look.
        let quiet = Instant::now() + LOOK;
        while Instant::now() < quiet {
            if conn.client.is_closed() {
                return Err(Fault::NoConnection);
            }
            tokio::time::sleep(PROBE).await;
        }
    }
}

/// A head never goes backwards, in whatever order the news of it come.
pub(super) fn raise(head: &watch::Sender<Revision>, to: Revision) {
    head.send_if_modified(|last| {
        let higher = to > *last;
        *last = to.max(*last);
        higher
    });
}
