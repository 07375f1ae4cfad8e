//! What a comparison of two answers comes to. It says where they differ and how far, never what they say: what a model says of a request is as
//! confidential as the request.

/// What a comparison comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Both say the same.
    Agrees,
    /// They do not: the first difference.
    Differs(Difference),
    /// The answer that the client got has no outputs that could be compared.
    NotComparable,
}

/// Where two answers differ, without what they say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What differs.
    pub kind: Kind,
    /// The output's name, if it has the form of a name.
    pub output: Option<String>,
    /// The datatype of the client's answer, if it is one of the protocol's.
    pub datatype: Option<&'static str>,
    /// Which value, counted in row-major order.
    pub index: Option<u64>,
    /// By how much.
    pub magnitude: Option<Magnitude>,
}

/// What differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The other version answered with this status.
    Status(u16),
    /// The other answer names another version than it was asked for.
    WrongVersion,
    /// The other version gave no whole answer.
    NoAnswer,
    /// The other answer cannot be read.
    Malformed,
    /// An output is missing.
    OutputMissing,
    /// There is an output more.
    OutputExtra,
    /// The datatype.
    Datatype,
    /// The shape.
    Shape,
    /// One is binary, the other is not.
    Encoding,
    /// How many values there are.
    Length,
    /// A value.
    Value,
}

impl Kind {
    /// As a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Status(_) => "status",
            Self::WrongVersion => "wrong_version",
            Self::NoAnswer => "no_answer",
            Self::Malformed => "malformed",
            Self::OutputMissing => "output_missing",
            Self::OutputExtra => "output_extra",
            Self::Datatype => "datatype",
            Self::Shape => "shape",
            Self::Encoding => "encoding",
            Self::Length => "length",
            Self::Value => "value",
        }
    }
}

impl From<Kind> for Difference {
    fn from(kind: Kind) -> Self {
        Self { kind, output: None, datatype: None, index: None, magnitude: None }
    }
}

/// How far two numbers are apart, relative to the larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Magnitude {
    /// At most 1e-4.
    Slight,
    /// At most 1e-2.
    Small,
    /// At most 1/2.
    Large,
    /// More: of another size, or of another sign.
    Other,
}

impl Magnitude {
    /// Of two finite numbers that are not equal.
    #[must_use]
    pub fn of(a: f64, b: f64) -> Self {
        match (a - b).abs() / a.abs().max(b.abs()) {
            apart if apart <= 1e-4 => Self::Slight,
            apart if apart <= 1e-2 => Self::Small,
            apart if apart <= 0.5 => Self::Large,
            _ => Self::Other,
        }
    }

    /// As a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Slight => "at_most_1e-4",
            Self::Small => "at_most_1e-2",
            Self::Large => "at_most_half",
            Self::Other => "over_half",
        }
    }
}
