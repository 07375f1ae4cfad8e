//! The bounds of what a store takes. They are part of the contract: both backends refuse the same things.

/// The most bytes of one resource's value, and of one record's.
pub const MAX_VALUE_BYTES: usize = 64 * 1024;
/// The most edits of one change.
pub const MAX_EDITS: usize = 200_000;
/// The most bytes of one change: names and values of its edits.
pub const MAX_CHANGE_BYTES: usize = 64 * 1024 * 1024;
/// The most record writes of one commit.
pub const MAX_RECORD_WRITES: usize = 1_000;
/// The most letters of a kind.
pub const MAX_KIND_BYTES: usize = 32;
/// The most parts of a name, separated by `/`.
pub const MAX_NAME_PARTS: usize = 4;
/// The most different kinds that one store ever takes.
pub const MAX_KINDS: usize = 64;
/// The most bytes of an author.
pub const MAX_AUTHOR_BYTES: usize = 256;
/// The most bytes of a reason.
pub const MAX_REASON_BYTES: usize = 4_096;
/// The most rows of one page; a larger wish is cut to it.
pub const MAX_PAGE: usize = 1_000;
/// The most headers, and the most places, that a conflict names.
pub const MAX_CONFLICT_ROWS: usize = 16;
/// A change of more edits than this has the deadline for bulk work.
pub const BULK_EDITS: usize = 1_000;

/// The most headers, and the most edits, that one call of a prune works on; a larger wish is cut to it.
pub const MAX_PRUNE: usize = 10_000;

/// A page's size inside its bounds.
pub(crate) fn page(limit: usize) -> usize {
    limit.clamp(1, MAX_PAGE)
}
