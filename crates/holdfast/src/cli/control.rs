//! The commands that ask a control plane and change what it holds.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::AdminArgs;

/// About the table.
#[derive(Debug, Subcommand)]
pub enum TableCommand {
    /// Show the table in force: revision, pins, what is on its way.
    Show(AdminArgs),
    /// List the last revisions: who, when, why.
    History {
        /// How many.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100_000))]
        limit: u64,
        /// Which control plane.
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Show what differs between two revisions.
    Diff {
        /// The first.
        from: u64,
        /// The second. Left out: the last one.
        to: Option<u64>,
        /// Which control plane.
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Make the pins that were in force at an older revision the desired ones, as a new revision. Shows first what is different, and asks if more than one pin changes, one goes, or an old version is not kept any more and has to be loaded anew.
    Revert(RevertArgs),
    /// Write what is desired as a file that `apply -f` takes.
    Export {
        /// The file to be written; it must not be there yet. Left out: standard output.
        #[arg(short, long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Which control plane.
        #[command(flatten)]
        admin: AdminArgs,
    },
}

/// About pins.
#[derive(Debug, Subcommand)]
pub enum PinCommand {
    /// List the pins in force.
    List(AdminArgs),
    /// Pin a version: it is warmed on its whole subset, then flipped.
    Set {
        /// Whose pin.
        tenant: String,
        /// Of which model.
        model: String,
        /// The version.
        version: String,
        /// How.
        #[command(flatten)]
        how: ChangeArgs,
    },
    /// Take a pin away: the tenant's requests for the model are refused at once.
    Remove {
        /// Whose pin.
        tenant: String,
        /// Of which model.
        model: String,
        /// How.
        #[command(flatten)]
        how: RemoveArgs,
    },
}

/// How to take something away: at once, so that no roll-out has options.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// Return when every live gateway has it in force.
    #[arg(long)]
    pub wait: bool,
    /// How long to wait at most, such as 90s, 30m or 1h.
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = time)]
    pub timeout: Duration,
    /// Why, for the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Which control plane.
    #[command(flatten)]
    pub admin: AdminArgs,
}

impl From<RemoveArgs> for ChangeArgs {
    fn from(how: RemoveArgs) -> Self {
        let RemoveArgs { wait, timeout, reason, admin } = how;
        Self {
            wait,
            timeout,
            atomic: false,
            canary: None,
            while_holds: None,
            samples: None,
            shadow: None,
            reason,
            admin,
        }
    }
}

/// About roll-outs.
#[derive(Debug, Subcommand)]
pub enum RolloutCommand {
    /// List the last ones.
    List {
        /// Only those that are not over, without those that only keep the old version for a way back.
        #[arg(long)]
        running: bool,
        /// How many.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
        limit: u64,
        /// Which control plane.
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Show one: where each pin is and what it waits for.
    Show {
        /// Its number.
        id: u64,
        /// Stay and print a line for each step, until it is over.
        #[arg(long)]
        follow: bool,
        /// Which control plane.
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Abort one of which no pin has flipped: its pins are desired where they were.
    Abort(SteerArgs),
    /// Pause one: nothing new is begun.
    Pause(SteerArgs),
    /// Resume one that is paused.
    Resume(SteerArgs),
    /// Send one back to the old versions, which are desired again.
    Revert {
        /// Also if an old version has to be loaded anew.
        #[arg(long)]
        confirm: bool,
        /// Which one.
        #[command(flatten)]
        which: SteerArgs,
    },
}

/// About gateways.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// List them, with the revision that each has in force.
    List(AdminArgs),
}

/// Which roll-out.
#[derive(Debug, Args)]
pub struct SteerArgs {
    /// Its number.
    pub id: u64,
    /// Which control plane.
    #[command(flatten)]
    pub admin: AdminArgs,
}

/// Where to go back to.
#[derive(Debug, Args)]
pub struct RevertArgs {
    /// Which revision. Left out: the one before the last change of what is in force.
    pub revision: Option<u64>,
    /// Only show what is different.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask. Needed where nobody can be asked, if more than one pin changes, one goes, or an old version has to be loaded anew.
    #[arg(long)]
    pub yes: bool,
    /// Leave out pins whose old version has left the catalogue, instead of going back with none; they are listed.
    #[arg(long)]
    pub skip_gone: bool,
    /// How.
    #[command(flatten)]
    pub how: ChangeArgs,
}

/// What to apply.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// A configuration file; of it pools, models and tenants are looked at.
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Only show what is different.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask. Needed where nobody can be asked.
    #[arg(long)]
    pub yes: bool,
    /// How.
    #[command(flatten)]
    pub how: ChangeArgs,
}

