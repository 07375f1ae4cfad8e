//! Tenants, models, versions, pools, replicas and pins: listed and shown at any kept revision, changed one at a time.

use http::header::{ETAG, IF_NONE_MATCH, LINK, LOCATION};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value as Json, json};

use holdfast_config::ResourceKind;
use holdfast_plane::Edit;
use holdfast_store::{Key, MAX_PAGE, Place, Resource, Space};
use holdfast_types::{MAX_ID_LEN, Revision, TenantId, Version};

use super::change::Wish;
use super::problem::Problem;
use super::request::{Condition, Members, Query};
use super::{Answer, Api, Body, Input, answer, render, request};
use crate::desk::What;

/// What a page of resources shows.
struct Slice<'a> {
    space: Space,
    at: Option<Revision>,
    kind: ResourceKind,
    /// Of this owner only.
    owner: Option<&'a str>,
    after: Option<&'a str>,
    limit: usize,
}

/// A page: the revision that it shows, its rows, and whether more follow.
type Rows = (Revision, Vec<Resource>, bool);

impl Api {
    pub(super) async fn list(&self, kind: ResourceKind, input: &Input<'_>) -> Answer {
        let query = &input.query;
        let (space, at, limit) = (space(query)?, at(query)?, query.limit()?);
        let owner = input.names.first().map(String::as_str).or_else(|| query.get("tenant"));
        owner.map_or(Ok(()), |owner| check_part(kind, 0, owner))?;
        let after = query.get("after");
        if let Some(after) = after {
            let names: Vec<String> = after.split('/').map(str::to_owned).collect();
            check_name(kind, &names).map_err(|p| Problem::bad(format!("after: {}", p.detail)))?;
        }
        if query.flag("pending")? {
            if space == Space::InForce || at.is_some() {
                return Err(Problem::bad("pending is of what is desired now"));
            }
            return Ok(self.list_pending(owner, after, limit));
        }
        let (revision, rows, more) = self.rows(Slice { space, at, kind, owner, after, limit }).await?;
        let next = more.then(|| rows.last().map(|row| row.key.name().to_owned())).flatten();
        let truth = self.desk.truth();
        let items = rows.iter().map(|row| {
            let mut told = render::resource(kind, row.key.name(), row.revision.0, row.value.value()?);
            if kind == ResourceKind::Pin && space == Space::Desired && at.is_none() {
                told.insert("in_force".to_owned(), in_force(&truth.in_force, row.key.name()));
            }
            Ok(Json::Object(told))
        });
        let items = items.collect::<Result<Vec<Json>, Problem>>()?;
        let body = json!({ "revision": revision.0, "space": space.to_string(), "items": items, "next": next });
        let mut page = answer::json(StatusCode::OK, &body);
        if let Some(next) = &next {
            link(&mut page, input, next, Some(revision));
        }
        Ok(page)
    }

    /// The pins that are desired at another version than the one in force.
    fn list_pending(&self, owner: Option<&str>, after: Option<&str>, limit: usize) -> Response<Body> {
        let (truth, waits) = (self.desk.truth(), self.fleet.waits());
        let rows = truth.pending.iter().filter(|(name, _)| after.is_none_or(|after| name.as_ref() > after));
        let rows = rows.filter(|(_, p)| owner.is_none_or(|owner| p.tenant.as_str() == owner));
        let mut rows: Vec<_> = rows.take(limit + 1).collect();
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = more.then(|| rows.last().map(|(name, _)| name.to_string())).flatten();
        let items = rows.iter().map(|(name, pending)| {
            json!({
                "name": &***name, "tenant": pending.tenant.as_str(), "model": pending.model.as_str(),
                "version": pending.to.as_str(), "in_force": in_force(&truth.in_force, name),
                "waits": waits.get(*name),
            })
        });
        let items: Vec<Json> = items.collect();
        let revision = truth.head.revision.0;
        let body = json!({ "revision": revision, "space": "desired", "items": items, "next": next });
        answer::json(StatusCode::OK, &body)
    }

