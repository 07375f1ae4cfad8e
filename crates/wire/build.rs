//! Compiles the protocol's definition, with a compiler in Rust: a build needs no `protoc`.

use std::error::Error;
use std::path::Path;

const ROOT: &str = "proto";
const FILES: [&str; 2] = ["proto/holdfast/control/v1/control.proto", "proto/holdfast/control/v1/seats.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={ROOT}");
    let definition = protox::compile(FILES.map(Path::new), [Path::new(ROOT)])?;
    tonic_prost_build::configure().bytes(".").btree_map(".").compile_fds(definition)?;
    Ok(())
}
