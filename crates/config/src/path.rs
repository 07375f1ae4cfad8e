//! A place in the shape of the configuration, such as `tenants[2].pins.screen`.
//!
//! A chain of borrowed steps on the stack: a path costs nothing until a fault is written.

use std::fmt;

/// The steps from the root.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'p> {
    Root,
    Field(&'p Path<'p>, &'p str),
    Item(&'p Path<'p>, usize),
}

impl<'p> Path<'p> {
    pub(crate) const fn field(&'p self, name: &'p str) -> Path<'p> {
        Path::Field(self, name)
    }

    pub(crate) const fn item(&'p self, index: usize) -> Path<'p> {
        Path::Item(self, index)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(parent, name) => {
                parent.fmt(f)?;
                let dot = if matches!(parent, Path::Root) { "" } else { "." };
                let plain = !name.is_empty()
                    && name.len() <= 128
                    && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
                if plain { write!(f, "{dot}{name}") } else { write!(f, "{dot}{}", crate::fault::quoted(name)) }
            }
            Path::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Path::Root;

    #[test]
    fn paths_as_they_are_written() {
        let tenants = Root.field("tenants");
        let third = tenants.item(2);
        let pins = third.field("pins");
        assert_eq!(pins.field("screen").to_string(), "tenants[2].pins.screen");
        assert_eq!(pins.field("a.b c\u{1b}").to_string(), "tenants[2].pins.\"a.b c\\u{1b}\"");
        assert_eq!(Root.to_string(), "");
        assert_eq!(Root.field("").to_string(), "\"\"");
    }
}