    async fn rows(&self, slice: Slice<'_>) -> Result<Rows, Problem> {
        let Slice { space, kind, owner, limit, .. } = slice;
        let prefix = owner.map(|owner| format!("{owner}/")).unwrap_or_default();
        let mut cursor = Some(before(kind, owner)?);
        if let Some(after) = slice.after {
            cursor = cursor.max(Some(Key::new(kind.as_str(), after)?));
        }
        let (mut at, mut rows) = (slice.at, Vec::new());
        loop {
            let page = self.desk.store().read(space, at, cursor, (limit + 1).min(MAX_PAGE)).await?;
            at = Some(page.revision);
            let mut past = page.next.is_none();
            for row in page.items {
                match row.key.kind().cmp(kind.as_str()) {
                    std::cmp::Ordering::Less => continue,
                    std::cmp::Ordering::Equal if row.key.name().starts_with(&prefix) => rows.push(row),
                    std::cmp::Ordering::Equal if row.key.name() < prefix.as_str() => continue,
                    _ => past = true,
                }
            }
            cursor = page.next;
            if past || rows.len() > limit {
                let more = rows.len() > limit;
                rows.truncate(limit);
                return Ok((page.revision, rows, more));
            }
        }
    }

    pub(super) async fn get(&self, kind: ResourceKind, input: &Input<'_>) -> Answer {
        let name = check_name(kind, &input.names)?;
        let (space, at) = (space(&input.query)?, at(&input.query)?);
        let now = at.unwrap_or(self.desk.truth().head.revision);
        let found = self.found(space, kind, &name, now).await?;
        let found = found.ok_or_else(|| Problem::missing(format!("there is no {} {name}", kind.as_str())))?;
        if let Some(tags) = request::tags(input.headers, IF_NONE_MATCH)?
            && (tags.is_empty() || tags.contains(&found.revision))
        {
            let mut same = Response::new(Body::default());
            *same.status_mut() = StatusCode::NOT_MODIFIED;
            return Ok(answer::tagged(same, found.revision));
        }
        let mut told = render::resource(kind, &name, found.revision.0, found.value.value()?);
        if kind == ResourceKind::Pin && space == Space::Desired {
            let served = self.found(Space::InForce, kind, &name, now).await?;
            let version = served.as_ref().map(|s| s.value.value()).transpose()?;
            told.insert("in_force".to_owned(), version.unwrap_or(Json::Null));
            told.insert("in_force_revision".to_owned(), served.map(|s| s.revision.0).into());
        }
        Ok(answer::tagged(answer::json(StatusCode::OK, &Json::Object(told)), found.revision))
    }

    /// A resource at a revision; there is none before the first.
    pub(super) async fn found(
        &self,
        space: Space,
        kind: ResourceKind,
        name: &str,
        at: Revision,
    ) -> Result<Option<Resource>, Problem> {
        if at == Revision(0) {
            return Ok(None);
        }
        let place = Place { space, key: Key::new(kind.as_str(), name)? };
        Ok(self.desk.store().get(place, Some(at)).await?)
    }

    pub(super) async fn put(&self, kind: ResourceKind, input: &Input<'_>) -> Answer {
        let name = check_name(kind, &input.names)?;
        let mut body = Members::read(&input.body)?;
        body.same("name", &name)?;
        let pin = kind == ResourceKind::Pin;
        if render::parts(kind).len() > 1 {
            for (part, as_in_path) in render::parts(kind).iter().zip(&input.names) {
                body.same(part, as_in_path)?;
            }
        }
        let member = if pin { "version" } else { "spec" };
        let value = body.take(member).ok_or_else(|| Problem::at(member, "is missing"))?;
        check_value(kind, &value)?;
        let options = if pin { super::change::options(&mut body)? } else { None };
        let reason = body.text("reason")?.unwrap_or_default();
        let condition = Condition::of(input.headers)?.and(body.revision("revision")?);
        if pin {
            // What a GET shows beside it may stand there and says nothing.
            let _ = (body.take("in_force"), body.take("in_force_revision"));
        }
        body.end()?;
        let edit = Edit { kind, name: name.as_str().into(), value: Some(value.into()) };
        let wish = Wish { what: What::Edits(vec![edit]), reason, options, dry_run: input.query.flag("dry_run")? };
        let (done, was) = self.change_one(input.caller, kind, &name, &condition, wish).await?;
        let made = was.is_none() && done.revision.is_some();
        let mut told = answer::json(if made { StatusCode::CREATED } else { StatusCode::OK }, &render::done(&done));
        if made && let Ok(place) = HeaderValue::from_str(&format!("/v1/{}s/{name}", kind.as_str())) {
            told.headers_mut().insert(LOCATION, place);
        }
        // A change that changes nothing gives the resource no new revision.
        let revision = if done.changes.is_empty() { was } else { done.revision.or(was) };
        Ok(match revision {
            Some(revision) => answer::tagged(told, revision),
            None => told,
        })
    }

