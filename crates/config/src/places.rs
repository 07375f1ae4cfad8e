//! Places for faults that show only outside of the text: a file that it names, what its pins come to in a pool's memory.

use crate::fault::{Faults, Sink};
use crate::path::Path;
use crate::tree::{self, Place};
use crate::{Source, env};

/// One step of a path that was written out.
enum Step<'p> {
    Field(&'p str),
    Item(usize),
}

/// Faults of a configuration with a place each: `found` has the path of each, such as `auth.jwt[0].jwks_file`, and its reason. What the text does not say has
/// the place of the nearest section around it.
#[must_use]
pub fn placed(source: &Source<'_>, found: &[(String, String)]) -> Faults {
    let mut sink = Sink::new(source.name, source.text, source.environment);
    let mut unheard = Sink::new(source.name, source.text, &[]);
    let tree = tree::parse(source.text, &mut unheard).map(|mut tree| {
        env::apply(&mut tree, source.environment, &mut unheard);
        tree
    });
    for (path, reason) in found {
        along(&steps(path), &Path::Root, &mut |path| {
            let place = tree.as_ref().map_or(Place::START, |tree| tree.place_of(path));
            sink.add(place, path, reason.as_str());
        });
    }
    sink.finish()
}

fn steps(path: &str) -> Vec<Step<'_>> {
    let parts = path.split(['.', '[']).filter(|part| !part.is_empty());
    let index = |part: &str| part.strip_suffix(']').and_then(|index| index.parse().ok());
    parts.map(|part| index(part).map_or(Step::Field(part), Step::Item)).collect()
}

/// Paths are chains of borrowed steps, so that one is made from the root on.
fn along(steps: &[Step<'_>], from: &Path<'_>, then: &mut dyn FnMut(&Path<'_>)) {
    match steps.split_first() {
        None => then(from),
        Some((Step::Field(name), rest)) => along(rest, &from.field(name), then),
        Some((Step::Item(index), rest)) => along(rest, &from.item(*index), then),
    }
}