/// How to change something.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// Return when every live gateway has it in force. A line for each step meanwhile.
    #[arg(long)]
    pub wait: bool,
    /// How long to wait at most, such as 90s, 30m or 1h.
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = time)]
    pub timeout: Duration,
    /// All pins at once, or none.
    #[arg(long)]
    pub atomic: bool,
    /// Shares of the traffic before the whole, each for some time, such as "10%:5m,50%:10m".
    #[arg(long, value_name = "PERCENT:TIME,...", value_parser = canary)]
    pub canary: Option<Canary>,
    /// What has to hold of a share before the next one, in CEL, such as "canary.error_rate <= baseline.error_rate + 0.01 && canary.p95_ms <= 1.2 * baseline.p95_ms". If it does not, the pin goes back at once.
    #[arg(long = "while", value_name = "CONDITION", requires = "canary")]
    pub while_holds: Option<String>,
    /// Answers of each version that the condition asks about, before it is judged.
    #[arg(long, value_name = "COUNT", requires = "while_holds", value_parser = clap::value_parser!(u32).range(1..))]
    pub samples: Option<u32>,
    /// Copy live traffic to the new version first and compare the answers: which share of requests is copied, how many comparisons are needed, which share of answers may differ, and by when; such as "5%/200/0.5%/1h". A share without % counts thousandths: "50/200/5/1h" is the same. A shortest time may come before the longest: "5%/200/0.5%/10m-1h".
    #[arg(long, value_name = "SHARE/COMPARE/DIFFER/[LEAST-]TIME", value_parser = shadow)]
    pub shadow: Option<Shadow>,
    /// Why, for the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Which control plane.
    #[command(flatten)]
    pub admin: AdminArgs,
}

/// Steps of a canary: percent, and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canary(pub Vec<(u8, Duration)>);

/// What is copied to a new version before it flips, and what is asked of its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// Requests of a thousand.
    pub share: u16,
    /// Comparisons that are needed.
    pub compare: u32,
    /// Answers of a thousand that may differ.
    pub differ: u16,
    /// The copying lasts at least so long.
    pub at_least: Duration,
    /// Without enough comparisons by then the roll-out fails.
    pub at_most: Duration,
}

fn shadow(text: &str) -> Result<Shadow, String> {
    const FORM: &str = "SHARE/COMPARE/DIFFER/[LEAST-]TIME, such as 5%/200/0.5%/1h or 5%/200/0.5%/10m-1h";
    let parts: Vec<&str> = text.split('/').map(str::trim).collect();
    let [share, compare, differ, times] = parts.as_slice() else { return Err(FORM.to_owned()) };
    let (at_least, at_most) = match times.split_once('-') {
        Some((least, most)) => (time(least)?, time(most)?),
        None => (Duration::ZERO, time(times)?),
    };
    if at_least > at_most {
        return Err("the shortest time is not longer than the longest".to_owned());
    }
    let of_thousand = |text: &str, least: u16| thousandths(text).filter(|n| (least..=1000).contains(n));
    Ok(Shadow {
        share: of_thousand(share, 1).ok_or("a share is 0.1% to 100%, or 1 to 1000: requests of a thousand")?,
        compare: compare.parse::<u32>().ok().filter(|n| *n > 0).ok_or("the comparisons are a whole number from 1")?,
        differ: of_thousand(differ, 0).ok_or("what may differ is 0% to 100%, or 0 to 1000: answers of a thousand")?,
        at_least,
        at_most,
    })
}

