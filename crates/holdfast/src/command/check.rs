//! `holdfast check`.

use serde_json::json;

use super::Failure;
use crate::cli::{CheckArgs, Output};
use crate::config_file::{self, ConfigError};
use crate::output;

/// Checks a file and prints what is wrong with it.
pub fn run(args: &CheckArgs) -> Result<(), Failure> {
    let result = config_file::read(&args.file);
    if let Ok(loaded) = &result
        && let Err(error) = holdfast_gateway::check_fit(&loaded.config)
    {
        if args.output == Output::Json {
            let fault = json!({ "file": args.file, "path": "pools", "reason": error.to_string() });
            output::say(&json!({ "ok": false, "faults": [fault], "total": 1 }).to_string());
        }
        return Err(Failure::wrong(format!("{}: {error}", args.file.display())));
    }
    match (result, args.output) {
        (Ok(loaded), Output::Table) => {
            if !loaded.warnings.is_empty() {
                output::complain(&format!("warnings:\n{}", loaded.warnings));
            }
            let config = &loaded.config;
            let counts =
                [(config.pools.len(), "pools"), (config.models.len(), "models"), (config.tenants.len(), "tenants")];
            let counts: Vec<String> = counts.iter().map(|(n, what)| format!("{n} {what}")).collect();
            output::say(&format!("{}: good ({})", args.file.display(), counts.join(", ")));
            Ok(())
        }
        (Ok(loaded), Output::Json) => {
            output::say(&json!({ "ok": true, "faults": [], "total": 0, "warnings": loaded.warnings }).to_string());
            Ok(())
        }
        (Err(ConfigError::Faults(faults)), Output::Json) => {
            output::say(&json!({ "ok": false, "faults": faults.listed, "total": faults.total }).to_string());
            Err(Failure::wrong(format!("{}: {} faults", args.file.display(), faults.total)))
        }
        (Err(error), _) => Err(Failure::wrong(error.to_string())),
    }
}
