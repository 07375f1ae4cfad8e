//! The `holdfast` command: the gateway, its checks and questions, and a model server for drills.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong use or configuration.

mod admin;
mod cli;
mod command;
mod config_file;
mod key_sets;
mod link;
mod lock_holder;
mod output;
mod roles;
mod token;
mod watch;
mod yaml;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match command::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::complain(&failure.text);
            ExitCode::from(failure.code)
        }
    }
}
