//! What may be said on the command line.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

const EXAMPLE: &str = "Example: holdfast check holdfast.yaml && holdfast serve holdfast.yaml";

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
    /// Run the gateway.
    Serve(ServeArgs),
    /// Check a configuration: every fault with its place, its reason and the nearest valid name.
    Check(CheckArgs),
    /// Print the JSON Schema of the configuration, for editors.
    Schema,
    /// Say which version a request would get, why, who holds it, and what would happen now. Exits with 0 when the answer is a refusal, too.
    Explain(ExplainArgs),
    /// Look at replicas.
    Replica {
        /// What of them.
        #[command(subcommand)]
        what: ReplicaCommand,
    },
    /// Look at the routing table.
    Table {
        /// What of it.
        #[command(subcommand)]
        what: TableCommand,
    },
    /// Look at pins.
    Pin {
        /// What of them.
        #[command(subcommand)]
        what: PinCommand,
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
    /// The form of what is printed.
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
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
    /// A header of the request, as `name: value`; the trusted header names the tenant.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
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

/// Questions about the table.
#[derive(Debug, Subcommand)]
pub enum TableCommand {
    /// Show the table in force: revision, pins, what is on its way.
    Show(AdminArgs),
}

/// Questions about pins.
#[derive(Debug, Subcommand)]
pub enum PinCommand {
    /// List the pins in force.
    List(AdminArgs),
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
