//! YAML to a validated configuration, with every fault at its position.
