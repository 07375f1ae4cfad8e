//! `holdfast man`.

use std::io::Write;
use std::path::Path;

use clap::CommandFactory;

use super::Failure;
use crate::cli::Cli;
use crate::output;

/// Prints the page of the whole, or writes one for each command.
pub fn run(dir: Option<&Path>) -> Result<(), Failure> {
    // Its page is a section of each other page.
    let command = Cli::command().disable_help_subcommand(true);
    let Some(dir) = dir else {
        let mut page = Vec::new();
        let made = clap_mangen::Man::new(command).render(&mut page);
        made.map_err(|e| Failure::failed(e.to_string()))?;
        // A reader that has gone away is no error.
        let _ = std::io::stdout().write_all(&page);
        return Ok(());
    };
    let failed = |e: std::io::Error| Failure::failed(format!("{}: {e}", dir.display()));
    std::fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(command, dir).map_err(failed)?;
    let pages = std::fs::read_dir(dir).map_err(failed)?.count();
    output::say(&format!("{}: {}", dir.display(), output::counted(pages, "page")));
    Ok(())
}
