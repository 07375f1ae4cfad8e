//! The planners: figures before anything runs.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::Output;

/// What to plan.
#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Of N replicas, how many for a read and a write: overlap, losses, availability, latency.
    Quorum(QuorumArgs),
    /// Whether pinned versions fit into the replicas' memory: on average, on each replica, and how many replicas each tenant should have.
    Residency(Box<ResidencyArgs>),
    /// What a change of members moves, by ring, rendezvous, slots and modulo, and what the origin has to bear.
    Ring(RingArgs),
    /// How shared limits are leased: chunk, by how much they may be passed, store calls, waits.
    Lease(LeaseArgs),
    /// Floors of a shared pool by weight, and how idle share is lent.
    Fairshare(FairshareArgs),
    /// What limits would have refused of recorded traffic.
    Limits(LimitsArgs),
}

/// The form of a plan.
#[derive(Debug, Args)]
pub struct PlanForm {
    /// The form of what is printed.
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
    /// Write the chart as an SVG picture, too.
    #[arg(long, value_name = "FILE.svg", value_parser = super::picture)]
    pub plot: Option<PathBuf>,
}

/// What to say of quorums.
#[derive(Debug, Args)]
#[command(after_help = "Example: holdfast plan quorum --n 5 --a 0.95 --latency 50:2,99:20,100:200")]
pub struct QuorumArgs {
    /// Replicas of a key.
    #[arg(long)]
    pub n: u32,
    /// The chance that one replica is up, 0 to 1.
    #[arg(long, allow_negative_numbers = true)]
    pub a: f64,
    /// Replicas that answer a read. With --w; left out: the even shape and its neighbours.
    #[arg(long, requires = "w")]
    pub r: Option<u32>,
    /// Replicas that take a write.
    #[arg(long, requires = "r")]
    pub w: Option<u32>,
    /// Replicas that fail together (racks, zones), as the size of each group: 2,2,1.
    #[arg(long, value_delimiter = ',', value_name = "SIZE,...")]
    pub groups: Vec<u32>,
    /// The chance that a group as such is up.
    #[arg(long, default_value_t = 0.999, requires = "groups", allow_negative_numbers = true)]
    pub group_a: f64,
    /// How long one replica takes: percent of its answers, and the milliseconds within which they come.
    #[arg(long, value_delimiter = ',', value_name = "PERCENT:MS,...")]
    pub latency: Vec<String>,
    /// Milliseconds to each replica, on top of its own time.
    #[arg(long, value_delimiter = ',', value_name = "MS,...", requires = "latency")]
    pub distances: Vec<f64>,
    /// The form.
    #[command(flatten)]
    pub form: PlanForm,
}

/// What to say of rings.
#[derive(Debug, Args)]
#[command(after_help = "Example: holdfast plan ring --from 4 --to 3 --reads 17400 --hit-rate 0.57")]
pub struct RingArgs {
    /// Members before.
    #[arg(long)]
    pub from: u32,
    /// Members after.
    #[arg(long)]
    pub to: u32,
    /// Points of each member on the ring.
    #[arg(long, default_value_t = 100)]
    pub virtual_nodes: u32,
    /// Reads in a second, of the whole tier.
    #[arg(long, default_value_t = 17_400.0, allow_negative_numbers = true)]
    pub reads: f64,
    /// The share of reads that the tier answers, 0 to 1.
    #[arg(long, default_value_t = 0.57, allow_negative_numbers = true)]
    pub hit_rate: f64,
    /// How long an entry lives, in seconds.
    #[arg(long, default_value_t = 60.0, allow_negative_numbers = true)]
    pub ttl: f64,
    /// The share of reads that one key gets, 0 to 1. Left out, no key is looked at by itself.
    #[arg(long, allow_negative_numbers = true)]
    pub hottest: Option<f64>,
    /// Reads in a second that the origin can bear.
    #[arg(long, default_value_t = 15_000.0, allow_negative_numbers = true)]
    pub ceiling: f64,
    /// The form.
    #[command(flatten)]
    pub form: PlanForm,
}

/// What is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Solve {
    /// How many replicas.
    Replicas,
}

