//! `holdfast demo`.

use super::Failure;
use crate::cli::DemoArgs;

/// Runs the demo.
pub fn run(_args: &DemoArgs) -> Result<(), Failure> {
    Err(Failure::failed("no demo"))
}
