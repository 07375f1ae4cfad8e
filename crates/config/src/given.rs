//! What an experiment has given so far, as part of its content: what an edit makes of it, and which edits would move somebody.
//!
//! The history is in the table, so that an arm follows from the table alone. Who asks for an edit does not write it: it is made of what is there and of
//! what is asked ([`with_history`]). It is left out where it follows from coverage and weights, as it does before the first ramp that changes weights.

use holdfast_assign::{Allocation, Edit, KeyFrom, Range, Refused, Segment, Split};
use serde_json::{Value as Json, json};

use crate::experiment::{ArmForm, ExperimentForm, Status};
use crate::fault::Sink;
use crate::kind::Kind;
use crate::path::Path;
use crate::section::form;
use crate::tree;

/// By what people are told apart where nothing is said.
const KEYS: [KeyFrom; 2] = [KeyFrom::User, KeyFrom::Device];

/// A field of an experiment, and what is wrong with it.
type Why = (String, String);

/// The content of an experiment with the history that it has after an edit; `before` is the content that is there.
///
/// # Errors
/// The edit would move somebody: the field, and why. Content that cannot be read is given back as it is, for the check of the whole to say so.
pub fn with_history(name: &str, before: Option<&Json>, asked: &Json) -> Result<Json, (String, String)> {
    let Some(now) = read(name, asked) else { return Ok(asked.clone()) };
    let was = before.and_then(|before| read(name, before)).filter(|was| was.status != Status::Draft);
    let Some(was) = was else {
        let keeps = now.status != Status::Draft;
        return Ok(if keeps { asked.clone() } else { without(asked) });
    };
    if now.bucket_version > was.bucket_version {
        return Ok(without(asked));
    }
    if now.status == Status::Draft {
        let why =
            "is draft, but arms have been given; pause it or end it, or raise bucket_version to forget what was given";
        return Err(("status".to_owned(), why.to_owned()));
    }
    same_people(name, &was, &now)?;
    let Ok(before) = allocation(&was) else { return Ok(without(asked)) };
    // What is wrong with the weights is said when the whole is checked.
    let (Some(arms), Ok(split)) = (arms(&now), split(&now)) else { return Ok(without(asked)) };
    let of = arms_by_place(&was);
    let to = |arm: usize| arms.iter().position(|name| of.get(arm) == Some(name));
    let moved = before.reordered(arms.len(), to).and_then(|before| {
        let split = before.like_last(split.clone());
        before.edited(Edit { version: now.bucket_version, coverage: now.coverage, split })
    });
    let moved = moved.map_err(|why| refused(why, &of))?;
    let edit = Edit { version: now.bucket_version, coverage: now.coverage, split };
    let mut content = without(asked);
    if Allocation::new(edit).as_ref() != Ok(&moved)
        && let Json::Object(fields) = &mut content
    {
        fields.insert("given".to_owned(), written(&moved, &arms));
    }
    Ok(content)
}

/// What must stay as it is under one bucket version, since people's arms rest on it.
fn same_people(name: &str, was: &ExperimentForm, now: &ExperimentForm) -> Result<(), Why> {
    let raise = "raise bucket_version to give everybody a new place";
    let fault = |field: &str, why: String| Err((field.to_owned(), why));
    if now.bucket_version < was.bucket_version {
        return fault("bucket_version", format!("is lower than it was ({}); it never falls", was.bucket_version));
    }
    if now.model != was.model {
        return fault("model", format!("is another one than people have been given arms of; {raise}"));
    }
    let salt = |form: &ExperimentForm| form.salt.as_ref().map_or_else(|| name.to_owned(), ToString::to_string);
    if salt(now) != salt(was) {
        return fault("salt", format!("is not {:?} any more: everybody would be moved; {raise}", salt(was)));
    }
    if !keys(now).starts_with(&keys(was)) {
        return fault(
            "key",
            format!("does not begin as it did: people would be moved; add keys at the end, or {raise}"),
        );
    }
    if was.sticky.is_some() && now.sticky.is_none() {
        return fault("sticky", format!("is taken away: people who logged in since would be moved; {raise}"));
    }
    let had = allocation(was).map(|all| all.given().iter().map(|one| one.split.clone()).collect::<Vec<_>>());
    let had = had.unwrap_or_default();
    let is_given = |at: usize| had.iter().any(|split| split.ranges().get(at).is_some_and(|range| !range.is_empty()));
    for (_, arm) in was.arms.iter().flatten().enumerate().filter(|(at, _)| is_given(*at)) {
        let same = |other: &&ArmForm| other.name == arm.name;
        let (Some(version), Some(other)) = (&arm.version, now.arms.iter().flatten().find(same)) else { continue };
        if other.version.as_ref().is_some_and(|other| other != version) {
            let arm = arm.name.as_ref().map_or("", |name| name.as_str());
            let why =
                format!("arm {arm:?} is version {version}, and people have been given it; add an arm, or {raise}");
            return fault("arms", why);
        }
    }
    Ok(())
}

