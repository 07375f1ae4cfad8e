//! One link, from its first word to whatever ends it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::{debug, error, info, warn};

use holdfast_plane as plane;

use super::seek::Seek;
use super::state::{State, Took};
use super::{FollowerSettings, Target};
use crate::error::chain;
use crate::held::{Assembly, MAX_BYTES, Refusal, Stamp};
use crate::proto::control_client::ControlClient;
use crate::proto::{self, from_control, from_gateway};
use crate::{MAX_MESSAGE_BYTES, auth, words};

/// Messages to the control plane that wait to be written.
const WAITING: usize = 4;
/// How long a gateway that has dropped its end may take to say that it leaves in order.
const FAREWELL: Duration = Duration::from_secs(3);
/// Tables that came by comparing, one after the other, while the link brought none: it is broken.
const HEALED: u32 = 2;

/// Why a link ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The gateway has dropped its end.
    GatewayGone,
    /// Another link has this gateway's name.
    Replaced,
    /// This control plane cannot vouch for its table, and the one of this number leads.
    Moved(usize),
    /// Anything else. `answered`: the control plane had spoken before.
    Lost { answered: bool, why: String },
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GatewayGone => f.write_str("the gateway stops"),
            Self::Replaced => f.write_str("a newer link has this gateway's name"),
            Self::Moved(_) => f.write_str("another control plane leads"),
            Self::Lost { why, .. } => f.write_str(why),
        }
    }
}

type Client = ControlClient<Channel>;
type Opening = Pin<Box<dyn Future<Output = Result<Response<Streaming<proto::FromControl>>, Status>> + Send>>;
type Fetching = Pin<Box<dyn Future<Output = Result<Vec<proto::FromControl>, String>> + Send>>;

struct Session<'a> {
    settings: &'a FollowerSettings,
    control: Arc<str>,
    state: &'a mut State,
    client: Client,
    out: mpsc::Sender<proto::FromGateway>,
    assembly: Assembly,
    answered: bool,
    healed: u32,
}

/// Follows this control plane until the link is lost.
pub(super) async fn run(
    settings: &FollowerSettings,
    (targets, target): (&[Target], &Target),
    state: &mut State,
    status: watch::Receiver<Arc<plane::Status>>,
    leaving: watch::Receiver<bool>,
) -> Ended {
    let lost = |why| Ended::Lost { answered: false, why };
    let endpoint = match target.endpoint() {
        Ok(endpoint) => endpoint,
        Err(error) => return lost(error.to_string()),
    };
    let channel = match timeout(settings.connect_within, endpoint.connect()).await {
        Ok(Ok(channel)) => channel,
        Ok(Err(error)) => return lost(chain(&error)),
        Err(_) => return lost("the control plane does not answer".to_owned()),
    };
    let client = ControlClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let (out, outbound) = mpsc::channel(WAITING);
    let hello = proto::Hello {
        gateway: settings.gateway.to_string(),
        release: settings.release.clone(),
        has: state.stamp().map(Stamp::wire),
    };
    let _ = out.try_send(says(from_gateway::What::Hello(hello)));
    let opening = open(client.clone(), settings, outbound);
    let speaking = speak(out.clone(), status, settings, leaving);
    let control = target.url.clone();
    let mut session =
        Session { settings, control, state, client, out, assembly: Assembly::default(), answered: false, healed: 0 };
    let seek = Seek::new(settings, targets, &target.url);
    tokio::select! {
        ended = session.hear(opening, seek) => ended,
        ended = speaking => ended,
    }
}

const fn says(what: from_gateway::What) -> proto::FromGateway {
    proto::FromGateway { what: Some(what) }
}

fn open(mut client: Client, settings: &FollowerSettings, outbound: mpsc::Receiver<proto::FromGateway>) -> Opening {
    let mut ask = Request::new(ReceiverStream::new(outbound));
    auth::sign(settings.secret.as_ref(), ask.metadata_mut());
    Box::pin(async move { client.follow(ask).await })
}

