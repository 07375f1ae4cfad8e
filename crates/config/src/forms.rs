//! The file as it is written: every field with its kind and default, before names are followed.
//!
//! A required field is an option here: where it is missing or faulty, that is in the list already and the rest is checked without it.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use holdfast_types::{Bytes, ModelName, PlanName, PoolName, ReplicaName, TenantId, Version};

use crate::api_keys::KeyForm;
use crate::compound::{List, MapOf, Named, Optional, Required};
use crate::experiment::{ExperimentForm, RuleForm};
use crate::fallback::FallbackKind;
use crate::fleet::{ControlSection, GatewaySection, StoreSection};
use crate::identity::AuthForm;
use crate::kind::{Choice, Flag};
use crate::limits::{OwnLimitsForm, PlanForm};
use crate::model::Unavailable;
use crate::number::{Count, Positive};
use crate::pool::*;
use crate::section::{form, section};
use crate::settings::*;
use crate::special::{Document, DocumentKind, StampsKind, Tolerance};
use crate::stamps::Stamps;
use crate::stream::StreamForm;
use crate::template::Template;
use crate::text::*;
use crate::units::*;

section! {
    /// Configuration of a Holdfast gateway.
    pub(crate) struct File {
        /// Where the gateway listens.
        listen: Listen = Listen::default(), form::<Listen>();
        /// Worker threads of the data plane. Left out: one per core.
        workers: Option<NonZeroU32> = None, Optional(Positive { most: 1_024 });
        /// The folder of everything that survives a restart. Like every path in the file: relative to the folder of the file.
        state: PathBuf = PathBuf::from("./holdfast-data"), PATH;
        /// Which side owns pools, models, tenants and pins. `store`: what is saved in the state folder; the file fills it once, when it is empty.
        /// `file`: the file, at each start and reload.
        truth: Truth = Truth::Store, TRUTH;
        /// How much of the table's history is kept. A revision is forgotten when it is older than `keep` and more than `revisions` have come after it.
        history: History = History::default(), form::<History>();
        /// How a changed pin comes into force, where the change does not say so itself.
        rollouts: Rollouts = Rollouts::default(), form::<Rollouts>();
        /// How a request proves which tenant it is. Left out: every request is refused.
        auth: Option<AuthForm> = None, Optional(form::<AuthForm>());
        /// Bounds on what one client, one connection or one request may take.
        limits: Limits = Limits::default(), form::<Limits>();
        /// How long things may take.
        timeouts: Timeouts = Timeouts::default(), form::<Timeouts>();
        /// The `x-holdfast-` headers of an answer: `all`, or a list. Left out: all, but `replica` only if the data listener is loopback.
        stamps: Option<Stamps> = None, Optional(StampsKind);
        /// Bounds on cold loads over the whole fleet.
        loads: FleetLoads = FleetLoads::default(), form::<FleetLoads>();
        /// What the metrics page shows.
        metrics: Metrics = Metrics::default(), form::<Metrics>();
        /// The record of which version gave which answer, in a chain of hashes.
        audit: Audit = Audit::default(), form::<Audit>();
        /// Which arms of experiments people were given: an event for each person and arm, as lines of JSON.
        exposures: Exposures = Exposures::default(), form::<Exposures>();
        /// Keeps what the arms of experiments have shown, and takes outcomes at `POST /v1/outcomes`. Left out: nothing is kept. Read at the start.
        results: Option<Results> = None, Optional(form::<Results>());
        /// The decisions of the last requests, kept in memory for who asks.
        receipts: Receipts = Receipts::default(), form::<Receipts>();
        /// Gives answers a signed token of their resolution, which a retry may bring. Left out: no token is given or taken. Read at the start.
        route_token: Option<RouteToken> = None, Optional(form::<RouteToken>());
        /// Keeps what submissions with a key were resolved to. Left out: keys mean nothing to the resolution. Read at the start.
        ledger: Option<Ledger> = None, Optional(form::<Ledger>());
        /// WebSockets on the data port, at `/v1/stream` and the paths of `routes`. Left out: there are none.
        stream: Option<StreamForm> = None, Optional(form::<StreamForm>());
        /// What is logged and how.
        log: Log = Log::default(), form::<Log>();
        /// Where the control planes of a fleet keep the truth: for `holdfast control`.
        store: Option<StoreSection> = None, Optional(form::<StoreSection>());
        /// Makes this the file of `holdfast control`: a control plane for gateways elsewhere.
        control: Option<ControlSection> = None, Optional(form::<ControlSection>());
        /// Makes this the file of `holdfast gateway`: a gateway that follows control planes elsewhere.
        gateway: Option<GatewaySection> = None, Optional(form::<GatewaySection>());
        /// Groups of replicas.
        pools: Vec<PoolForm> = Vec::new(), List { item: form::<PoolForm>(), least: 0 };
        /// The catalogue.
        models: Vec<ModelForm> = Vec::new(), List { item: form::<ModelForm>(), least: 0 };
        /// Named sets of limits.
        plans: Vec<PlanForm> = Vec::new(), List { item: form::<PlanForm>(), least: 0 };
        /// Customers and what they pin.
        tenants: Vec<TenantForm> = Vec::new(), List { item: form::<TenantForm>(), least: 0 };
        /// Experiments: versions of a model that are tried on parts of the people.
        experiments: Vec<ExperimentForm> = Vec::new(), List { item: form::<ExperimentForm>(), least: 0 };
    }
}

