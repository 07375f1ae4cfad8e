//! Follows the control plane: takes what it tells, says how things are.

use std::sync::Arc;
use std::time::Duration;

use holdfast_net::{Drain, Tasks};
use holdfast_plane::{ControlEnd, Status};

use super::Tables;
use super::handover::Held;

/// How long the status may lag behind what nobody is told of, such as requests in flight.
const LOOK: Duration = Duration::from_millis(250);

impl Tables {
    /// Runs until a drain begins. What was told last stays in force when the control plane is gone.
    pub fn run(self: &Arc<Self>, mut control: ControlEnd, drain: Drain, tasks: &Tasks) {
        let me = self.clone();
        if let Some(link) = self.limits.link() {
            tasks.spawn(link.clone().run());
        }
        tasks.spawn(async move {
            let name = control.status.borrow().gateway.clone();
            let mut in_service = me.in_service();
            let mut told = Status::of(name.clone());
            let (mut gone, mut kept) = (false, Held::new());
            while !drain.started() {
                let changed = tokio::select! {
                    changed = control.view.changed(), if !gone => Some(changed),
                    () = me.reframed.notified() => None,
                    () = me.driver.changed(LOOK) => None,
                };
                match changed {
                    Some(Ok(())) => {
                        let view = control.view.borrow_and_update().clone();
                        me.take(&view);
                    }
                    Some(Err(_)) => gone = true,
                    None => {}
                }
                let now_in_service = me.in_service();
                if now_in_service != in_service {
                    in_service = now_in_service;
                    me.publish();
                }
                me.tend_handovers(&mut kept);
                let status = me.status(name.clone());
                if status != told {
                    told = status.clone();
                    control.status.send_replace(Arc::new(status));
                }
            }
        });
    }

    fn in_service(&self) -> Vec<bool> {
        let table = self.current.load();
        table.pools.iter().flat_map(|p| p.replicas.iter().map(|r| r.in_service())).collect()
    }
}
