//! A gateway's side: follows one of several control planes, and starts from its last good table when none answers.
//!
//! One task keeps the link. It tries the control planes in turn, with a deadline for each and growing, jittered pauses; takes tables into
//! what it holds; and tells the gateway's status when it changes and once a second. What the gateway has is never taken from it: without a
//! control plane it serves on, and [`Freshness`] says since when nothing confirms it.

mod fresh;
mod save;
mod seek;
mod session;
mod state;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tonic::transport::{Endpoint, Uri};
use tracing::{info, warn};

use holdfast_plane::{ControlEnd, GatewayEnd, View, pair};
use holdfast_types::GatewayName;

use crate::auth::{ClientTls, Renewed, Secret};
use crate::error::WireError;
use crate::saved::Folder;
pub use fresh::Freshness;
use session::Ended;
use state::State;

/// How a gateway follows its control planes.
#[derive(Clone, Debug)]
pub struct FollowerSettings {
    /// Its name, which no other gateway has.
    pub gateway: GatewayName,
    /// What it calls its release.
    pub release: String,
    /// The control planes: `http://HOST:PORT` or `https://HOST:PORT`, tried in this order.
    pub urls: Vec<String>,
    /// The secret that they ask for.
    pub secret: Option<Secret>,
    /// Whom to believe, for `https`.
    pub tls: Option<Renewed<ClientTls>>,
    /// How long one control plane may take to answer.
    pub connect_within: Duration,
    /// The pause after the first failure. It doubles, up to `pause_max`, and begins anew once a control plane has answered.
    pub pause_min: Duration,
    /// The longest pause.
    pub pause_max: Duration,
    /// When nothing was pushed for so long, what is held is compared.
    pub poll: Duration,
    /// How long a table may take to be fetched.
    pub fetch_within: Duration,
    /// A control plane of which nothing is heard for so long is gone.
    pub dead_after: Duration,
    /// How often the gateway says that it is there.
    pub heartbeat: Duration,
    /// How long a changed status waits for further changes.
    pub settle: Duration,
    /// How long control planes may take before the gateway starts from its last good table.
    pub start_within: Duration,
    /// The shortest time between two savings of the table.
    pub save_every: Duration,
}

impl FollowerSettings {
    /// With everything else as it is by default.
    #[must_use]
    pub fn new(gateway: GatewayName, urls: Vec<String>) -> Self {
        Self {
            gateway,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            urls,
            secret: None,
            tls: None,
            connect_within: Duration::from_secs(3),
            pause_min: Duration::from_millis(100),
            pause_max: Duration::from_secs(5),
            poll: Duration::from_secs(5),
            fetch_within: Duration::from_secs(30),
            // Control planes say something every second.
            dead_after: Duration::from_secs(5),
            heartbeat: Duration::from_secs(1),
            settle: Duration::from_millis(50),
            start_within: Duration::from_secs(3),
            save_every: Duration::from_secs(1),
        }
    }
}

/// A link that is kept. Dropping it ends it; the gateway keeps what it was told.
pub struct Follower {
    freshness: watch::Receiver<Freshness>,
    goodbye: Goodbye,
    _tasks: JoinSet<()>,
}

/// Tells the control plane that the gateway has stopped.
#[derive(Clone, Debug)]
pub struct Goodbye {
    leaving: Arc<watch::Sender<bool>>,
    /// Closed: the link has ended.
    linked: watch::Receiver<()>,
}

impl Goodbye {
    /// To be called when no request is answered any more: roll-outs wait for this gateway no longer. Returns when the control plane has taken note, or
    /// after `most`; without a link there is nobody to be told.
    pub async fn say(mut self, most: Duration) {
        self.leaving.send_replace(true);
        let ended = async { while self.linked.changed().await.is_ok() {} };
        if tokio::time::timeout(most, ended).await.is_err() {
            warn!(
                "the control plane has not taken the goodbye: roll-outs wait for this gateway until its lease is over"
            );
        }
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("freshness", &*self.freshness.borrow()).finish_non_exhaustive()
    }
}

impl Follower {
    /// Begins to follow. The view is empty (revision 0) until a control plane has answered, or `start_within` has passed and there is a
    /// saved table. In a runtime of Tokio.
    ///
    /// # Errors
    /// Settings that cannot be used.
    pub fn start(settings: FollowerSettings, folder: Option<Folder>) -> Result<(Self, ControlEnd), WireError> {
        let endpoints = endpoints(&settings)?;
        let (GatewayEnd { view, status, .. }, end) = pair(settings.gateway.clone(), View::default());
        let (fresh, freshness) = fresh::channel();
        let (folder, settings) = (folder.map(Arc::new), Arc::new(settings));
        let state = State::new(Arc::new(view), fresh);
        let mut tasks = JoinSet::new();
        let (leaving, left) = watch::channel(false);
        let (alive, linked) = watch::channel(());
        let following = follow(settings, endpoints, state, status, (folder, left));
        tasks.spawn(async move {
            let _alive = alive;
            following.await;
        });
        let goodbye = Goodbye { leaving: Arc::new(leaving), linked };
        Ok((Self { freshness, goodbye, _tasks: tasks }, end))
    }

    /// What tells the control plane at the end that the gateway has stopped.
    #[must_use]
    pub fn goodbye(&self) -> Goodbye {
        self.goodbye.clone()
    }

    /// Whether the table is known to be the control plane's.
    #[must_use]
    pub fn freshness(&self) -> watch::Receiver<Freshness> {
        self.freshness.clone()
    }
}