section! {
    /// A group of replicas that speak one protocol and share one policy.
    pub(crate) struct PoolForm {
        /// The pool's name; unique, also when case is ignored.
        name: Option<PoolName> = None, Required(POOL);
        /// What the replicas speak.
        protocol: Option<Protocol> = None, Required(PROTOCOL);
        /// Who decides what a replica holds: the gateway by the repository API, or the file by each replica's `holds`.
        residency: Option<Residency> = None, Required(RESIDENCY);
        /// How a model and version are called upstream.
        upstream: UpstreamForm = UpstreamForm::default(), form::<UpstreamForm>();
        /// Connections to each replica.
        connections: Connections = Connections::default(), form::<Connections>();
        /// Probing and ejection.
        health: Health = Health::default(), form::<Health>();
        /// Cold loads.
        loads: PoolLoads = PoolLoads::default(), form::<PoolLoads>();
        /// What happens when the pinned versions do not fit. guaranteed: they must fit. overcommit: the least recently used makes room.
        memory: MemoryPolicy = MemoryPolicy::Overcommit, MEMORY_POLICY;
        /// A version that is evicted and loaded again within this time counts as thrashing.
        thrash_window: Duration = secs(60), millis_to(0, DAY);
        /// How long a replica that leaves the subset of a pinned version goes on serving it until one of the subset holds it. Zero: not at all.
        drain: Duration = secs(60), millis_to(0, DAY);
        /// Second attempts.
        retries: Retries = Retries::default(), form::<Retries>();
        /// The model servers.
        replicas: Option<Vec<ReplicaForm>> = None, Required(List { item: form::<ReplicaForm>(), least: 1 });
    }
}

section! {
    /// How a model and version are called upstream.
    pub(crate) struct UpstreamForm {
        /// The model's name, with {model} and {version}. Left out: "{model}-{version}" with residency repository, "{model}" with static.
        model: Option<Template> = None, Optional(TEMPLATE);
        /// The version, with {model} and {version}; "" for none. Left out: "" with residency repository, "{version}" with static.
        version: Option<Template> = None, Optional(TEMPLATE);
        /// What an answer must say about the model and version that served it.
        answer: AnswerCheck = AnswerCheck::IfPresent, ANSWER_CHECK;
    }
}

section! {
    /// One model server.
    pub(crate) struct ReplicaForm {
        /// Its stable name, which decides what hashes to it; unique in the pool, also when case is ignored.
        name: Option<ReplicaName> = None, Required(REPLICA);
        /// Where it listens: http://host:port. One address is one replica; only in static pools may it be in another pool too.
        url: Option<Endpoint> = None, Required(URL);
        /// Memory for versions. Left out: unlimited.
        memory: Option<Bytes> = None, Optional(size(KIB, 1024 * TIB));
        /// Share of traffic relative to the other replicas. Zero: none.
        weight: u32 = 1, Count { least: 0, most: 1_000_000 };
        /// Most requests in flight. Left out: unlimited.
        concurrency: Option<NonZeroU32> = None, Optional(Positive { most: 1_000_000 });
        /// What it holds; with residency static only.
        holds: Option<Vec<HoldForm>> = None, Optional(List { item: form::<HoldForm>(), least: 0 });
    }
}

