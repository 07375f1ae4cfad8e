//! `holdfast demo`: a gateway, three model servers and four tenants on this machine, and five scenes that show what is promised.
//!
//! Everything is real: the servers are processes of this same command, talk over sockets and can be killed. A scene either comes out as it
//! was told beforehand or ends the demo with exit code 1. Nothing is left behind but, with `--keep`, the folder.

mod board;
mod calls;
mod scenes;
mod tally;
mod traffic;
mod world;

use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use super::{Failure, run_to_end};
use crate::cli::DemoArgs;
use crate::output;
use board::Board;
use scenes::{SCENES, Stage};
use traffic::Traffic;
use world::World;

/// Runs the demo.
pub fn run(args: &DemoArgs) -> Result<(), Failure> {
    run_to_end(2, async {
        let hear = |kind| signal(kind).map_err(|e| Failure::failed(format!("cannot hear signals: {e}")));
        let (mut interrupt, mut terminate) = (hear(SignalKind::interrupt())?, hear(SignalKind::terminate())?);
        // Whichever way this ends, the world is dropped, and with it every process that it started.
        tokio::select! {
            ended = show(args) => ended,
            _ = interrupt.recv() => Err(Failure::failed("interrupted")),
            _ = terminate.recv() => Err(Failure::failed("told to stop")),
        }
    })
}

async fn show(args: &DemoArgs) -> Result<(), Failure> {
    let begun = Instant::now();
    output::say("Starting three model servers and a gateway in front of them ...");
    let world = World::start(args.keep).await?;
    output::say(&world.introduction());
    let traffic = Traffic::start(&world)?;
    let length = Duration::from_secs(args.seconds.clamp(1, 60));
    let mut stage = Stage { world, board: Board::new(traffic.tally().clone()), length };
    for (number, scene) in SCENES.iter().enumerate() {
        output::say(&format!("\n{}. {}\n   {}\n", number + 1, scene.title, scene.promise));
        let found = match scene.play(&mut stage).await {
            Ok(found) => found,
            Err(failure) => return Err(stage.world.failed(scene.title, &failure.text)),
        };
        stage.board.clear();
        output::say(&format!("   => {found}"));
    }
    let tally = traffic.stop().await;
    output::say(&format!("\n{}", tally.summary(begun.elapsed())));
    if let Some(wrong) = tally.first_wrong() {
        return Err(stage.world.failed("the whole demo", &wrong));
    }
    output::say(&stage.world.what_next());
    Ok(())
}
