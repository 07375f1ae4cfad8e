//! Who owns a key, who holds a version, and which replica loads or serves it.
