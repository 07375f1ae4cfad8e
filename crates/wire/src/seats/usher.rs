//! A gateway asks its control planes for a seat: the one that answered last first, then the others in turn.

use std::time::Duration;

use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::{Answered, Asked, words};
use crate::auth::{self, Renewed};
use crate::error::WireError;
use crate::follower::{FollowerSettings, endpoints};
use crate::proto::seats_client::SeatsClient;

/// Nobody gives a seat.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unseated {
    /// A control plane of a release that knows no seats leads.
    #[error("the control plane knows no seats")]
    Unknown,
    /// No answer, or a refusal.
    #[error("{0}")]
    NoAnswer(String),
}

/// See the module.
pub struct Usher {
    settings: FollowerSettings,
    channels: Vec<Channel>,
    /// Of the certificates that the channels are made with.
    number: u64,
    at: usize,
}

impl Usher {
    /// Connections are made when they are needed. In a runtime of Tokio.
    ///
    /// # Errors
    /// Settings that cannot be used.
    pub fn new(settings: FollowerSettings) -> Result<Self, WireError> {
        let number = settings.tls.as_ref().map_or(0, Renewed::number);
        let channels = channels(&settings)?;
        Ok(Self { settings, channels, number, at: 0 })
    }

    /// Other certificates: other connections. Those that cannot be used leave what was made before.
    fn renew(&mut self) {
        let number = self.settings.tls.as_ref().map_or(0, Renewed::number);
        if number != self.number
            && let Ok(anew) = channels(&self.settings)
        {
            (self.number, self.channels) = (number, anew);
        }
    }

    /// Asks until one answers, each at most once and each within this time.
    ///
    /// # Errors
    /// None did.
    pub async fn sit(&mut self, asked: &Asked, within: Duration) -> Result<Answered, Unseated> {
        self.renew();
        let mut unseated = Unseated::NoAnswer("there is no control plane".to_owned());
        for _ in 0..self.channels.len() {
            let Some(channel) = self.channels.get(self.at) else { break };
            let mut ask = Request::new(words::asked_out(asked));
            auth::sign(self.settings.secret.as_ref(), ask.metadata_mut());
            let mut client = SeatsClient::new(channel.clone());
            let status = match timeout(within, client.sit(ask)).await {
                Ok(Ok(answer)) => match words::answered_in(answer.into_inner()) {
                    Some(answered) => return Ok(answered),
                    None => Status::data_loss("a seating that cannot be read"),
                },
                Ok(Err(status)) => status,
                Err(_) => Status::deadline_exceeded("no answer in time"),
            };
            unseated = match status.code() {
                Code::Unimplemented => Unseated::Unknown,
                code => Unseated::NoAnswer(format!("{code:?}: {}", status.message())),
            };
            self.at = (self.at + 1) % self.channels.len();
        }
        Err(unseated)
    }
}

fn channels(settings: &FollowerSettings) -> Result<Vec<Channel>, WireError> {
    endpoints(settings)?.into_iter().map(|target| Ok(target.endpoint()?.connect_lazy())).collect()
}
