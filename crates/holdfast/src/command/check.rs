//! `holdfast check`.

use holdfast_config::{Faults, Loaded};
use serde_json::json;

use super::Failure;
use crate::cli::{CheckArgs, Output};
use crate::config_file::{self, ConfigError};
use crate::key_sets;
use crate::output::{self, counted};
use crate::roles;
use crate::token;

/// Checks a file and prints what is wrong with it.
pub fn run(args: &CheckArgs) -> Result<(), Failure> {
    match (config_file::read(&args.file), args.output) {
        (Ok(read), form) => {
            let mut loaded = read.split.loaded;
            let key_sets = key_sets::check(&loaded.config);
            let beyond = beyond(&loaded, key_sets.faults);
            if !beyond.is_empty() {
                return Err(refuse(args, &placed(args, &beyond)?));
            }
            let doubts = placed(args, &key_sets.doubts)?;
            loaded.warnings.total += doubts.total;
            loaded.warnings.listed.extend(doubts.listed);
            match form {
                Output::Table => praise(args, &loaded),
                Output::Json => {
                    let role = loaded.config.role().as_str();
                    let told =
                        json!({ "ok": true, "role": role, "faults": [], "total": 0, "warnings": loaded.warnings });
                    output::say(&told.to_string());
                }
            }
            Ok(())
        }
        (Err(ConfigError::Faults(faults)), _) => Err(refuse(args, &faults)),
        (Err(error), _) => Err(Failure::wrong(error.to_string())),
    }
}

/// What the process would refuse though the text itself is good: path and reason.
fn beyond(loaded: &Loaded, key_sets: Vec<(String, String)>) -> Vec<(String, String)> {
    let config = &loaded.config;
    let fit = holdfast_control::check_fit(config).err().map(|e| (e.path(config), e.to_string()));
    let token = token::all(config).err().map(|e| (e.path().to_owned(), e.to_string()));
    let proofs = roles::check(config).into_iter().map(|(path, reason)| (path.to_owned(), reason));
    fit.into_iter().chain(token).chain(proofs).chain(key_sets).collect()
}

fn placed(args: &CheckArgs, found: &[(String, String)]) -> Result<Faults, Failure> {
    config_file::places(&args.file, found).map_err(|e| Failure::wrong(e.to_string()))
}

fn refuse(args: &CheckArgs, faults: &Faults) -> Failure {
    match args.output {
        Output::Table => Failure::wrong(faults.to_string()),
        Output::Json => {
            output::say(&json!({ "ok": false, "faults": faults.listed, "total": faults.total }).to_string());
            Failure::wrong(format!("{}: {}", args.file.display(), counted(faults.total, "fault")))
        }
    }
}

fn praise(args: &CheckArgs, loaded: &Loaded) {
    let (config, warnings) = (&loaded.config, &loaded.warnings);
    let mut with = String::new();
    if !warnings.is_empty() {
        output::complain(&format!("warnings:\n{warnings}"));
        with = format!(", with {}", counted(warnings.total, "warning"));
    }
    let role = config.role().as_str();
    // What a gateway of a fleet routes is told by the control plane: it has nothing to count.
    if config.pools.is_empty() && config.models.is_empty() && config.tenants.is_empty() {
        return output::say(&format!("{}: good{with}, for `holdfast {role}`", args.file.display()));
    }
    let counts = [(config.pools.len(), "pool"), (config.models.len(), "model"), (config.tenants.len(), "tenant")];
    let counts = counts.map(|(number, what)| counted(number, what)).join(", ");
    output::say(&format!("{}: good{with}, for `holdfast {role}` ({counts})", args.file.display()));
}
