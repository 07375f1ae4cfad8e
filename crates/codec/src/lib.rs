//! Sans-IO readers and writers of the protocols that pass through.