/// A share as a per cent with a tenth at most, or as thousandths.
fn thousandths(text: &str) -> Option<u16> {
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u16>().ok()).flatten();
    let Some(percent) = text.strip_suffix('%') else { return number(text) };
    let (whole, tenth) = percent.split_once('.').unwrap_or((percent, "0"));
    let tenth = Some(tenth).filter(|tenth| tenth.len() == 1).and_then(number)?;
    number(whole)?.checked_mul(10)?.checked_add(tenth)
}

fn time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("a whole number and a unit: 500ms, 30s, 5m, 1h".to_owned()),
    };
    let number: Option<u64> = number.parse().ok();
    let whole = number.and_then(|n| n.checked_mul(millis)).filter(|ms| *ms <= 30 * 86_400_000);
    whole.map(Duration::from_millis).ok_or_else(|| "a whole number and a unit, at most 30 days".to_owned())
}

fn canary(text: &str) -> Result<Canary, String> {
    let step = |step: &str| {
        let (percent, wait) = step.trim().split_once("%:").ok_or("a step is PERCENT%:TIME, such as 10%:5m")?;
        let percent: u8 = percent.parse().ok().filter(|p| (1..=99).contains(p)).ok_or("a percent is 1 to 99")?;
        Ok::<_, String>((percent, time(wait)?))
    };
    let steps = text.split(',').map(step).collect::<Result<Vec<_>, String>>()?;
    if steps.iter().zip(steps.iter().skip(1)).any(|(a, b)| a.0 >= b.0) {
        return Err("percents grow from step to step".to_owned());
    }
    Ok(Canary(steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_and_its_bounds() {
        let (at_least, at_most) = (Duration::ZERO, Duration::from_secs(3600));
        let given = Shadow { share: 50, compare: 200, differ: 5, at_least, at_most };
        assert_eq!(shadow("50/200/5/1h"), Ok(given));
        for same in ["5%/200/0.5%/1h", "5.0%/200/0.5%/1h", "50/200/0.5%/1h"] {
            assert_eq!(shadow(same), Ok(given), "{same}");
        }
        assert_eq!(shadow("100%/200/0%/1h").map(|s| (s.share, s.differ)), Ok((1000, 0)));
        let given = Shadow { at_least: Duration::from_secs(600), ..given };
        assert_eq!(shadow("50/200/5/10m-1h"), Ok(given));
        for wrong in [
            "",
            "50/200/5",
            "0/200/5/1h",
            "1001/1/0/1h",
            "50/0/5/1h",
            "50/200/1001/1h",
            "50/200/5/1",
            "1/1/1/1h/1",
            "0%/200/5/1h",
            "100.1%/200/5/1h",
            "5%/200/0.05%/1h",
            "5.%/200/5/1h",
            ".5%/200/5/1h",
            "+5%/200/5/1h",
            "%/200/5/1h",
            "5%%/200/5/1h",
            "5 %/200/5/1h",
            "50/200/5/2h-1h",
            "50/200/5/-1h",
            "50/200/5/1h-",
        ] {
            assert!(shadow(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn steps_of_a_canary() {
        let steps = canary("10%:5m, 50%:10s").unwrap();
        assert_eq!(steps, Canary(vec![(10, Duration::from_secs(300)), (50, Duration::from_secs(10))]));
        for wrong in ["", "10", "10%", "10%:5", "10:5m", "0%:1s", "100%:1s", "50%:1s,10%:1s", "10%:1s,", "10%:99999h"] {
            assert!(canary(wrong).is_err(), "{wrong:?}");
        }
    }
}
