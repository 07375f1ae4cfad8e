//! YAML to a validated configuration, with every fault at its position.
//!
//! [`load`] takes text and gives a [`Config`] in which every name leads somewhere, every number is in its range and every unit is in its
//! type; or it gives all [`Faults`] at once, each with line, column, path, reason and, for an unknown name, the nearest valid one. It is all or
//! nothing: there is no configuration with holes.
//!
//! The way: text → a tree that knows places (`tree`) → overrides of the environment (`env`) → forms with typed fields (`section`, `kind`,
//! `forms`) → names followed and fields compared (`check*`) → [`Config`] (`model`). One declaration of a section is its struct, its
//! defaults, its reader and its part of the JSON Schema.
//!
//! It opens no file, reads no environment and prints nothing: text, variables and a way to read golden files are arguments. It does not
//! decide whether pins fit into memory; that is a question for the placement of a whole fleet.

mod api_keys;
mod certificates;
mod check;
mod check_experiments;
mod check_fleet;
mod check_limits;
mod check_models;
mod check_pools;
mod check_tenants;
mod compound;
mod env;
mod experiment;
mod fallback;
mod fault;
mod fleet;
mod forms;
mod frame;
mod given;
mod identity;
mod kind;
mod limits;
mod model;
mod moments;
mod number;
mod path;
mod places;
mod pool;
mod redis;
mod resources;
mod rooted;
mod section;
mod settings;
mod special;
mod stamps;
mod stream;
mod table;
mod template;
mod text;
mod tokens;
mod tree;
mod units;

use std::io;

pub use api_keys::ApiKey;
pub use certificates::CertificateName;
pub use env::PREFIX as ENVIRONMENT_PREFIX;
pub use experiment::{Arm, Experiment, Rule, Status};
pub use fault::{Fault, Faults, MAX_LISTED, nearest_name};
pub use fleet::*;
pub use frame::{Frame, ReadFile};
pub use given::with_history;
pub use identity::{Auth, BadTokens, JwksSource, JwksUrl, JwtIssuer};
pub use limits::*;
pub use model::*;
pub use moments::instant;
pub use places::placed;
pub use pool::*;
pub use redis::{RedisAccess, RedisUrl};
pub use resources::{ResourceKind, Resources, Split, assemble, split};
pub use settings::*;
pub use stamps::*;
pub use stream::{LadderRules, MessagePriority, MessageType, Stream, StreamRoute};
pub use table::{Pins, table_input};
pub use template::{Template, TemplateError};
pub use tokens::OwnTokens;
pub use tree::{MAX_TEXT, MAX_VALUES};

use kind::Kind;

/// What a configuration is made of.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The YAML text.
    pub text: &'a str,
    /// The name of its file, for faults.
    pub name: &'a str,
    /// Variables of the process; those that start with [`ENVIRONMENT_PREFIX`] override fields, the others are passed over.
    pub environment: &'a [(String, String)],
    /// The folder of its file: relative paths of the configuration are below it. Empty: they stay as they are written.
    pub folder: &'a std::path::Path,
    /// Reads a golden file that the configuration names. Relative paths are as written in the configuration.
    pub read_file: &'a dyn Fn(&std::path::Path) -> io::Result<Vec<u8>>,
}

impl<'a> Source<'a> {
    /// Text alone: no overrides, and no files beside it.
    #[must_use]
    pub fn text(name: &'a str, text: &'a str) -> Self {
        let folder = std::path::Path::new("");
        Self { text, name, environment: &[], folder, read_file: &|_| Err(io::ErrorKind::Unsupported.into()) }
    }
}

/// A good configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What is allowed but most likely not meant.
    pub warnings: Faults,
}

/// Reads and checks a configuration. Pure but for `read_file`; 100,000 tenants take less than a second of one core.
///
/// # Errors
/// Every fault of the text, the overrides and the files that it names. Broken YAML syntax is one fault, since what follows it cannot be read.
pub fn load(source: &Source<'_>) -> Result<Loaded, Faults> {
    let mut faults = fault::Sink::new(source.name, source.text, source.environment);
    let Some(mut tree) = tree::parse(source.text, &mut faults) else { return Err(faults.finish()) };
    env::apply(&mut tree, source.environment, &mut faults);
    let file: forms::File = section::form().read(&tree, &path::Path::Root, &mut faults).unwrap_or_default();
    let warnings = fault::Sink::new(source.name, source.text, source.environment);
    let mut checker =
        check::Checker { tree: &tree, faults, warnings, read_file: source.read_file, hint_budget: check::HINT_BUDGET };
    let mut config = check::check(&mut checker, file);
    rooted::root(&mut config, source.folder);
    let check::Checker { faults, warnings, .. } = checker;
    if faults.is_empty() { Ok(Loaded { config, warnings: warnings.finish() }) } else { Err(faults.finish()) }
}

/// JSON Schema (2020-12) of the file, for editors: `# yaml-language-server: $schema=FILE`. It knows the shape of the file, not the rules between
/// fields.
#[must_use]
pub fn schema() -> serde_json::Value {
    let mut schema = section::form::<forms::File>().schema();
    if let Some(object) = schema.as_object_mut() {
        object.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
        object.insert("title".to_owned(), "Holdfast".into());
    }
    schema
}