/// Tells the status when it changes, that the gateway is there, and that it leaves. The link is ended by the control plane then.
async fn speak(
    out: mpsc::Sender<proto::FromGateway>,
    mut status: watch::Receiver<Arc<plane::Status>>,
    settings: &FollowerSettings,
    leaving: watch::Receiver<bool>,
) -> Ended {
    let mut said: Option<Arc<plane::Status>> = None;
    loop {
        let now = status.borrow_and_update().clone();
        let what = if said.as_ref() == Some(&now) {
            from_gateway::What::Heartbeat(proto::Heartbeat {})
        } else {
            from_gateway::What::Status(words::status_out(&now))
        };
        said = Some(now);
        if out.send(says(what)).await.is_err() {
            // The call is over: who hears says why.
            std::future::pending::<()>().await;
        }
        tokio::select! {
            changed = status.changed() => {
                if changed.is_err() {
                    // Who stops in order says so in a moment.
                    let left = timeout(FAREWELL, left(leaving)).await.is_ok();
                    if left && out.send(says(from_gateway::What::Goodbye(proto::Goodbye {}))).await.is_ok() {
                        std::future::pending::<()>().await;
                    }
                    return Ended::GatewayGone;
                }
                sleep(settings.settle).await;
            }
            () = left(leaving.clone()) => {
                // That nobody reads it any more is no matter then.
                let _ = out.send(says(from_gateway::What::Goodbye(proto::Goodbye {}))).await;
                std::future::pending::<()>().await;
            }
            () = sleep(settings.heartbeat) => {}
        }
    }
}

