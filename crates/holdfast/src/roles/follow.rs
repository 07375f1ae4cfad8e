//! The control plane of a gateway is elsewhere: the link to it, and what is known of the table.

use std::sync::Arc;
use std::time::Duration;

use holdfast_config::{Config, GatewaySection};
use holdfast_gateway::{Gateway, Standing};
use holdfast_net::Tasks;
use holdfast_placement::seats::Seat;
use holdfast_plane::ControlEnd;
use holdfast_telemetry::Clock;
use holdfast_types::{GatewayName, Mono};
use holdfast_wire::auth::{Renewed, Secret, ServerTls};
use holdfast_wire::follower::{Follower, FollowerSettings, Freshness, Goodbye};
use holdfast_wire::saved::{Folder, SavedError};
use holdfast_wire::seats::{Phone, Usher, listen};
use tokio::net::TcpListener;

use super::proofs;
use super::renewal::Renewal;
use super::seat::{self, Home, Keeper};
use crate::command::Failure;
use crate::lock_holder;

/// A link to control planes in other processes.
pub struct Elsewhere {
    follower: Follower,
    /// This gateway's part in who loads where.
    pub seat: Keeper,
    peers: Option<Peers>,
    renewal: Option<Renewal>,
    /// What is known of the table.
    pub standing: Arc<Standing>,
}

/// How long the control plane may take to take note that this gateway has stopped.
const FAREWELL: Duration = Duration::from_secs(2);

/// What is to be done once no request is answered any more.
pub struct Leaving {
    seat: seat::Leaving,
    goodbye: Goodbye,
}

impl Leaving {
    /// Gives the seat up and says goodbye, so that neither loads nor roll-outs wait for this gateway.
    pub async fn leave(self) {
        tokio::join!(self.seat.leave(), self.goodbye.say(FAREWELL));
    }
}

/// Where other gateways come to.
struct Peers {
    listener: TcpListener,
    secrets: Vec<Secret>,
    tls: Option<Renewed<ServerTls>>,
}

/// Begins to follow. Until a table has come, the gateway has an empty one that it does not serve.
///
/// # Errors
/// The settings cannot be used, or another process has the state folder.
pub async fn open(config: &Config) -> Result<(Elsewhere, ControlEnd), Failure> {
    let section = config.gateway.clone().unwrap_or_default();
    let renewal = Renewal::of(&section)?;
    let settings = settings(&section, renewal.as_ref())?;
    let folder = Folder::open(&config.state).map_err(|error| {
        let holder = match &error {
            SavedError::Locked { lock, .. } => lock_holder::told(lock),
            _ => String::new(),
        };
        Failure::failed(format!("{error}{holder}"))
    })?;
    tracing::info!(gateway = %settings.gateway, control = settings.urls.join(" "), "follows the control planes");
    let (seat, peers) = seat(config, &settings, renewal.as_ref()).await?;
    let (follower, control) = Follower::start(settings, Some(folder)).map_err(|e| Failure::wrong(e.to_string()))?;
    let standing = Standing::remote(Clock::now(), section.poll);
    Ok((Elsewhere { follower, seat, peers, renewal, standing }, control))
}

