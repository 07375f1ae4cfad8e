//! The desk: where every change of the truth is asked for, checked, and written down.
//!
//! A [`Desk`] stands before a [`Store`] and holds the latest [`Truth`]: what is desired and what is in force, as persistent maps. Whoever wants
//! a change, by the admin API or by a file, says so in an [`Ask`]; the roll-outs' driver puts pins in force by an [`Activation`]. One path for
//! all of it: what is new is put together and read as a configuration (`check`), what of it is in force at once is worked out (`plan`), and
//! both are one commit (`commit`), compared with what this desk has seen of either space. Commits of other processes are taken in by
//! [`Desk::follow`].
//!
//! * What is desired is a configuration without faults. So is what is in force, and each pin in force names a version in force.
//! * A new pin and one that is taken away are in force at once, as everything else is. A pin whose version changes stays in force as it is,
//!   its version with it, until it is activated.
//! * A commit whose answer is lost is sent again as it was: being compared with both spaces, it has effect once at most, and the second answer
//!   tells what became of the first.
//!
//! The desk reads no clock but to wait: the time of a change is an argument.

mod activate;
mod ask;
mod batch;
mod change;
mod check;
mod commit;
mod error;
pub mod fit;
mod follow;
mod golden;
mod names;
mod options;
mod past;
mod plan;
mod prepare;
mod retry;
mod truth;

use std::sync::Arc;

pub use holdfast_config::Frame;
use parking_lot::RwLock;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use holdfast_config::Truth as Owner;
use holdfast_store::{MAX_EDITS, Store};

pub use activate::{Activated, Activation, PinMove};
pub use ask::{Adopted, Ask, Change, Done, Retired, What};
pub use error::{ActivateError, DeskError, Fault};
pub use golden::inline as inline_golden;
pub use options::{CanaryOption, PIN_OPTIONS, PinOptions, RolloutOptions, ShadowOption};
pub use past::{GonePin, Move, RevertTarget, Shown};
pub(crate) use plan::named_by;
pub use retry::{PIN_RETRY, PinRetry};
pub use truth::Truth;

/// The bounds of a desk.
#[derive(Clone, Debug)]
pub struct DeskSettings {
    /// Which side owns the pins. With the file, asks of others are refused.
    pub owner: Owner,
    /// The most calls that wait for their turn; one more is refused.
    pub waiting: usize,
    /// The most edits of one commit, within the store's own bound.
    pub edits: usize,
}

impl Default for DeskSettings {
    fn default() -> Self {
        Self { owner: Owner::Store, waiting: 256, edits: MAX_EDITS }
    }
}

/// See the module.
pub struct Desk {
    store: Arc<dyn Store>,
    frame: RwLock<Arc<Frame>>,
    settings: DeskSettings,
    /// Who has it may write, and take commits in.
    turn: Semaphore,
    /// Places in the queue for the turn.
    places: Semaphore,
    truth: watch::Sender<Arc<Truth>>,
}

/// The right to write. Only its holder publishes a truth, so that truths only grow.
struct Turn<'a> {
    _turn: SemaphorePermit<'a>,
    _place: SemaphorePermit<'a>,
}

impl Desk {
    /// Reads what the store holds, in pages.
    ///
    /// # Errors
    /// The store cannot be read, or holds something that is no resource of this release.
    pub async fn open(store: Arc<dyn Store>, frame: Frame, settings: DeskSettings) -> Result<Arc<Self>, DeskError> {
        let truth = truth::read(&*store).await?;
        Ok(Arc::new(Self {
            store,
            frame: RwLock::new(Arc::new(frame)),
            turn: Semaphore::new(1),
            places: Semaphore::new(settings.waiting.clamp(1, Semaphore::MAX_PERMITS)),
            truth: watch::Sender::new(Arc::new(truth)),
            settings,
        }))
    }

    /// The latest truth that this desk knows of.
    #[must_use]
    pub fn truth(&self) -> Arc<Truth> {
        self.truth.borrow().clone()
    }

    /// Whether changes are asked of it, and not of the file.
    #[must_use]
    pub fn is_truth(&self) -> bool {
        self.settings.owner == Owner::Store
    }

    /// Follows the truth. Truths that come faster than they are looked at are seen as one.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Arc<Truth>> {
        self.truth.subscribe()
    }

    /// The store behind it, for records.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// What configurations are put together with.
    #[must_use]
    pub fn frame(&self) -> Arc<Frame> {
        self.frame.read().clone()
    }

    /// Takes other settings of the process for the checks to come.
    pub fn set_frame(&self, frame: Frame) {
        *self.frame.write() = Arc::new(frame);
    }

    async fn turn(&self) -> Result<Turn<'_>, DeskError> {
        let place = self.places.try_acquire().map_err(|_| DeskError::busy())?;
        let turn = self.turn.acquire().await.map_err(|_| DeskError::busy())?;
        Ok(Turn { _turn: turn, _place: place })
    }

    fn publish(&self, _turn: &Turn<'_>, truth: Truth) -> Arc<Truth> {
        let truth = Arc::new(truth);
        self.truth.send_replace(truth.clone());
        truth
    }
}
