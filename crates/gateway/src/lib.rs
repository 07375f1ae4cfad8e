//! The data plane: one file per stage of a request, and the drivers of the pure state.
