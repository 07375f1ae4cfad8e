//! `holdfast check`.

use holdfast_config::Loaded;
use serde_json::json;

use super::Failure;
use crate::cli::{CheckArgs, Output};
use crate::config_file::{self, ConfigError};
use crate::output::{self, counted};
use crate::roles;
use crate::token;

/// Checks a file and prints what is wrong with it.
pub fn run(args: &CheckArgs) -> Result<(), Failure> {
    let name = args.file.display();
    match (config_file::read(&args.file), args.output) {
        (Ok(read), form) => {
            let loaded = read.split.loaded;
            let beyond = beyond(&loaded);
            if !beyond.is_empty() {
                return Err(refuse(args, &beyond));
            }
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
        (Err(ConfigError::Faults(faults)), Output::Json) => {
            output::say(&json!({ "ok": false, "faults": faults.listed, "total": faults.total }).to_string());
            Err(Failure::wrong(format!("{name}: {}", counted(faults.total, "fault"))))
        }
        (Err(error), _) => Err(Failure::wrong(error.to_string())),
    }
}

/// What the process would refuse though the file itself is good: path and reason.
fn beyond(loaded: &Loaded) -> Vec<(&'static str, String)> {
    let fit = holdfast_control::check_fit(&loaded.config).err().map(|e| ("pools", e.to_string()));
    let token = token::all(&loaded.config).err().map(|e| (e.path(), e.to_string()));
    fit.into_iter().chain(token).chain(roles::check(&loaded.config)).collect()
}

fn refuse(args: &CheckArgs, faults: &[(&str, String)]) -> Failure {
    if args.output == Output::Json {
        let listed = faults.iter().map(|(path, reason)| json!({ "file": args.file, "path": path, "reason": reason }));
        let listed: Vec<_> = listed.collect();
        output::say(&json!({ "ok": false, "faults": listed, "total": faults.len() }).to_string());
    }
    let lines = faults.iter().map(|(path, reason)| format!("{}: {path}: {reason}", args.file.display()));
    Failure::wrong(lines.collect::<Vec<_>>().join("\n"))
}

fn praise(args: &CheckArgs, loaded: &Loaded) {
    let (config, warnings) = (&loaded.config, &loaded.warnings);
    let mut with = String::new();
    if !warnings.is_empty() {
        output::complain(&format!("warnings:\n{warnings}"));
        with = format!(", with {}", counted(warnings.total, "warning"));
    }
    let counts = [(config.pools.len(), "pool"), (config.models.len(), "model"), (config.tenants.len(), "tenant")];
    let counts = counts.map(|(number, what)| counted(number, what)).join(", ");
    let role = config.role().as_str();
    output::say(&format!("{}: good{with}, for `holdfast {role}` ({counts})", args.file.display()));
}
