//! The settings of one model server, as flags of a command line.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use holdfast_types::{Bytes, ModelName, Version};

use crate::faults::Faults;
use crate::repository::Layout;
use crate::span::Span;

/// Settings of `holdfast model-server`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9001")]
    pub listen: SocketAddr,
    /// Folder with the models
    #[arg(long, value_name = "DIR")]
    pub repository: PathBuf,
    /// How folders give models their names
    #[arg(long, value_enum, default_value_t)]
    pub layout: Layout,
    /// Name of this server
    #[arg(long, default_value = "r1")]
    pub name: String,
    /// Memory for models; a load that does not fit is refused
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "24GiB")]
    pub memory: Bytes,
    /// How long a load takes when the model file does not say
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub load_time: Span,
    /// Model to hold from the start, NAME or NAME:VERSION; may be repeated
    #[arg(long, value_name = "NAME[:VERSION]", conflicts_with = "load_all")]
    pub load: Vec<Wish>,
    /// Hold everything in the repository from the start
    #[arg(long)]
    pub load_all: bool,
    /// Stop a load when the client that asked for it leaves; without it the load goes on
    #[arg(long)]
    pub loads_end_with_client: bool,
    /// Fault from the start, KEY=VALUE or a JSON object as for POST /control/faults; may be repeated, keys below
    #[arg(long, value_name = "FAULT")]
    pub fault: Vec<String>,
    /// Seed of the draws for faults that meet a share of requests
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Do not serve /control/faults and /control/stats (what was served)
    #[arg(long)]
    pub no_control: bool,
    /// File to write the port to, once the server listens
    #[arg(long, value_name = "FILE")]
    pub port_file: Option<PathBuf>,
}

/// A model to hold from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The name.
    pub name: String,
    /// One version of it; all if not given.
    pub version: Option<String>,
}

impl Options {
    /// The defaults for a repository, on a free port of the loopback address.
    #[must_use]
    pub fn new(repository: &Path) -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            repository: repository.to_owned(),
            layout: Layout::default(),
            name: "r1".to_owned(),
            memory: Bytes(24 << 30),
            load_time: Span(Duration::from_secs(2)),
            load: Vec::new(),
            load_all: false,
            loads_end_with_client: false,
            fault: Vec::new(),
            seed: 1,
            no_control: false,
            port_file: None,
        }
    }

    /// The faults from the start.
    ///
    /// # Errors
    /// What is wrong with a `--fault`.
    pub fn faults(&self) -> Result<Faults, String> {
        Faults::from_settings(&self.fault)
    }
}

impl FromStr for Wish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, version) = text.split_once(':').map_or((text, None), |(name, version)| (name, Some(version)));
        ModelName::check(name).map_err(|why| format!("the model name {why}"))?;
        if let Some(version) = version {
            Version::check(version).map_err(|why| format!("the version {why}"))?;
        }
        Ok(Self { name: name.to_owned(), version: version.map(str::to_owned) })
    }
}

fn parse_bytes(text: &str) -> Result<Bytes, String> {
    Bytes::parse(text).map_err(|why| format!("{text:?} {why}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn parse(args: &str) -> Result<Options, String> {
        let args = ["x", "--repository", "models"].into_iter().chain(args.split_whitespace());
        Command::try_parse_from(args).map(|command| command.options).map_err(|why| why.to_string())
    }

    #[test]
    fn flags_and_their_defaults() {
        let options = parse("").unwrap();
        assert_eq!(options.listen.to_string(), "127.0.0.1:9001");
        let built = Options { listen: options.listen, ..Options::new(Path::new("models")) };
        assert_eq!(format!("{options:?}"), format!("{built:?}"));
        let options =
            parse("--load a --load b:2 --memory 8GB --load-time 50ms --layout versions --fault hang=0.5").unwrap();
        assert_eq!(options.load[1], Wish { name: "b".into(), version: Some("2".into()) });
        assert_eq!((options.memory, options.layout), (Bytes(8_000_000_000), Layout::Versions));
        assert!(options.faults().is_ok());
        for (args, says) in [
            ("--load b:latest", "latest"),
            ("--memory lots", "is not a size"),
            ("--load a --load-all", "cannot be used"),
        ] {
            let why = parse(args).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }
}
