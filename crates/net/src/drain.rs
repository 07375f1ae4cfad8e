//! The one signal that tells every part of the process to finish what it does and take nothing new.

use tokio::sync::watch;

/// Starts the drain.
#[derive(Debug)]
pub struct DrainHandle(watch::Sender<bool>);

/// Sees whether the drain has started. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Drain(watch::Receiver<bool>);

impl DrainHandle {
    /// A handle, and what it is seen through.
    #[must_use]
    pub fn new() -> (Self, Drain) {
        let (send, receive) = watch::channel(false);
        (Self(send), Drain(receive))
    }

    /// Starts the drain. It cannot be taken back.
    pub fn start(&self) {
        self.0.send_replace(true);
    }
}

impl Drain {
    /// Whether it has started.
    #[must_use]
    pub fn started(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the start. Also returns when the handle is gone: nobody is left who could start it in order.
    ///
    /// Cancel safe.
    pub async fn wait(&mut self) {
        let _ = self.0.wait_for(|started| *started).await;
    }
}
