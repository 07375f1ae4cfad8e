//! What a gateway holds over all of its links, and what of it the gateway sees.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use holdfast_plane::{Orders, TokenState, View};

use super::fresh::Fresh;
use crate::held::{Assembly, Held, Refusal, Stamp, Taken};
use crate::{proto, words};

pub(super) struct State {
    held: watch::Sender<Held>,
    view: Arc<watch::Sender<View>>,
    fresh: Fresh,
    /// The control plane that speaks has what is held, so its orders are meant for it.
    agreed: bool,
    /// Orders that came while it was not known to have it.
    waiting: Option<Orders>,
    /// The control plane that speaks has an older table than what is held.
    pub(super) behind: bool,
    /// Why the control plane that speaks cannot vouch for its table; empty while it can.
    doubt: Arc<str>,
    /// When something was pushed or compared last.
    pub(super) heard: Instant,
}

/// What a part of a table led to.
pub(super) enum Took {
    More,
    Same,
    New,
}

impl State {
    pub(super) fn new(view: Arc<watch::Sender<View>>, fresh: Fresh) -> Self {
        let (held, _) = watch::channel(Held::default());
        Self { held, view, fresh, agreed: false, waiting: None, behind: false, doubt: "".into(), heard: Instant::now() }
    }

    /// What was saved. The gateway does not see it yet: a control plane may know of a later one.
    pub(super) fn load(&self, saved: Option<Held>) {
        if let Some(saved) = saved {
            info!(revision = %saved.table().revision, "a saved table was read");
            self.held.send_replace(saved);
        }
    }

    pub(super) fn held(&self) -> watch::Receiver<Held> {
        self.held.subscribe()
    }

    pub(super) fn stamp(&self) -> Option<Stamp> {
        self.held.borrow().stamp()
    }

    /// Keys for tokens, of a control plane or of the disk. They are the gateway's at once; older ones than it has are nothing.
    pub(super) fn take_tokens(&self, told: proto::Tokens) {
        let tokens = TokenState { stamp: told.stamp, content: told.content.to_vec().into() };
        self.view.send_if_modified(|view| {
            let is_later = tokens.stamp > view.tokens.stamp;
            if is_later {
                view.tokens = Arc::new(tokens);
            }
            is_later
        });
    }

    pub(super) fn view(&self) -> watch::Receiver<View> {
        self.view.subscribe()
    }

    /// Shows the saved table if no control plane has told of one within this time.
    pub(super) fn starter(&self, within: Duration) -> impl Future<Output = ()> + Send + 'static {
        let (held, view) = (self.held(), self.view.clone());
        async move {
            sleep(within).await;
            let table = held.borrow().table().clone();
            let shown = view.send_if_modified(|view| {
                let nothing_yet = view.table.revision.0 == 0 && table.revision.0 > 0;
                if nothing_yet {
                    view.table = table.clone();
                }
                nothing_yet
            });
            if shown {
                warn!(revision = %table.revision, "no control plane has answered; the gateway starts from its last good table");
            }
        }
    }

    /// Whether the control plane that speaks cannot vouch for what it tells: another one may lead.
    pub(super) fn is_doubted(&self) -> bool {
        !self.doubt.is_empty()
    }

    /// What the control plane says it has, and why it cannot vouch for it if it cannot.
    pub(super) fn compare(&mut self, control: &Arc<str>, current: Option<Stamp>, doubt: &str) {
        if &*self.doubt != doubt {
            if doubt.is_empty() {
                info!(%control, "the control plane vouches for its table again");
            } else {
                warn!(%control, doubt, "the control plane cannot vouch for its table");
            }
            self.doubt = doubt.into();
        }
        let has = self.stamp();
        self.agreed = has.is_some() && has == current;
        self.behind = has.zip(current).is_some_and(|(has, current)| current.revision < has.revision);
        if self.agreed {
            let orders = self.waiting.take();
            self.show(orders);
            self.confirm(control);
            return;
        }
        let why = match (has, current) {
            (_, None) => "the control plane has no table".to_owned(),
            (_, Some(current)) if self.behind => {
                format!("the control plane has revision {}, which is older than what is held", current.revision)
            }
            (Some(has), Some(current)) if current.revision == has.revision => {
                format!("the control plane has another content under revision {}", current.revision)
            }
            (_, Some(current)) => format!("revision {} of the control plane has not come yet", current.revision),
        };
        self.fresh.doubt(&why);
    }

    /// Takes a part of a table. What is refused leaves everything as it is.
    pub(super) fn take(
        &mut self,
        control: &Arc<str>,
        assembly: &mut Assembly,
        part: proto::TablePart,
    ) -> Result<Took, Refusal> {
        let held = self.held.borrow().clone();
        match assembly.take(&held, part) {
            Ok(Taken::More) => Ok(Took::More),
            Ok(Taken::Same(orders)) => {
                self.agree(control, orders.as_ref());
                Ok(Took::Same)
            }
            Ok(Taken::New(new, orders)) => {
                info!(revision = %new.table().revision, foreign = new.foreign(), "a table has come");
                self.held.send_replace(*new);
                self.agree(control, orders.as_ref());
                Ok(Took::New)
            }
            Err(refusal) => {
                self.agreed = false;
                self.fresh.doubt(&refusal.to_string());
                Err(refusal)
            }
        }
    }

    /// Orders of a control plane that has another table are not meant for this one: they wait until it is known to have the same. They are said
    /// once, so none is thrown away.
    pub(super) fn take_orders(&mut self, orders: &proto::Orders) {
        let orders = words::orders_in(orders);
        if self.agreed {
            self.show(Some(orders));
        } else {
            self.waiting = Some(orders);
        }
    }

    pub(super) fn lost(&mut self, why: &str) {
        (self.agreed, self.waiting, self.doubt) = (false, None, "".into());
        self.fresh.doubt(why);
    }

    fn agree(&mut self, control: &Arc<str>, orders: Option<&proto::Orders>) {
        self.agreed = true;
        let waited = self.waiting.take();
        self.show(orders.map(words::orders_in).or(waited));
        self.confirm(control);
    }

    /// What is held is what the control plane has; and that is in force, as far as it can vouch for it.
    fn confirm(&mut self, control: &Arc<str>) {
        if self.is_doubted() {
            self.fresh.doubt(&self.doubt);
        } else {
            self.fresh.confirm(control);
        }
    }

    /// Shows the gateway what is held. Its revision never goes back: what is held never does.
    fn show(&self, orders: Option<Orders>) {
        let table = self.held.borrow().table().clone();
        self.view.send_if_modified(|view| {
            let same_table = Arc::ptr_eq(&view.table, &table);
            let new = orders.filter(|orders| *view.orders != *orders);
            let changed = !same_table || new.is_some();
            view.table = table;
            if let Some(orders) = new {
                view.orders = Arc::new(orders);
            }
            changed
        });
    }
}