/// A seat for this process, which has the state folder, and where other gateways come to.
async fn seat(
    config: &Config,
    settings: &FollowerSettings,
    renewal: Option<&Renewal>,
) -> Result<(Keeper, Option<Peers>), Failure> {
    let failed = |e: std::io::Error| Failure::failed(format!("{}: {e}", config.state.display()));
    let home = Home::open(&config.state).map_err(failed)?;
    let mut peer = None;
    let mut peers = None;
    if let Some(address) = config.listen.peer {
        if address.ip().is_unspecified() {
            return Err(Failure::wrong(
                "listen.peer: other gateways are told this address; it must be one that they reach",
            ));
        }
        let failed = |e| Failure::failed(format!("cannot listen on {address} for other gateways: {e}"));
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        peer = Some(listener.local_addr().map_err(failed)?.to_string().into());
        let tls = renewal.and_then(|renewal| renewal.peers.as_ref()).map(|(server, _)| server.clone());
        peers = Some(Peers { listener, secrets: settings.secret.iter().cloned().collect(), tls });
    }
    let me = Seat { name: settings.gateway.clone(), home: home.number(), life: home.life(), peer };
    let usher = Usher::new(settings.clone()).map_err(|e| Failure::wrong(e.to_string()))?;
    let tls = renewal.and_then(|renewal| renewal.peers.as_ref()).map(|(_, client)| client.clone());
    let phone = Phone::new(settings.gateway.clone(), settings.secret.clone(), tls);
    Ok((Keeper::new(me, home, usher, phone), peers))
}

impl Elsewhere {
    /// Keeps the link and the seat, and answers other gateways.
    pub fn run(self, gateway: &Gateway, tasks: &Tasks) -> Leaving {
        let Self { follower, seat, peers, renewal, standing } = self;
        if let Some(renewal) = renewal {
            tasks.spawn(renewal.run());
        }
        let goodbye = follower.goodbye();
        tasks.spawn(follow(follower, standing));
        if let Some(Peers { listener, secrets, tls }) = peers {
            let desk = seat.desk(&gateway.driver);
            tasks.spawn(async move {
                if let Err(error) = listen(listener, secrets, tls, desk).await {
                    tracing::error!(%error, "other gateways are not answered any more");
                }
            });
        }
        let (seat, keeping) = seat.run(gateway.driver.clone());
        tasks.spawn(keeping);
        Leaving { seat, goodbye }
    }
}

/// Keeps the link, and tells the gateway what is known of its table.
async fn follow(follower: Follower, standing: Arc<Standing>) {
    let mut fresh = follower.freshness();
    loop {
        match &*fresh.borrow_and_update() {
            Freshness::Current { control } => standing.confirm(control),
            Freshness::Stale { since, why } => {
                let age = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
                standing.doubt(Mono(Clock::now().0.saturating_sub(age)), why);
            }
        }
        if fresh.changed().await.is_err() {
            // The link has ended with the gateway's end of it: what is known stays as it is.
            return std::future::pending().await;
        }
    }
}

fn settings(section: &GatewaySection, renewal: Option<&Renewal>) -> Result<FollowerSettings, Failure> {
    let wrong = |(path, reason): (&str, String)| Failure::wrong(format!("{path}: {reason}"));
    let urls = section.control.iter().flatten().map(|url| url.as_str().to_owned()).collect();
    let name = name(section)?;
    Ok(FollowerSettings {
        release: env!("CARGO_PKG_VERSION").to_owned(),
        secret: proofs::gateway_secret(section).map_err(wrong)?,
        tls: renewal.map(|renewal| renewal.control.clone()),
        poll: section.poll,
        start_within: section.start_within,
        ..FollowerSettings::new(name, urls)
    })
}

/// The configured name, or one made of the host's.
fn name(section: &GatewaySection) -> Result<GatewayName, Failure> {
    if let Some(name) = &section.name {
        return Ok(name.clone());
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    let made = host.ok().and_then(|host| from_host(&host));
    made.ok_or_else(|| Failure::wrong("gateway.name: the host has no name to make one of; write a name"))
}

fn from_host(host: &str) -> Option<GatewayName> {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let word: String = host.trim().chars().map(allowed).take(128).collect();
    GatewayName::parse(word.trim_start_matches(|c: char| !c.is_ascii_alphanumeric())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_of_hosts() {
        let made = |host| from_host(host).map(|name| name.to_string());
        assert_eq!(made("gw-1.example\n").as_deref(), Some("gw-1.example"));
        assert_eq!(made("_caf\u{e9} 1").as_deref(), Some("caf--1"));
        assert_eq!((made(""), made("--")), (None, None));
    }
}
