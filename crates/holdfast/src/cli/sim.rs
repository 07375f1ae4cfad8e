//! What can be simulated.

use clap::{Args, Subcommand, ValueEnum};

use super::Output;

/// What to simulate.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// One limit that many gateways share by leases: how far it is passed, and how many calls the store gets. Without options: 1,000 a second, offered 1,600
    /// through 4 gateways of 40, 30, 20 and 10 %, for three sizes of a chunk.
    Lease(SimLeaseArgs),
    /// The scenarios that come with this binary.
    List(SimListArgs),
    /// Print a scenario, to be changed and run from a file.
    Show {
        /// Its name.
        scenario: String,
    },
    /// Run scenarios over many seeds, and say whether all went as expected. Exits with 1 at the first run that did not: with its seed, and in as few acts as
    /// make it go wrong.
    Run(SimRunArgs),
}

/// How to list.
#[derive(Debug, Args)]
pub struct SimListArgs {
    /// The worlds as well: what a scenario of each may set, and the figures that it may expect.
    #[arg(long)]
    pub worlds: bool,
    /// The form of what is printed.
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// What to run.
#[derive(Debug, Args)]
pub struct SimRunArgs {
    /// Names of scenarios, or files.
    #[arg(value_name = "SCENARIO", required_unless_present = "all", conflicts_with = "all")]
    pub scenarios: Vec<String>,
    /// All that come with this binary.
    #[arg(long)]
    pub all: bool,
    /// Runs of each, each with its own seed.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub seeds: u64,
    /// The first seed. The same seeds give the same bytes.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Sets a knob otherwise than the scenario does.
    #[arg(long, value_name = "KNOB=NUMBER", value_parser = setting)]
    pub set: Vec<(String, u64)>,
    /// Write the first run over time, or the one that went wrong, as an SVG picture.
    #[arg(long, value_name = "FILE.svg", value_parser = super::picture)]
    pub plot: Option<std::path::PathBuf>,
    /// Print what happened in the first run.
    #[arg(long)]
    pub log: bool,
    /// The form of what is printed.
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

fn setting(text: &str) -> Result<(String, u64), String> {
    let read = || {
        let (name, number) = text.split_once('=')?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    read().ok_or_else(|| "write a knob and a whole number, such as nodes=5".to_owned())
}

/// How gateways wait that were granted nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Waiting {
    /// As Holdfast has it: a chunk's time with few gateways, turns with five or more.
    #[default]
    Turns,
    /// A chunk's time, however many they are: to compare.
    ChunkTime,
}

/// Which case.
#[derive(Debug, Args)]
pub struct SimLeaseArgs {
    /// Runs of each row, each with its own seed.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub seeds: u64,
    /// The first seed. The same seeds give the same numbers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A chunk, in per cent of the limit per second; one row for each that is given.
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_values = ["0.1", "2.5", "10"], value_parser = percent)]
    pub chunk_percent: Vec<u32>,
    /// The most that all gateways together may hold, in per cent of the limit per second.
    #[arg(long, value_name = "PERCENT", default_value = "40", value_parser = percent)]
    pub fraction_percent: u32,
    /// Gateways. 4 have 40, 30, 20 and 10 % of what is offered, any other number equal parts.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub gateways: u32,
    /// The limit per second, which is the burst as well.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub limit: u64,
    /// Requests offered per second in all.
    #[arg(long, default_value_t = 1_600, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub offered: u64,
    /// Seconds of each run. The first three are not looked at for the worst one.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(4..=3_600))]
    pub seconds: u64,
    /// How gateways wait that were granted nothing.
    #[arg(long, value_enum, default_value_t)]
    pub waiting: Waiting,
    /// The form of what is printed.
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// A number of at most two decimals, in hundredths: per cent as ten thousandths.
fn percent(text: &str) -> Result<u32, String> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let read = || {
        let hundredths: u32 = format!("{part:0<2}").parse().ok()?;
        whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(hundredths)
    };
    let value = (digits(whole) && digits(part) && part.len() <= 2).then(read).flatten();
    value.filter(|value| (1..=100_000).contains(value)).ok_or_else(|| "write 0.01 to 1000, such as 2.5".to_owned())
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn per_cent_as_people_write_them() {
        let good = [("2.5", 250), ("0.1", 10), ("10", 1_000), ("0.01", 1), ("1000", 100_000)];
        assert!(good.iter().all(|(text, value)| percent(text) == Ok(*value)));
        assert!(
            ["", "-1", "0", "0.001", "2.", ".5", "NaN", "1e3", "1000.01", "+5"].iter().all(|t| percent(t).is_err())
        );
    }
}
