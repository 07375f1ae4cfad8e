//! Which arm of an experiment somebody is in, and what the arms have shown.
//!
//! An arm follows from the experiment as the table has it and from a stable key, by a published hash; nothing else is asked, so nothing that is lost moves
//! anybody (ARM-1). [`place`] is the hash, [`split`] turns weights into ranges, [`allocation`] keeps what has been given so far and says which edits would
//! move somebody, [`target`] says who is meant, [`sticky`] who keeps an arm when more becomes known of them, [`experiment`] puts them together, [`window`] keeps what arms have shown, [`stats`] and [`analysis`] read it.

pub mod allocation;
pub mod analysis;
pub mod experiment;
pub mod place;
pub mod split;
pub mod stats;
pub mod sticky;
pub mod target;
pub mod window;

pub use allocation::{Allocation, Edit, Refused, Segment};
pub use experiment::{Experiment, Facts, KeyFrom, Layer, Out, Outcome};
pub use place::{PLACES, Purpose, place};
pub use split::{Range, Split, SplitError};
pub use sticky::{Kept, Sticky};
pub use target::{Condition, Field, Target};