/// What to say of memory.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  holdfast plan residency --versions 400 --size 2GB --replicas 60 --memory 24GB --k 3\n  \
                  holdfast plan residency --versions 400 --size 2GB --memory 24GB --solve replicas"
)]
pub struct ResidencyArgs {
    /// Versions, each pinned by a tenant of its own.
    #[arg(long, requires_all = ["size", "memory"], required_unless_present_any = ["config", "admin"])]
    pub versions: Option<u32>,
    /// The memory that one version takes.
    #[arg(long, requires = "versions")]
    pub size: Option<String>,
    /// Replicas.
    #[arg(long, requires = "versions", conflicts_with = "solve")]
    pub replicas: Option<u32>,
    /// The memory of one replica. With --solve and real replicas: of one that is added; left out, the least of those that are there.
    #[arg(long, allow_hyphen_values = true)]
    pub memory: Option<String>,
    /// Replicas that are to hold each version. Left out: 2, as a tenant's `subset`.
    #[arg(long, requires = "versions", conflicts_with = "solve")]
    pub k: Option<u32>,
    /// Copies of everything that come before heavy tenants get more. Left out: 1; with --solve 2.
    #[arg(long)]
    pub copies: Option<u32>,
    /// Say how many replicas it takes until everything has its copies and room for one version stays free on each replica.
    #[arg(long, value_enum)]
    pub solve: Option<Solve>,
    /// The chance, 0 to 1, that the names of replicas turn out so that one of them overflows all the same.
    /// Left out: 0.05.
    #[arg(long, requires = "solve", allow_negative_numbers = true)]
    pub chance: Option<f64>,
    /// Requests in a second that one replica bears; left out, traffic is not looked at.
    #[arg(long, requires = "solve", allow_negative_numbers = true)]
    pub bears: Option<f64>,
    /// Instead: the pools, versions and pins of a configuration file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["versions", "admin"])]
    pub config: Option<PathBuf>,
    /// Instead: those that are in force at this admin port.
    #[arg(long, value_name = "URL", conflicts_with = "versions")]
    pub admin: Option<String>,
    /// A file with the bearer token that the admin port asks for.
    #[arg(long, env = "HOLDFAST_ADMIN_TOKEN_FILE", value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,
    /// TLS to it.
    #[command(flatten)]
    pub tls: super::TlsArgs,
    /// A file of lines TENANT,REQUESTS_PER_SECOND. With --versions its tenants pin the versions in turn.
    #[arg(long, value_name = "FILE")]
    pub traffic: Option<PathBuf>,
    /// Without --traffic: requests in a second, of all tenants.
    #[arg(long, default_value_t = 1_000.0, allow_negative_numbers = true)]
    pub requests: f64,
    /// Without --traffic, with --versions: the n-th tenant has 1/n^SKEW of the first one's traffic; 0 is even.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    pub skew: f64,
    /// With --versions: how many sets of names of replicas the chance of an overflow is taken over; fewer if that would take long.
    #[arg(long, default_value_t = 200)]
    pub layouts: u32,
    /// The form.
    #[command(flatten)]
    pub form: PlanForm,
}

/// What to say of leases.
#[derive(Debug, Args)]
#[command(after_help = "Example: holdfast plan lease --limit 1000 --gateways 4")]
pub struct LeaseArgs {
    /// The shared limit, in tokens per second.
    #[arg(long)]
    pub limit: u64,
    /// Gateways that share it.
    #[arg(long)]
    pub gateways: u32,
    /// Tokens of one lease, instead of what the formula says.
    #[arg(long)]
    pub chunk: Option<u64>,
    /// Messages in a second, of everybody whose limits are leased so. Left out: the limit.
    #[arg(long, allow_negative_numbers = true)]
    pub messages: Option<f64>,
    /// The chunk, as a part of the limit per second.
    #[arg(long, default_value_t = 0.025, allow_negative_numbers = true)]
    pub part: f64,
    /// The most that all gateways together may hold, as a part of the limit per second.
    #[arg(long, default_value_t = 0.4, allow_negative_numbers = true)]
    pub fraction: f64,
    /// The form.
    #[command(flatten)]
    pub form: PlanForm,
}

/// What to say of fair shares.
#[derive(Debug, Args)]
#[command(after_help = "Example: holdfast plan fairshare --capacity 1000 --weights 1,2,5 --demands 300,100,2000")]
pub struct FairshareArgs {
    /// What the pool can do in a second.
    #[arg(long)]
    pub capacity: u64,
    /// The tenants' weights.
    #[arg(long, value_delimiter = ',', required = true, value_name = "WEIGHT,...")]
    pub weights: Vec<u32>,
    /// What each asks for in a second. Left out: all that it can get.
    #[arg(long, value_delimiter = ',', value_name = "RATE,...")]
    pub demands: Vec<u64>,
    /// The form.
    #[command(flatten)]
    pub form: PlanForm,
}

/// What to say of limits.
#[derive(Debug, Args)]
#[command(after_help = "Example: holdfast plan limits --traffic traffic.csv --limit 20:40 --tenant acme=1000")]
pub struct LimitsArgs {
    /// Lines of TIME,TENANT,COST: seconds (not falling), a name, a whole number.
    #[arg(long, value_name = "FILE")]
    pub traffic: PathBuf,
    /// Each tenant's limit: tokens per second, and the burst (left out: as many).
    #[arg(long, value_name = "RATE[:BURST]", allow_hyphen_values = true)]
    pub limit: String,
    /// One tenant's own. May be given again.
    #[arg(long = "tenant", value_name = "TENANT=RATE[:BURST]")]
    pub tenants: Vec<String>,
    /// The form.
    #[command(flatten)]
    pub form: PlanForm,
}
