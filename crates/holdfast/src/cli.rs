//! What may be said on the command line.

mod control;
mod experiment;
mod keys;
mod plan;
mod sim;
mod tokens;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use control::*;
pub use experiment::*;
pub use keys::*;
pub use plan::*;
pub use sim::*;
pub use tokens::*;

/// Where a picture is to be written. It is SVG, and a name that says otherwise is refused.
fn picture(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let is_svg = path.extension().is_none_or(|ending| ending.eq_ignore_ascii_case("svg"));
    if is_svg { Ok(path) } else { Err("pictures are written as SVG: give a name that ends in .svg".to_owned()) }
}

const EXAMPLE: &str = "\
Example: holdfast check holdfast.yaml && holdfast serve holdfast.yaml

Commands that ask a running process take --admin URL, behind their other words:
  holdfast pin list --admin http://127.0.0.1:7401
HOLDFAST_ADMIN=URL says the same for all of them; the default is http://127.0.0.1:7401.";

/// Where `--admin` goes, below the help of a group of commands.
const WHERE: &str = "\
Each of them takes --admin URL behind its other words, or HOLDFAST_ADMIN=URL; the default is http://127.0.0.1:7401.";

/// How the faults of a model server are given; all of them are in docs/drills.md.
const FAULTS: &str = "\
Faults, for --fault and POST /control/faults (RATE is 0 to 1, or true):
  infer_delay=TIME           hang=RATE
  error_rate=RATE            error_status=STATUS
  wrong_version_rate=RATE    wrong_weights_rate=RATE
  omit_version=true          late_mismatch=true
  ready_lies=true            reset_after_bytes=N
  load_fails=TEXT            load_hangs=true
  die_after_requests=N       limit=N (only the first N requests)
  stream_chunks='{\"bytes\":N,\"every\":\"TIME\"}'

GET /control/faults shows the faults that are on; POST replaces all, {} ends them.
GET /control/stats shows what was loaded and served.";

/// A multi-tenant gateway in front of model servers: every request is judged by the version that its tenant pinned, or by none.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, max_term_width = 120, after_help = EXAMPLE)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The form of what is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// One JSON value, for programs.
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a gateway with its control plane in one process.
    Serve(ServeArgs),
    /// Run a control plane of a fleet: any number of them over one PostgreSQL, of which one leads.
    Control(ServeArgs),
    /// Run a gateway of a fleet, which follows the fleet's control planes.
    Gateway(ServeArgs),
    /// Check a configuration: every fault with its place, its reason and the nearest valid name.
    Check(CheckArgs),
    /// Print the JSON Schema of the configuration, for editors.
    Schema,
    /// Say which version a request would get, why, who holds it, and what would happen now. Exits with 0 when the answer is a refusal, too.
    Explain(ExplainArgs),
    /// Say what was decided for one of the last requests: identity, version, subset, loads, waits, attempts, the time of each stage.
    Receipt(ReceiptArgs),
    /// Look at replicas.
    #[command(after_help = WHERE)]
    Replica {
        /// What of them.
        #[command(subcommand)]
        what: ReplicaCommand,
    },
    /// Look at limits.
    #[command(after_help = WHERE)]
    Limits {
        /// What of them.
        #[command(subcommand)]
        what: LimitsCommand,
    },
    /// Make the pools, models and tenants of a file the desired ones: what it does not name goes. Shows first what is different.
    Apply(Box<ApplyArgs>),
    /// Look at the routing table, its history, and go back in it.
    #[command(after_help = WHERE)]
    Table {
        /// What of it.
        #[command(subcommand)]
        what: TableCommand,
    },
    /// Look at pins, and change them.
    #[command(after_help = WHERE)]
    Pin {
        /// What of them.
        #[command(subcommand)]
        what: PinCommand,
    },
    /// Look at experiments.
    #[command(after_help = WHERE)]
    Experiment {
        /// What of them.
        #[command(subcommand)]
        what: ExperimentCommand,
    },
    /// Make, list and revoke API keys.
    #[command(after_help = WHERE)]
    Key {
        /// What of them.
        #[command(subcommand)]
        what: KeyCommand,
    },
    /// Revoke tokens that the gateways signed themselves, and have another key sign them.
    Token {
        /// What of them.
        #[command(subcommand)]
        what: TokenCommand,
    },
    /// Read the audit log: which version gave which answer, and whether nobody changed what it says.
    Audit {
        /// What of it.
        #[command(subcommand)]
        what: AuditCommand,
    },
    /// Look at roll-outs, and steer them.
    #[command(after_help = WHERE)]
    Rollout {
        /// What of them.
        #[command(subcommand)]
        what: RolloutCommand,
    },
    /// Look at gateways.
    #[command(after_help = WHERE)]
    Node {
        /// What of them.
        #[command(subcommand)]
        what: NodeCommand,
    },
    /// Write a backup of the table and its history: of a process that runs, or with --config of the state folder or the PostgreSQL that a file names.
    Backup(BackupArgs),
    /// Restore a backup into an empty state folder, or into an empty PostgreSQL of control planes.
    Restore(RestoreArgs),
    /// Compute figures before anything runs: memory, rings, quorums, limits, shares.
    Plan {
        /// Of what.
        #[command(subcommand)]
        what: PlanCommand,
    },
    /// Simulate, on a clock of its own and with seeded chance, what would take machines and time to try.
    Sim {
        /// What.
        #[command(subcommand)]
        what: SimCommand,
    },
    /// Show what Holdfast does, on this machine, in about half a minute.
    Demo(DemoArgs),
    /// Run a small model server, for drills and tests.
    ModelServer(Box<ModelServerArgs>),
    /// Print shell completions.
    Completions {
        /// For which shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one for each command into a folder.
    Man {
        /// The folder.
        dir: Option<PathBuf>,
    },
}

