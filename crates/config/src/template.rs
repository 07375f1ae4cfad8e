//! Upstream names out of `{model}` and `{version}`.

use std::fmt;

/// A text with places for a model and a version, such as `{model}-{version}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Template {
    text: Box<str>,
    parts: Box<[Part]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Part {
    Text(Box<str>),
    Model,
    Version,
}

/// Why a text is not a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// A name in braces other than `model` and `version`.
    UnknownName(Box<str>),
    /// A brace without its partner.
    LooseBrace,
    /// A character that has no place in an upstream's name.
    BadCharacter(char),
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName(name) => {
                write!(f, "has {{{name}}}, which is not known here; known are {{model}} and {{version}}")
            }
            Self::LooseBrace => f.write_str("has a brace without its partner"),
            Self::BadCharacter(c) => {
                write!(f, "has the character {c:?}; allowed are ASCII letters, digits, '.', '_' and '-'")
            }
        }
    }
}

impl std::error::Error for TemplateError {}

impl Template {
    /// Reads a template. Text between the names keeps to the characters of ids, so a rendered name needs no escaping in a path.
    ///
    /// # Errors
    /// The first thing about the text that breaks this.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (literal, tail) = rest.split_once('{').map_or((rest, None), |(literal, tail)| (literal, Some(tail)));
            check_literal(literal)?;
            if !literal.is_empty() {
                parts.push(Part::Text(literal.into()));
            }
            let Some(tail) = tail else { break };
            let (name, tail) = tail.split_once('}').ok_or(TemplateError::LooseBrace)?;
            parts.push(match name {
                "model" => Part::Model,
                "version" => Part::Version,
                other => return Err(TemplateError::UnknownName(other.into())),
            });
            rest = tail;
        }
        Ok(Self { text: text.into(), parts: parts.into() })
    }

    /// The upstream's name for this model and version.
    #[must_use]
    pub fn render(&self, model: &str, version: &str) -> String {
        self.parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => text,
                Part::Model => model,
                Part::Version => version,
            })
            .collect()
    }

    /// Whether the version appears in it.
    #[must_use]
    pub fn names_version(&self) -> bool {
        self.parts.contains(&Part::Version)
    }

    /// Whether the model appears in it.
    #[must_use]
    pub fn names_model(&self) -> bool {
        self.parts.contains(&Part::Model)
    }

    /// The text that it was read from.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

fn check_literal(text: &str) -> Result<(), TemplateError> {
    match text.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '_' | '-')) {
        Some('{' | '}') => Err(TemplateError::LooseBrace),
        Some(bad) => Err(TemplateError::BadCharacter(bad)),
        None => Ok(()),
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendering() {
        for (text, rendered) in [
            ("{model}-{version}", "screen-2"),
            ("{model}", "screen"),
            ("", ""),
            ("v{version}", "v2"),
            ("{version}{model}.x", "2screen.x"),
            ("plain", "plain"),
        ] {
            assert_eq!(Template::parse(text).map(|t| t.render("screen", "2")), Ok(rendered.to_owned()), "{text}");
        }
    }

    #[test]
    fn refused() {
        for (text, why) in [
            ("{", TemplateError::LooseBrace),
            ("{model", TemplateError::LooseBrace),
            ("a}", TemplateError::LooseBrace),
            ("{model}}", TemplateError::LooseBrace),
            ("{{model}}", TemplateError::UnknownName("{model".into())),
            ("{tenant}", TemplateError::UnknownName("tenant".into())),
            ("{}", TemplateError::UnknownName("".into())),
            ("a/{version}", TemplateError::BadCharacter('/')),
            ("{model} {version}", TemplateError::BadCharacter(' ')),
        ] {
            assert_eq!(Template::parse(text), Err(why), "{text}");
        }
    }
}
