//! The control plane: the truth of the table, roll-outs, the admin API.
