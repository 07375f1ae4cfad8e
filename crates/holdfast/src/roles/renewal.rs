//! Certificates of the links between the roles, and of the connection to the store: read anew when their files change.
//!
//! What holds for the admin port holds here: two looks must find the same, for certificate and key are replaced one after the other; what cannot be used
//! is told of once and leaves in force what was; connections that were made before stay as they were made.

use std::time::Duration;

use holdfast_config::{Config, GatewaySection};
use holdfast_net::Tasks;
use holdfast_store::PostgresTls;
use holdfast_wire::auth::{ClientTls, Renewed, ServerTls};

use super::proofs::{self, Fault, GatewayLinks};
use crate::command::Failure;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What a look has found last, and what was last judged.
struct Judge<T> {
    what: &'static str,
    seen: Option<Result<T, String>>,
    judged: Option<Result<T, String>>,
}

impl<T: Clone + PartialEq> Judge<T> {
    /// `now` is what is in force.
    fn new(what: &'static str, now: T) -> Self {
        Self { what, seen: None, judged: Some(Ok(now)) }
    }

    /// What is to be taken of a look, if anything is.
    fn look(&mut self, found: Result<T, Fault>) -> Option<T> {
        let found = Some(found.map_err(|(path, why)| format!("{path}: {why}")));
        let settled = self.seen == found;
        self.seen.clone_from(&found);
        if !settled || self.judged == found {
            return None;
        }
        self.judged.clone_from(&found);
        match found? {
            Ok(found) => Some(found),
            Err(why) => {
                tracing::error!(why, "the certificates of {} stay as they were", self.what);
                None
            }
        }
    }

    fn judged(&self, result: Result<(), String>) {
        match result {
            Ok(()) => tracing::info!("the certificates of {} were read anew", self.what),
            Err(why) => tracing::error!(why, "the certificates of {} stay as they were", self.what),
        }
    }
}

/// Looks at files again and again: `read` reads them, `take` puts into force what can be used.
async fn renew<T: Clone + PartialEq + Send + 'static>(
    mut judge: Judge<T>,
    read: impl Fn() -> Result<T, Fault> + Clone + Send + 'static,
    take: impl Fn(T) -> Result<(), String> + Send,
) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Ok(found) = tokio::task::spawn_blocking(read.clone()).await else { continue };
        if let Some(anew) = judge.look(found) {
            judge.judged(take(anew));
        }
    }
}

/// The certificates of a gateway.
pub struct Renewal {
    section: GatewaySection,
    judge: Judge<GatewayLinks>,
    /// To control planes.
    pub control: Renewed<ClientTls>,
    /// What other gateways are shown, and whom to believe of them.
    pub peers: Option<(Renewed<ServerTls>, Renewed<ClientTls>)>,
}

impl Renewal {
    /// None: there are none.
    ///
    /// # Errors
    /// A file cannot be read or used.
    pub fn of(section: &GatewaySection) -> Result<Option<Self>, Failure> {
        let links = proofs::gateway_links(section).map_err(|(path, why)| Failure::wrong(format!("{path}: {why}")))?;
        let Some(links) = links else { return Ok(None) };
        links.check().map_err(Failure::wrong)?;
        let judge = Judge::new("the links to control planes and other gateways", links.clone());
        let peers = links.peers.map(|(server, client)| (server.into(), client.into()));
        Ok(Some(Self { section: section.clone(), judge, control: links.control.into(), peers }))
    }

    /// Keeps them new.
    pub async fn run(self) {
        let Self { section, judge, control, peers } = self;
        let read = move || proofs::gateway_links(&section)?.ok_or_else(|| ("gateway.tls", "is none".to_owned()));
        let take = |anew: GatewayLinks| {
            anew.check()?;
            if let (Some((server, client)), Some(now)) = (&peers, anew.peers) {
                server.replace(now.0);
                client.replace(now.1);
            }
            control.replace(anew.control);
            Ok(())
        };
        renew(judge, read, take).await;
    }
}

/// Keeps new the certificates of a control plane: of its link to gateways, and of its connection to the store.
pub fn of_control(config: &Config, gateways: Option<Renewed<ServerTls>>, store: Option<PostgresTls>, tasks: &Tasks) {
    if let (Some(tls), Some(section)) = (gateways, config.control.clone()) {
        let judge = Judge::new("the link to gateways", tls.current());
        let read = move || proofs::control_tls(&section)?.ok_or_else(|| ("control.tls", "is none".to_owned()));
        tasks.spawn(async move {
            let take = |anew: ServerTls| {
                anew.check().map_err(|e| e.to_string())?;
                tls.replace(anew);
                Ok(())
            };
            renew(judge, read, take).await;
        });
    }
    if let (Some(tls), Some(section)) = (store, config.store.as_ref().and_then(|store| store.tls.clone())) {
        let read = move || proofs::store_files(&section);
        let Ok(now) = read() else { return };
        let judge = Judge::new("the connection to the store", now);
        tasks.spawn(async move {
            let take = |files: proofs::StoreFiles| {
                tls.replace(&files.tls().map_err(|(_, why)| why)?);
                Ok(())
            };
            renew(judge, read, take).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_taken_when_two_looks_agree_and_told_of_once() {
        let mut judge = Judge::new("a link", 1);
        assert_eq!(judge.look(Ok(1)), None);
        assert_eq!(judge.look(Ok(2)), None, "it may be half written");
        assert_eq!(judge.look(Ok(3)), None);
        assert_eq!(judge.look(Ok(3)), Some(3));
        assert_eq!(judge.look(Ok(3)), None, "it was judged");
        let gone = || Err(("gateway.tls.key", "cannot be read".to_owned()));
        assert_eq!((judge.look(gone()), judge.look(gone()), judge.look(gone())), (None, None, None));
        assert_eq!((judge.look(Ok(3)), judge.look(Ok(3))), (None, Some(3)), "as before, and there again");
    }
}
