//! What was changed, by whom, why and when; and what differs between two revisions.

use http::StatusCode;
use serde_json::{Value as Json, json};

use holdfast_store::{Key, MAX_PAGE, Place, Space};
use holdfast_types::Revision;

use super::problem::Problem;
use super::request::Query;
use super::resources::link;
use super::{Answer, Api, Input, answer, render};

impl Api {
    pub(super) async fn revisions(&self, input: &Input<'_>) -> Answer {
        let limit = input.query.limit()?;
        let before = input.query.number("after", 1)?.map(Revision);
        let mut rows = self.desk.store().history(before, (limit + 1).min(MAX_PAGE)).await?;
        // A page of the largest size cannot look one further; the revisions' numbers say it.
        let floor = self.desk.truth().head.floor.0.max(1);
        let more = rows.len() > limit || (rows.len() == limit && rows.last().is_some_and(|r| r.revision.0 > floor));
        rows.truncate(limit);
        let next = more.then(|| rows.last().map(|row| row.revision.0.to_string())).flatten();
        let items: Vec<Json> = rows.iter().map(|row| Json::Object(render::header(row))).collect();
        let head = &self.desk.truth().head;
        let body = json!({
            "head": head.revision.0, "desired": head.desired.0, "in_force": head.in_force.0, "items": items, "next": next,
        });
        let mut page = answer::json(StatusCode::OK, &body);
        if let Some(next) = &next {
            link(&mut page, input, next, None);
        }
        Ok(page)
    }

    pub(super) async fn revision(&self, input: &Input<'_>) -> Answer {
        let revision = number(input, "revision")?;
        let limit = input.query.limit()?;
        let after = cursor(&input.query)?;
        let missing = || Problem::missing(format!("revision {revision} is not there"));
        let next = revision.checked_add(1).ok_or_else(missing)?;
        let header = self.desk.store().history(Some(Revision(next)), 1).await?.into_iter().next();
        let header = header.filter(|h| h.revision.0 == revision).ok_or_else(missing)?;
        let page = self.desk.store().edits(header.revision, after, limit).await?;
        let edits = page.items.iter().map(render::edit).collect::<Result<Vec<Json>, Problem>>()?;
        let mut told = render::header(&header);
        let next = page.next.as_ref().map(written);
        told.insert("edits".to_owned(), edits.into());
        told.insert("next".to_owned(), next.clone().into());
        let mut page = answer::tagged(answer::json(StatusCode::OK, &Json::Object(told)), header.revision);
        if let Some(next) = &next {
            link(&mut page, input, next, None);
        }
        Ok(page)
    }

    pub(super) async fn diff(&self, input: &Input<'_>) -> Answer {
        let query = &input.query;
        let end = |name| match query.number(name, 0) {
            Ok(Some(number)) => Ok(Revision(number)),
            Ok(None) => Err(Problem::bad(format!("the query lacks {name}, a revision"))),
            Err(problem) => Err(problem),
        };
        let (from, to, limit) = (end("from")?, end("to")?, query.limit()?);
        let only = query.get("space").map(|_| super::resources::space(query)).transpose()?;
        let (mut after, mut items) = (cursor(query)?, Vec::new());
        let next = loop {
            let page = self.desk.store().diff(from, to, after, limit - items.len()).await?;
            let rows = page.items.iter().filter(|row| only.is_none_or(|space| row.place.space == space));
            items.extend(rows.map(render::difference).collect::<Result<Vec<Json>, Problem>>()?);
            if page.next.is_none() || items.len() >= limit {
                break page.next.as_ref().map(written);
            }
            after = page.next;
        };
        let body = json!({ "from": from.0, "to": to.0, "items": items, "next": next });
        let mut page = answer::json(StatusCode::OK, &body);
        if let Some(next) = &next {
            link(&mut page, input, next, None);
        }
        Ok(page)
    }
}

/// The number in the path.
pub(super) fn number(input: &Input<'_>, what: &str) -> Result<u64, Problem> {
    let text = input.names.first().map(String::as_str).unwrap_or_default();
    let good = text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty();
    let number = if good { text.parse().ok().filter(|n| *n <= super::MAX_NUMBER) } else { None };
    number.ok_or_else(|| Problem::bad(format!("{text:?} is not the number of a {what}")))
}

/// A place as `SPACE:KIND:NAME`.
fn written(place: &Place) -> String {
    format!("{}:{}:{}", place.space, place.key.kind(), place.key.name())
}

fn cursor(query: &Query) -> Result<Option<Place>, Problem> {
    let Some(text) = query.get("after") else { return Ok(None) };
    let read = || {
        let (space, rest) = text.split_once(':')?;
        let (kind, name) = rest.split_once(':')?;
        let space = Space::ALL.into_iter().find(|s| s.to_string() == space)?;
        Some(Place { space, key: Key::new(kind, name).ok()? })
    };
    read().map(Some).ok_or_else(|| Problem::bad(format!("after is {text:?}; expected what \"next\" of a page said")))
}