section! {
    /// A version that a replica holds.
    pub(crate) struct HoldForm {
        /// A model of the catalogue.
        model: Option<ModelName> = None, Required(MODEL);
        /// A version of that model.
        version: Option<Version> = None, Required(VERSION);
    }
}

section! {
    /// A model of the catalogue.
    pub(crate) struct ModelForm {
        /// As clients name it; unique, also when case is ignored.
        name: Option<ModelName> = None, Required(MODEL);
        /// The pool that serves it.
        pool: Option<PoolName> = None, Required(POOL);
        /// Whether a request may be sent a second time after a replica may have begun to serve it.
        idempotent: bool = false, Flag;
        /// Its versions.
        versions: Option<Vec<VersionForm>> = None, Required(List { item: form::<VersionForm>(), least: 1 });
    }
}

section! {
    /// One immutable version of a model.
    pub(crate) struct VersionForm {
        /// Its name, in quotes if it is a number; never `latest`. Unique in the model, also when case is ignored.
        version: Option<Version> = None, Required(VERSION);
        /// Memory that it takes on a replica. Required in pools with residency repository.
        size: Option<Bytes> = None, Optional(size(1, 1024 * TIB));
        /// Digest of its artifact: blake3: or sha256: and 64 hexadecimal digits.
        digest: Option<Digest> = None, Optional(DIGEST);
        /// Questions with known answers.
        golden: Vec<GoldenForm> = Vec::new(), List { item: form::<GoldenForm>(), least: 0 };
    }
}

section! {
    /// A question with a known answer.
    pub(crate) struct GoldenForm {
        /// The request body: a mapping, or the path of a JSON file.
        input: Option<Document> = None, Required(DocumentKind);
        /// What the answer must hold: a mapping, or the path of a JSON file. Fields that it does not name are not compared.
        output: Option<Document> = None, Required(DocumentKind);
        /// Largest absolute difference of a number.
        tolerance: f64 = 0.0, Tolerance;
    }
}

const UNAVAILABLE: Choice<Unavailable> = Choice(&[("wait", Unavailable::Wait), ("shed", Unavailable::Shed)]);

section! {
    /// A customer.
    pub(crate) struct TenantForm {
        /// Its id; unique, also when case is ignored.
        name: Option<TenantId> = None, Required(TENANT);
        /// How many replicas serve it.
        subset: Option<u32> = None, Optional(Count { least: 1, most: 16 });
        /// The version that each model means to it.
        pins: Vec<Named<Version>> = Vec::new(), MapOf(VERSION);
        /// Versions that it may name beside its pin, by model.
        allow: Vec<Named<Vec<Option<Version>>>> = Vec::new(), MapOf(List { item: Optional(VERSION), least: 0 });
        /// What happens to a request when no replica holds the version: wait for a load, or shed at once while it loads.
        unavailable: Unavailable = Unavailable::Wait, UNAVAILABLE;
        /// By model, the answer to an inference that could not be served within its budget, instead of a refusal.
        fallback: Vec<Named<serde_json::Map<String, serde_json::Value>>> = Vec::new(), MapOf(FallbackKind);
        /// The plan whose limits it has. Left out: none, and so no limits but its own.
        plan: Option<PlanName> = None, Optional(PLAN);
        /// Limits of this tenant alone; field by field they come before its plan's.
        limits: Option<OwnLimitsForm> = None, Optional(form::<OwnLimitsForm>());
        /// Its API keys, as `holdfast key create` makes them; taken where `auth.keys` is true.
        keys: Vec<KeyForm> = Vec::new(), List { item: form::<KeyForm>(), least: 0 };
        /// Versions for some of its requests, instead of the pin's: the first rule of the model whose target holds decides.
        rules: Vec<RuleForm> = Vec::new(), List { item: form::<RuleForm>(), least: 0 };
    }
}
