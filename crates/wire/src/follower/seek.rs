//! A look for who leads, while the control plane that a gateway is linked to cannot vouch for its table. The link is kept meanwhile: as long as
//! nobody leads, there is nobody who knows more.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until, timeout};
use tonic::Request;

use super::{FollowerSettings, Target};
use crate::proto::control_client::ControlClient;
use crate::proto::{FetchRequest, from_control};
use crate::{MAX_MESSAGE_BYTES, auth};

type Looking<'a> = std::pin::Pin<Box<dyn Future<Output = Option<usize>> + Send + 'a>>;

/// See the module.
pub(super) struct Seek<'a> {
    settings: &'a FollowerSettings,
    targets: &'a [Target],
    /// The control plane that is linked.
    linked: &'a Arc<str>,
    looking: Option<Looking<'a>>,
    next: Instant,
}

impl<'a> Seek<'a> {
    pub(super) fn new(settings: &'a FollowerSettings, targets: &'a [Target], linked: &'a Arc<str>) -> Self {
        Self { settings, targets, linked, looking: None, next: Instant::now() }
    }

    /// The number of the control plane that leads, once one is found. Looks at all others in turn, again after each poll interval, for as long as
    /// this is waited for while it `is_needed`; what was begun goes on when it is waited for again.
    pub(super) async fn leader(&mut self, is_needed: bool) -> usize {
        if !is_needed {
            self.looking = None;
            return std::future::pending().await;
        }
        loop {
            if self.looking.is_none() {
                sleep_until(self.next).await;
                self.looking = Some(Box::pin(look(self.settings, self.targets, self.linked)));
            }
            let Some(looking) = &mut self.looking else { continue };
            let found = looking.await;
            (self.looking, self.next) = (None, Instant::now() + self.settings.poll);
            if let Some(leader) = found {
                return leader;
            }
        }
    }
}

/// The first of the others that leads.
async fn look(settings: &FollowerSettings, targets: &[Target], linked: &Arc<str>) -> Option<usize> {
    for (number, target) in targets.iter().enumerate().filter(|(_, target)| target.url != *linked) {
        if timeout(settings.connect_within, leads(settings, target)).await == Ok(Some(true)) {
            return Some(number);
        }
    }
    None
}

/// Whether this control plane leads and vouches for its table. One that knows that another leads refuses the call.
async fn leads(settings: &FollowerSettings, target: &Target) -> Option<bool> {
    let channel = target.endpoint().ok()?.connect().await.ok()?;
    let mut client = ControlClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
    let mut ask = Request::new(FetchRequest { gateway: settings.gateway.to_string(), has: None });
    auth::sign(settings.secret.as_ref(), ask.metadata_mut());
    let first = client.fetch(ask).await.ok()?.into_inner().message().await.ok()??;
    match first.what? {
        from_control::What::Welcome(welcome) => Some(welcome.doubt.is_empty()),
        _ => None,
    }
}
