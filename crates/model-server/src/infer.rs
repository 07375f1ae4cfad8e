//! One inference: find the model, read the tensors, let the faults have their way, judge, answer.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::answer::Answer;
use crate::body::{AnswerBody, ResetFlag};
use crate::injector::InferPlan;
use crate::model::{Model, Verdict};
use crate::reply::{Refusal, Reply};
use crate::route::Target;
use crate::server::Server;
use crate::shelf::Missing;
use crate::stats::Work;
use crate::tensors::{self, InferRequest};

/// The header that gives the length of the JSON object when binary data follows it.
pub(crate) const HEADER_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

/// Who judges, and who the answer says it was.
struct Judge {
    model: Arc<Model>,
    name: String,
    version: String,
}

/// `POST .../infer`. Dropping the future is how a client leaves; its count goes down with it. `reset` is absent where a connection serves
/// more than one request at a time.
pub(crate) async fn infer(
    server: &Server,
    target: Target<'_>,
    headers: &HeaderMap,
    body: &Bytes,
    work: Work,
    reset: Option<ResetFlag>,
) -> Reply {
    let plan = server.injector.lock().infer();
    if plan.die {
        tracing::warn!("ending the process, as the fault die_after_requests asks");
        std::process::exit(1);
    }
    let delivery = plan.delivery;
    let reply = judge(server, target, headers, body, &plan).await.unwrap_or_else(|refusal| refusal.reply());
    reply.map(|body| body.delivered(delivery, reset).counting(work))
}

async fn judge(
    server: &Server,
    target: Target<'_>,
    headers: &HeaderMap,
    body: &Bytes,
    plan: &InferPlan,
) -> Result<Reply, Refusal> {
    if plan.not_found {
        return Err(Refusal::missing(&Missing::Unknown, target.name, target.version));
    }
    let right = server
        .shelf
        .lock()
        .find(target.name, target.version)
        .map_err(|why| Refusal::missing(&why, target.name, target.version))?;
    let request = read(headers, body, target.name)?;
    let judge = choose(server, right, plan);
    let refused = plan.error.filter(|status| matches!(status, 429 | 503));
    if refused.is_none() {
        server.counters.execution(judge.model.name.as_str(), judge.model.version.as_str());
    }
    if plan.hang {
        std::future::pending::<()>().await;
    }
    if !plan.delay.is_zero() {
        tokio::time::sleep(plan.delay).await;
    }
    if let Some(status) = plan.error {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return Err(Refusal::new(status, "injected fault"));
    }
    let verdicts: Vec<Verdict> = request.texts.iter().map(|text| judge.model.classify(text)).collect();
    answer(server, &judge, &request, &verdicts, plan)
}

fn read(headers: &HeaderMap, body: &Bytes, model: &str) -> Result<InferRequest, Refusal> {
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        let text = format!("content-encoding {encoding:?} is not supported");
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    let length = headers.get(HEADER_LENGTH).map(|value| value.to_str().unwrap_or("?"));
    tensors::parse(body, length, model).map_err(Refusal::bad_request)
}

/// The right model and its true name, unless a fault puts another in its place.
fn choose(server: &Server, right: Arc<Model>, plan: &InferPlan) -> Judge {
    let (name, version) = (right.name.as_str().to_owned(), right.version.as_str().to_owned());
    if !plan.wrong_version && !plan.wrong_weights {
        return Judge { model: right, name, version };
    }
    let other = another(server, &right);
    if !plan.wrong_version {
        return Judge { model: other.unwrap_or(right), name, version };
    }
    match other {
        Some(other) => {
            Judge { name: other.name.as_str().to_owned(), version: other.version.as_str().to_owned(), model: other }
        }
        None => Judge { model: right, name, version: not(&version) },
    }
}

/// Another version that is held: of the same name if there is one, else of the name that begins most like it, since with a name per
/// version those are the versions of one model.
fn another(server: &Server, right: &Model) -> Option<Arc<Model>> {
    let shelf = server.shelf.lock();
    let alike = |model: &Model| {
        right.name.as_str().bytes().zip(model.name.as_str().bytes()).take_while(|(a, b)| a == b).count()
    };
    let others = shelf.held().filter(|model| (&model.name, &model.version) != (&right.name, &right.version));
    others.max_by_key(|model| (model.name == right.name, alike(model))).cloned()
}

/// A version that is certainly not this one.
fn not(version: &str) -> String {
    version.parse::<u64>().map_or_else(|_| format!("{version}-other"), |number| number.wrapping_add(1).to_string())
}

fn answer(
    server: &Server,
    judge: &Judge,
    request: &InferRequest,
    verdicts: &[Verdict],
    plan: &InferPlan,
) -> Result<Reply, Refusal> {
    let late = plan.late_mismatch.then(|| another(server, &judge.model)).map(|other| {
        other.map_or_else(
            || (judge.name.clone(), not(&judge.version)),
            |other| (other.name.as_str().to_owned(), other.version.as_str().to_owned()),
        )
    });
    let encoded = Answer {
        model_name: &judge.name,
        model_version: (!plan.omit_version).then_some(judge.version.as_str()),
        id: request.id.as_deref(),
        labels: judge.model.labels().len(),
        verdicts,
        outputs: &request.outputs,
        late: late.as_ref().map(|(name, version)| (name.as_str(), version.as_str())),
    }
    .encode()
    .map_err(|why| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why.to_string()))?;
    let mut reply = Reply::new(AnswerBody::whole(encoded.body));
    let kind = if encoded.header_length.is_some() { "application/octet-stream" } else { "application/json" };
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(length) = encoded.header_length {
        reply.headers_mut().insert(HEADER_LENGTH, HeaderValue::from(length));
    }
    Ok(reply)
}
