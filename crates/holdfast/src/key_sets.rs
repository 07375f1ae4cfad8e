//! Key sets in files, for who checks a configuration. A gateway that runs reads them by the same rules, and again while it runs.

use holdfast_config::{Config, JwksSource};
use holdfast_gateway::check_key_file;

/// What was found in the files, each by the path of the field that names it, with a reason.
#[derive(Default)]
pub struct Found {
    /// Files that are no key set.
    pub faults: Vec<(String, String)>,
    /// Keys that would not be used.
    pub doubts: Vec<(String, String)>,
}

/// Reads the key sets of all issuers that have theirs in a file.
pub fn check(config: &Config) -> Found {
    let mut found = Found::default();
    for (index, jwt) in config.auth.iter().flat_map(|auth| &auth.jwt).enumerate() {
        let JwksSource::File(file) = &jwt.keys else { continue };
        let path = format!("auth.jwt[{index}].jwks_file");
        match check_key_file(file, &jwt.algorithms) {
            Err(why) => found.faults.push((path, why)),
            Ok(skipped) => found.doubts.extend(skipped.into_iter().map(|key| {
                let name = key.kid.map(|kid| format!(" ({kid:?})")).unwrap_or_default();
                let why = format!("{}: key {}{name} would not be used: {}", file.display(), key.index, key.why);
                (path.clone(), why)
            })),
        }
    }
    found
}