    pub(super) async fn delete(&self, kind: ResourceKind, input: &Input<'_>) -> Answer {
        let name = check_name(kind, &input.names)?;
        let condition = Condition::of(input.headers)?;
        let edit = Edit { kind, name: name.as_str().into(), value: None };
        let reason = input.query.get("reason").unwrap_or_default().to_owned();
        let dry_run = input.query.flag("dry_run")?;
        let wish = Wish { what: What::Edits(vec![edit]), reason, options: None, dry_run };
        let (done, _) = self.change_one(input.caller, kind, &name, &condition, wish).await?;
        let mut told = answer::json(StatusCode::OK, &render::done(&done));
        told.headers_mut().remove(ETAG);
        Ok(told)
    }
}

fn in_force(entries: &holdfast_plane::Entries, name: &str) -> Json {
    entries.get(ResourceKind::Pin, name).map_or(Json::Null, |version| (**version).clone())
}

fn check_value(kind: ResourceKind, value: &Json) -> Result<(), Problem> {
    match (kind, value) {
        (ResourceKind::Pin, Json::String(version)) => {
            Version::check(version).map_err(|error| Problem::at("version", error.to_string()))
        }
        (ResourceKind::Pin, _) => Err(Problem::at("version", "is not text (put it in quotes)")),
        (_, Json::Object(_)) => Ok(()),
        _ => Err(Problem::at("spec", "is not an object")),
    }
}

/// The name of a resource out of its parts, each under the rule for ids.
pub(super) fn check_name(kind: ResourceKind, names: &[String]) -> Result<String, Problem> {
    if names.len() != render::parts(kind).len() {
        return Err(Problem::bad(format!("the name of a {} is {}", kind.as_str(), render::parts(kind).join("/"))));
    }
    names.iter().enumerate().try_for_each(|(at, name)| check_part(kind, at, name))?;
    Ok(names.join("/"))
}

fn check_part(kind: ResourceKind, at: usize, name: &str) -> Result<(), Problem> {
    let part = render::parts(kind).get(at).copied().unwrap_or_default();
    let checked = if part == "version" { Version::check(name) } else { TenantId::check(name) };
    checked.map_err(|error| Problem::bad(format!("the name of the {part} {error}")))
}

/// A key that is before all resources of a kind (and owner), and after nearly all others.
fn before(kind: ResourceKind, owner: Option<&str>) -> Result<Key, Problem> {
    let word = kind.as_str();
    // No part of a name has a character between `.` and `/`.
    let last = |owner: &str| format!("{owner}.{}", "z".repeat(MAX_ID_LEN.saturating_sub(owner.len() + 1)));
    Ok(match owner {
        Some(owner) if owner.len() < MAX_ID_LEN => Key::new(word, &last(owner))?,
        Some(owner) => Key::new(word, owner)?,
        // A kind that is one letter shorter.
        None => Key::new(word.get(..word.len() - 1).unwrap_or(word), "z")?,
    })
}

pub(super) fn space(query: &Query) -> Result<Space, Problem> {
    match query.get("space") {
        None | Some("desired") => Ok(Space::Desired),
        Some("in_force") => Ok(Space::InForce),
        Some(other) => Err(Problem::bad(format!("space is {other:?}; expected desired or in_force"))),
    }
}

fn at(query: &Query) -> Result<Option<Revision>, Problem> {
    Ok(query.number("at", 1)?.map(Revision))
}

/// Where the next page is. Naming the revision, it goes on in what the first page showed.
pub(super) fn link(page: &mut Response<Body>, input: &Input<'_>, next: &str, at: Option<Revision>) {
    let kept = input.query.pairs().filter(|(name, _)| *name != "after" && !(*name == "at" && at.is_some()));
    let mut target =
        kept.fold(format!("after={}", encoded(next)), |all, (name, value)| format!("{all}&{name}={}", encoded(value)));
    if let Some(at) = at {
        target.push_str(&format!("&at={}", at.0));
    }
    let names = &mut input.names.iter();
    let path = input.route.path.split('/').map(|p| if p.starts_with('{') { names.next().map_or(p, |n| n) } else { p });
    let path = path.collect::<Vec<_>>().join("/");
    if let Ok(value) = HeaderValue::from_str(&format!("<{path}?{target}>; rel=\"next\"")) {
        page.headers_mut().insert(LINK, value);
    }
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
        out
    })
}