/// What to serve.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The configuration file (YAML). Fields may be overridden by variables such as HOLDFAST__LISTEN__DATA.
    #[arg(value_name = "FILE", required_unless_present = "config")]
    file: Option<PathBuf>,
    /// The same, by its name.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
}

impl ServeArgs {
    /// The configuration file, however it was given.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_deref().or(self.config.as_deref())
    }
}

/// What to back up.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The file to be written; it must not be there yet.
    pub file: PathBuf,
    /// The configuration file, which names the state folder or, of a control plane of a fleet, PostgreSQL. Without it the running process is asked.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Which gateway.
    #[command(flatten)]
    pub admin: AdminArgs,
}

/// What to restore.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The backup.
    pub file: PathBuf,
    /// The configuration file, which names the state folder or, of a control plane of a fleet, PostgreSQL. It must hold no table yet; a folder that is not there is made.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// How to check.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The configuration file.
    pub file: PathBuf,
    /// The form of the faults.
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// Which running gateway to ask, and how to print what it says.
#[derive(Clone, Debug, Args)]
pub struct AdminArgs {
    /// The admin port of the running gateway.
    #[arg(long, env = "HOLDFAST_ADMIN", default_value = "http://127.0.0.1:7401", value_name = "URL")]
    pub admin: String,
    /// A file with the bearer token that the admin port asks for.
    #[arg(long, env = "HOLDFAST_ADMIN_TOKEN_FILE", value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,
    /// TLS to it.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// The form of what is printed.
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// TLS to an admin port whose URL begins with `https://`.
#[derive(Clone, Debug, Default, Args)]
pub struct TlsArgs {
    /// Who signs the certificate of the admin port, in PEM; for https. There is no list that is built in.
    #[arg(long, env = "HOLDFAST_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// The own certificate chain in PEM, if the admin port knows callers by certificates.
    #[arg(long, env = "HOLDFAST_CLIENT_CERT", value_name = "FILE", requires = "client_key")]
    pub client_cert: Option<PathBuf>,
    /// Its private key in PEM.
    #[arg(long, env = "HOLDFAST_CLIENT_KEY", value_name = "FILE", requires = "client_cert")]
    pub client_key: Option<PathBuf>,
}

/// What to explain.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The tenant. This or `--header` is needed.
    #[arg(long)]
    pub tenant: Option<String>,
    /// The model.
    #[arg(long)]
    pub model: String,
    /// The version that the request names, if it names one.
    #[arg(long)]
    pub version: Option<String>,
    /// The route token that a retry brings.
    #[arg(long, value_name = "TOKEN")]
    pub route: Option<String>,
    /// A header of the request, as `name: value`; the trusted header names the tenant.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// The user who asks, as a token would name it.
    #[arg(long)]
    pub user: Option<String>,
    /// The device.
    #[arg(long)]
    pub device: Option<String>,
    /// The plan.
    #[arg(long)]
    pub plan: Option<String>,
    /// A scope of the token.
    #[arg(long = "scope", value_name = "SCOPE")]
    pub scopes: Vec<String>,
    /// A claim of the token that targets may look at, as `name=value`.
    #[arg(long = "claim", value_name = "NAME=VALUE")]
    pub claims: Vec<String>,
    /// The version that an administrator's override names.
    #[arg(long = "override", value_name = "VERSION")]
    pub wants: Option<String>,
    /// Which gateway.
    #[command(flatten)]
    pub admin: AdminArgs,
}