pub(crate) struct Target {
    pub(crate) url: Arc<str>,
    plain: Endpoint,
    tls: Option<Renewed<ClientTls>>,
}

impl Target {
    /// With the certificates that are in force now.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, WireError> {
        let Some(tls) = &self.tls else { return Ok(self.plain.clone()) };
        self.plain.clone().tls_config(tls.current().config()).map_err(WireError::Tls)
    }
}

pub(crate) fn endpoints(settings: &FollowerSettings) -> Result<Vec<Target>, WireError> {
    if settings.urls.is_empty() {
        return Err(WireError::NoUrl);
    }
    settings.urls.iter().map(|url| target(settings, url)).collect()
}

fn target(settings: &FollowerSettings, url: &str) -> Result<Target, WireError> {
    let wrong = |why| WireError::Url { url: url.to_owned(), why };
    let uri = Uri::from_str(url).map_err(|_| wrong("it is no URL"))?;
    let tls = match uri.scheme_str() {
        Some("http") => None,
        Some("https") => {
            let tls = settings.tls.as_ref();
            Some(tls.ok_or_else(|| wrong("it is not said who signs the certificates of control planes"))?)
        }
        _ => return Err(wrong("it does not begin with http:// or https://")),
    };
    let half = settings.dead_after / 2;
    let plain = Endpoint::from(uri)
        .connect_timeout(settings.connect_within)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(half)
        .keep_alive_timeout(half)
        .keep_alive_while_idle(true);
    let target = Target { url: url.into(), plain, tls: tls.cloned() };
    target.endpoint()?;
    Ok(target)
}

async fn follow(
    settings: Arc<FollowerSettings>,
    targets: Vec<Target>,
    mut state: State,
    status: watch::Receiver<Arc<holdfast_plane::Status>>,
    (folder, leaving): (Option<Arc<Folder>>, watch::Receiver<bool>),
) {
    if let Some(folder) = &folder {
        state.load(save::load(folder).await);
        if let Some(tokens) = save::load_tokens(folder).await {
            state.take_tokens(tokens);
        }
    }
    let tokens = save::run_tokens(folder.clone(), state.view());
    let saver = save::run(folder, state.held(), status.clone(), settings.save_every);
    let starter = state.starter(settings.start_within);
    let aside = async {
        tokio::join!(saver, starter, tokens);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = links(&settings, &targets, &mut state, &status, &leaving) => info!("the gateway follows no control plane any more"),
        () = aside => {}
    }
}

/// Ends when the gateway has dropped its end, or leaves.
async fn links(
    settings: &FollowerSettings,
    targets: &[Target],
    state: &mut State,
    status: &watch::Receiver<Arc<holdfast_plane::Status>>,
    leaving: &watch::Receiver<bool>,
) {
    let mut pauses = Pauses::new(settings.pause_min, settings.pause_max);
    let mut number = 0;
    while let Some(target) = targets.get(number) {
        number = (number + 1) % targets.len();
        let ended = session::run(settings, (targets, target), state, status.clone(), leaving.clone()).await;
        if *leaving.borrow() {
            return;
        }
        let pause = match &ended {
            Ended::Moved(leader) => {
                info!(from = %target.url, "another control plane leads: the link moves there");
                number = *leader;
                state.lost(&ended.to_string());
                continue;
            }
            Ended::GatewayGone => return,
            Ended::Lost { answered: true, .. } => pauses.anew(),
            Ended::Lost { answered: false, .. } => pauses.next(),
            Ended::Replaced => pauses.longest(),
        };
        let (why, pause_ms) = (ended.to_string(), u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
        let what = match ended {
            Ended::Lost { answered: false, .. } => "no link to the control plane could be made",
            _ => "the link to the control plane is lost",
        };
        warn!(control = %target.url, why, pause_ms, "{what}");
        state.lost(&why);
        tokio::select! {
            () = sleep(pause) => {}
            () = session::left(leaving.clone()) => return,
        }
    }
}

/// Growing pauses, each somewhere between its half and its whole, so that gateways that lost one control plane do not come back as one.
struct Pauses {
    min: Duration,
    max: Duration,
    now: Duration,
    random: u64,
}

impl Pauses {
    fn new(min: Duration, max: Duration) -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self { min, max, now: min, random: RandomState::new().hash_one(std::process::id()) }
    }

    fn anew(&mut self) -> Duration {
        self.now = self.min;
        self.next()
    }

    fn longest(&mut self) -> Duration {
        self.now = self.max;
        self.next()
    }

    fn next(&mut self) -> Duration {
        let pause = self.now.min(self.max);
        self.now = pause.saturating_mul(2);
        // A step of splitmix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        pause / 2 + pause.mul_f64((mixed >> 11) as f64 / (1_u64 << 53) as f64) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_begin_anew() {
        let ms = Duration::from_millis;
        let mut pauses = Pauses::new(ms(100), ms(1_000));
        for bound in [100, 200, 400, 800, 1_000, 1_000] {
            let pause = pauses.next();
            assert!(pause >= ms(bound / 2) && pause <= ms(bound), "{pause:?} of {bound}");
        }
        assert!(pauses.anew() <= ms(100));
        assert!(pauses.longest() >= ms(500));
        let drawn: std::collections::BTreeSet<_> = (0..20).map(|_| pauses.anew()).collect();
        assert!(drawn.len() > 15, "jitter: {drawn:?}");
    }
}