fn refused(why: Refused, arms: &[&str]) -> Why {
    let field = match why {
        Refused::Coverage => "coverage",
        Refused::Version => "bucket_version",
        Refused::History => "given",
        Refused::Moves(_) | Refused::ArmGone(_) | Refused::TooMany => "arms",
    };
    let words = match why {
        Refused::ArmGone(arm) => format!(
            "people have been given arm {:?}; give it the weight 0, or raise bucket_version",
            arms.get(arm).copied().unwrap_or_default()
        ),
        other => other.to_string(),
    };
    (field.to_owned(), words)
}

/// What an experiment has given, with its own coverage and weights as the last edit.
pub(crate) fn allocation(form: &ExperimentForm) -> Result<Allocation, Why> {
    let arms = arms(form).unwrap_or_default();
    let split = split(form).map_err(|why| ("arms".to_owned(), why))?;
    let (version, coverage) = (form.bucket_version, form.coverage);
    let refused = |why| refused(why, &arms);
    if form.given.is_empty() || form.status == Status::Draft {
        return Allocation::new(Edit { version, coverage, split }).map_err(refused);
    }
    let history = || ("given".to_owned(), Refused::History.to_string());
    let (mut given, mut from) = (Vec::with_capacity(form.given.len()), 0);
    for segment in &form.given {
        let mut ranges = vec![Range::default(); arms.len()];
        for arm in &segment.arms {
            let name = arm.name.as_ref().ok_or_else(history)?;
            let at = arms.iter().position(|one| *one == name.as_str());
            let place = at.and_then(|at| ranges.get_mut(at)).filter(|range| range.is_empty());
            let place = place.ok_or_else(|| {
                ("given".to_owned(), format!("names arm {:?} twice, or there is no such arm", name.as_str()))
            })?;
            *place = Range { from: small(arm.from), to: small(arm.to) };
        }
        let range = Range { from, to: small(segment.to) };
        given.push(Segment { range, split: Split::given(ranges).ok_or_else(history)? });
        from = range.to;
    }
    let given = Allocation::restored(version, from, given).map_err(refused)?;
    let split = given.like_last(split);
    given.edited(Edit { version, coverage, split }).map_err(refused)
}

/// The kinds have seen to the bound.
fn small(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

pub(crate) fn keys(form: &ExperimentForm) -> Vec<KeyFrom> {
    form.key.as_ref().map_or_else(|| KEYS.to_vec(), |keys| keys.iter().copied().flatten().collect())
}

fn split(form: &ExperimentForm) -> Result<Split, String> {
    let weights: Vec<u32> = form.arms.iter().flatten().map(|arm| arm.weight).collect();
    Split::of(&weights).map_err(|why| why.to_string())
}

/// The arms' names. None: one has none.
fn arms(form: &ExperimentForm) -> Option<Vec<&str>> {
    form.arms.iter().flatten().map(|arm| arm.name.as_ref().map(|name| name.as_str())).collect()
}

fn arms_by_place(form: &ExperimentForm) -> Vec<&str> {
    arms(form).unwrap_or_default()
}

fn without(content: &Json) -> Json {
    let mut content = content.clone();
    if let Json::Object(fields) = &mut content {
        fields.remove("given");
    }
    content
}

fn written(allocation: &Allocation, arms: &[&str]) -> Json {
    let segment = |segment: &Segment| {
        let ranges = arms.iter().zip(segment.split.ranges()).filter(|(_, range)| !range.is_empty());
        let ranges = ranges.map(|(arm, range)| json!({ "name": arm, "from": range.from, "to": range.to }));
        json!({ "to": segment.range.to, "arms": ranges.collect::<Vec<_>>() })
    };
    Json::Array(allocation.given().iter().map(segment).collect())
}

/// The form of a content, if it can be read without a fault.
fn read(name: &str, content: &Json) -> Option<ExperimentForm> {
    let mut whole = content.as_object()?.clone();
    whole.insert("name".to_owned(), name.into());
    let text = Json::Object(whole).to_string();
    let mut sink = Sink::new("experiment", &text, &[]);
    let tree = tree::parse(&text, &mut sink)?;
    let read = form::<ExperimentForm>().read(&tree, &Path::Root, &mut sink)?;
    sink.is_empty().then_some(read)
}