/// Which request.
#[derive(Debug, Args)]
pub struct ReceiptArgs {
    /// The request's id, as `x-holdfast-request-id` told it.
    #[arg(value_name = "ID")]
    pub id: String,
    /// Which gateway.
    #[command(flatten)]
    pub admin: AdminArgs,
}

/// Questions about replicas.
#[derive(Debug, Subcommand)]
pub enum ReplicaCommand {
    /// List them, with what they hold.
    List(AdminArgs),
}

/// Questions about limits.
#[derive(Debug, Subcommand)]
pub enum LimitsCommand {
    /// Look at plans: what tenants are allowed that name them.
    Plan {
        /// What of them.
        #[command(subcommand)]
        what: PlansCommand,
    },
    /// List them, with what is left of each in this gateway.
    List {
        /// Of one tenant.
        #[arg(long)]
        tenant: Option<String>,
        /// Which gateway.
        #[command(flatten)]
        admin: AdminArgs,
    },
}

/// Questions about plans of limits.
#[derive(Debug, Subcommand)]
pub enum PlansCommand {
    /// List them, with what each says.
    List(AdminArgs),
    /// Show one.
    Show {
        /// Its name.
        name: String,
        /// Which gateway.
        #[command(flatten)]
        admin: AdminArgs,
    },
}

/// Questions about the audit log. They read its files, and need no running gateway.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Find records of answers. Exits with 0 when there is none, too.
    Find(AuditFindArgs),
    /// Check the chain of hashes. Exits with 1 when it is broken, and says where.
    Verify(AuditPlace),
}

/// Where the audit log is, and how to print what it says. Without either: the folder of a configuration without `state`.
#[derive(Clone, Debug, Args)]
pub struct AuditPlace {
    /// The log's folder.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub folder: Option<PathBuf>,
    /// The gateway's configuration, which says where the log is.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The form of what is printed.
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// Which records.
#[derive(Debug, Args)]
pub struct AuditFindArgs {
    /// The request's id, as `x-holdfast-request-id` told it.
    #[arg(long, value_name = "ID")]
    pub request_id: Option<String>,
    /// The tenant.
    #[arg(long)]
    pub tenant: Option<String>,
    /// The model.
    #[arg(long)]
    pub model: Option<String>,
    /// The version that answered.
    #[arg(long)]
    pub version: Option<String>,
    /// From this time on (UTC): 2026-11-30, 2026-11-30T12:00 or 2026-11-30T12:00:00.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub since: Option<String>,
    /// Before this time (UTC).
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub until: Option<String>,
    /// Where.
    #[command(flatten)]
    pub place: AuditPlace,
}

/// A beginning of a time as records have it, at least a day.
fn time(text: &str) -> Result<String, String> {
    const FORM: &[u8] = b"0000-00-00T00:00:00.000";
    let given = text.trim_end_matches('Z');
    let fits = |(is, form): (u8, &u8)| if *form == b'0' { is.is_ascii_digit() } else { is == *form };
    let is_right = [10, 16, 19, 23].contains(&given.len()) && given.bytes().zip(FORM).all(fits);
    is_right.then(|| given.to_owned()).ok_or_else(|| "write it as 2026-11-30 or 2026-11-30T12:00:00 (UTC)".to_owned())
}

/// How to run a model server.
#[derive(Debug, Args)]
#[command(after_help = FAULTS)]
pub struct ModelServerArgs {
    /// Write small sample versions of a model into the repository, and end.
    #[arg(long, value_name = "MODEL:VERSION,VERSION...")]
    pub sample: Option<String>,
    /// The server.
    #[command(flatten)]
    pub options: holdfast_model_server::Options,
}

/// How to run the demo.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Seconds of traffic in each scene.
    #[arg(long, default_value_t = 6)]
    pub seconds: u64,
    /// Keep the demo's files and say where they are.
    #[arg(long)]
    pub keep: bool,
}