/// Waits until the gateway leaves; for ever if nobody can say so.
pub(super) async fn left(mut leaving: watch::Receiver<bool>) {
    if leaving.wait_for(|leaves| *leaves).await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl Session<'_> {
    async fn hear(&mut self, mut opening: Opening, mut seek: Seek<'_>) -> Ended {
        let (mut stream, mut fetching): (Option<Streaming<proto::FromControl>>, Option<Fetching>) = (None, None);
        let mut spoken = Instant::now();
        loop {
            let poll_at = self.state.heard + self.settings.poll;
            let patience = if self.answered { self.settings.dead_after } else { self.settings.connect_within };
            let step = tokio::select! {
                opened = &mut opening, if stream.is_none() => opened.map(|answer| stream = Some(answer.into_inner())),
                message = next(&mut stream) => {
                    spoken = Instant::now();
                    match message {
                        Ok(message) => match self.message(message) {
                            Ok(()) => Ok(()),
                            Err(ended) => return ended,
                        },
                        Err(status) => Err(status),
                    }
                }
                fetched = finish(&mut fetching) => {
                    fetching = None;
                    match self.compared(fetched) {
                        Ok(()) => Ok(()),
                        Err(ended) => return ended,
                    }
                }
                () = sleep_until(poll_at), if fetching.is_none() => {
                    fetching = Some(self.fetch());
                    Ok(())
                }
                leader = seek.leader(self.state.is_doubted()) => return Ended::Moved(leader),
                () = sleep_until(spoken + patience) => {
                    Err(Status::deadline_exceeded("nothing was heard of the control plane"))
                }
            };
            if let Err(status) = step {
                return self.broken(status).await;
            }
        }
    }

    /// The stream is over. If nothing was compared for long, that is done before the control plane is left: its streams may be what is broken.
    async fn broken(&mut self, status: Status) -> Ended {
        if self.state.heard.elapsed() >= self.settings.poll {
            let fetched = self.fetch().await;
            if let Err(ended) = self.compared(fetched) {
                return ended;
            }
        }
        if status.code() == Code::AlreadyExists {
            error!(gateway = %self.settings.gateway, "another gateway uses this name, or this one was slow to leave");
            return Ended::Replaced;
        }
        self.lost(format!("{:?}: {}", status.code(), status.message()))
    }

    fn lost(&self, why: String) -> Ended {
        Ended::Lost { answered: self.answered, why }
    }

    fn message(&mut self, message: proto::FromControl) -> Result<(), Ended> {
        self.answered = true;
        match message.what {
            Some(from_control::What::Welcome(welcome)) => {
                info!(control = %self.control, release = welcome.release, "the control plane has answered");
                self.state.compare(&self.control, Stamp::read(welcome.current.as_ref()), &welcome.doubt);
            }
            Some(from_control::What::KeepAlive(alive)) => {
                self.state.compare(&self.control, Stamp::read(alive.current.as_ref()), &alive.doubt);
            }
            Some(from_control::What::Orders(orders)) => {
                self.pushed();
                self.state.take_orders(&orders);
            }
            Some(from_control::What::Tokens(tokens)) => self.state.take_tokens(tokens),
            Some(from_control::What::Table(part)) => {
                self.pushed();
                if let Err(refusal) = self.state.take(&self.control, &mut self.assembly, part) {
                    return self.refuse(&refusal);
                }
            }
            // What a later release says is passed over.
            None => {}
        }
        Ok(())
    }

    fn pushed(&mut self) {
        self.state.heard = Instant::now();
        self.healed = 0;
    }

    fn refuse(&self, refusal: &Refusal) -> Result<(), Ended> {
        match refusal {
            // Until the control plane has a later one, there is nothing to ask for.
            Refusal::Older { .. } | Refusal::OtherContent(_) => {
                error!(control = %self.control, %refusal, "a table is refused");
                Ok(())
            }
            Refusal::OtherBase { .. } | Refusal::Digest { whole: false, .. } => {
                warn!(control = %self.control, %refusal, "the whole table is asked for");
                let need = proto::NeedWhole { why: refusal.to_string() };
                let asked = self.out.try_send(says(from_gateway::What::NeedWhole(need)));
                asked.map_err(|_| self.lost("the control plane does not read".to_owned()))
            }
            // A whole one would be no better.
            Refusal::Digest { whole: true, .. } | Refusal::Malformed(_) => {
                error!(control = %self.control, %refusal, "a table is refused");
                Err(Ended::Lost { answered: false, why: refusal.to_string() })
            }
        }
    }

    /// Asks for what is lacking, by a call of its own.
    fn fetch(&self) -> Fetching {
        let has = self.state.stamp().map(Stamp::wire);
        let mut ask = Request::new(proto::FetchRequest { gateway: self.settings.gateway.to_string(), has });
        auth::sign(self.settings.secret.as_ref(), ask.metadata_mut());
        let (mut client, within) = (self.client.clone(), self.settings.fetch_within);
        Box::pin(async move {
            let all = async {
                let mut stream = client.fetch(ask).await?.into_inner();
                let (mut messages, mut bytes) = (Vec::new(), 0);
                while let Some(message) = stream.message().await? {
                    bytes += message.encoded_len();
                    if bytes > MAX_BYTES {
                        return Err(Status::out_of_range("a table larger than any that is taken"));
                    }
                    messages.push(message);
                }
                Ok::<_, Status>(messages)
            };
            match timeout(within, all).await {
                Ok(fetched) => fetched.map_err(|status| status.message().to_owned()),
                Err(_) => Err("it takes too long".to_owned()),
            }
        })
    }

    fn compared(&mut self, fetched: Result<Vec<proto::FromControl>, String>) -> Result<(), Ended> {
        self.state.heard = Instant::now();
        let messages = match fetched {
            Ok(messages) => messages,
            Err(why) => {
                warn!(control = %self.control, why, "what is held could not be compared");
                return Ok(());
            }
        };
        let mut assembly = Assembly::default();
        for message in messages {
            match message.what {
                Some(from_control::What::Welcome(welcome)) => {
                    self.state.compare(&self.control, Stamp::read(welcome.current.as_ref()), &welcome.doubt);
                }
                Some(from_control::What::Table(part)) => match self.state.take(&self.control, &mut assembly, part) {
                    Ok(Took::New) => self.healed += 1,
                    Ok(Took::More | Took::Same) => {}
                    Err(refusal) => debug!(control = %self.control, %refusal, "a table that was fetched is refused"),
                },
                _ => {}
            }
        }
        if self.state.behind && self.settings.urls.len() > 1 {
            let why = "the control plane has an older table than what is held".to_owned();
            return Err(Ended::Lost { answered: false, why });
        }
        if self.healed < HEALED {
            return Ok(());
        }
        error!(control = %self.control, "the link brings no tables, comparing does: the next control plane is tried");
        Err(self.lost("the link brings no tables".to_owned()))
    }
}

/// The stream's next message. Waits for ever without a stream.
async fn next(stream: &mut Option<Streaming<proto::FromControl>>) -> Result<proto::FromControl, Status> {
    match stream {
        Some(stream) => stream.message().await?.ok_or_else(|| Status::unavailable("the link was closed")),
        None => std::future::pending().await,
    }
}

async fn finish(fetching: &mut Option<Fetching>) -> Result<Vec<proto::FromControl>, String> {
    match fetching {
        Some(fetching) => fetching.await,
        None => std::future::pending().await,
    }
}
