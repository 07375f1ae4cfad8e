//! `holdfast experiment`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::AdminArgs;

/// Questions about experiments.
#[derive(Debug, Subcommand)]
pub enum ExperimentCommand {
    /// List them, as they are desired.
    List(AdminArgs),
    /// Show one: its arms, and what has been given so far.
    Show {
        /// Which.
        name: String,
        /// Which gateway or control plane.
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// What the arms of one have shown: people, rates, means, latency, and whether they differ.
    Report(ReportArgs),
}

/// Which report.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Which experiment.
    pub name: String,
    /// The admin port of a gateway that has results; several times for several. Left out: that of --admin.
    #[arg(long = "from", value_name = "URL")]
    pub from: Vec<String>,
    /// The probability of a false alarm, over all looks and all arms of one metric.
    #[arg(long, default_value_t = 0.05)]
    pub alpha: f64,
    /// How large a difference is looked for, in standard deviations of a value. To be chosen before looking.
    #[arg(long, default_value_t = 0.1)]
    pub effect: f64,
    /// Writes a picture of the difference over time, with its interval.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// The metric of the picture: errors, latency, or one that clients tell. Left out: the first that clients tell, or else errors.
    #[arg(long, value_name = "METRIC")]
    pub metric: Option<String>,
    /// Which gateway or control plane has the experiment.
    #[command(flatten)]
    pub admin: AdminArgs,
}
