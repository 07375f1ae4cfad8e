//! One request at all scopes: connection, user, tenant, everybody. All of them let it pass, or none loses anything; what it holds goes back when it ends.

use std::sync::{Arc, OnceLock};

use http::HeaderValue;
use parking_lot::Mutex;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use holdfast_config::LimitedEndpoint;
use holdfast_quota::bucket::{Metered, Purse, Wait};
use holdfast_quota::limit::Allowance;
use holdfast_quota::scopes::Scope;
use holdfast_types::{ModelName, Mono, PlanName};

use super::book::{Book, By, Gate, Hold, Others};
use super::terms::{Key, Terms, What};

/// The bucket of one client connection. Made when its first limited request comes.
#[derive(Default)]
pub struct OnConnection(Mutex<Option<Metered>>);

impl OnConnection {
    fn take(&self, now: Mono, allowance: Allowance, credit: bool) -> Result<(), Wait> {
        let mut kept = self.0.lock();
        let metered = kept.get_or_insert_with(|| Metered::new(allowance, now));
        // Requests of several tenants may come over one connection, as from a proxy.
        if metered.allowance() != allowance {
            metered.change(allowance, now);
        }
        if credit { metered.borrow(now, 1) } else { metered.take(now, 1) }
    }

    fn give_back(&self, now: Mono) {
        if let Some(metered) = &mut *self.0.lock() {
            metered.give_back(now, 1);
        }
    }

    pub(super) fn available(&self, now: Mono) -> Option<u64> {
        self.0.lock().as_ref().and_then(|metered| metered.available(now))
    }
}

/// The limits that a request at one endpoint comes under: its user's, then those of all; in each counts first, so that what is refused for being one too many
/// has used up nothing.
#[derive(Default)]
struct Gates {
    all: SmallVec<[Gate; 6]>,
    /// How many of them are a user's.
    users: usize,
    /// Whether one counts what runs, which ends with the request.
    runs: bool,
    /// Whether one counts bytes, which are settled when the request ends.
    bytes: bool,
    /// The policies that admitted clients are told, without users and with them, once one was: they are the table's.
    policies: [OnceLock<HeaderValue>; 2],
}

/// A book with the limits that a route's requests come under.
pub(super) struct Scoped {
    pub(super) book: Arc<Book>,
    gates: [Gates; 2],
    /// The places of the gates are nobody else's for as long as this lives.
    _hold: Hold,
}

/// The limits of a tenant's requests for one model. Kept with the route.
pub struct RouteLimits {
    shadow: bool,
    /// Whether admitted clients are told what is left.
    pub(super) tells: bool,
    pub(super) connection: Allowance,
    pub(super) tenant: Option<Scoped>,
    /// The same for users with a plan that they may choose.
    chosen: Box<[(PlanName, Scoped)]>,
    pub(super) global: Option<Scoped>,
    salt: u64,
}

/// What is to be admitted.
#[derive(Clone, Copy)]
pub struct Asking<'a> {
    /// When it came.
    pub now: Mono,
    /// At which endpoint.
    pub endpoint: LimitedEndpoint,
    /// Who, if users are known here ([`RouteLimits::who`]).
    pub user: Option<u128>,
    /// Under which plan of its own choice ([`RouteLimits::chosen`]).
    pub plan: Option<u16>,
    /// Over which connection.
    pub on: &'a OnConnection,
    /// The bytes of its body, as far as they are known; the rest is settled.
    pub bytes: u64,
    /// It has been offered before, and waited for the store.
    pub again: bool,
    /// What is not there may be taken on credit, of buckets that are this process's own.
    pub credit: bool,
}

/// What a request holds. Given back by [`RouteLimits::settle`].
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    pub(super) endpoint: LimitedEndpoint,
    user: Option<u128>,
    plan: Option<u16>,
    bytes: u64,
    connection: bool,
    /// Of which of the tenant's gates the tokens are of users that share a bucket.
    others: Others,
    /// In shadow mode scopes may have let it pass without room.
    tenant: bool,
    global: bool,
}

/// Why a request is refused, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Whose limit.
    pub scope: Scope,
    /// Of what.
    pub what: What,
    /// When to come again.
    pub wait: Wait,
    /// The limit's place in its book; of a connection's none.
    pub(super) at: Option<u16>,
    pub(super) user: Option<u128>,
    /// It may pass in a moment: what is missing is ordered from the store.
    pub soon: bool,
}

impl Scoped {
    fn new(
        book: Arc<Book>,
        terms: &Terms,
        model: &ModelName,
        scopes: [Option<Scope>; 2],
        chosen: Option<&PlanName>,
    ) -> Self {
        let mut hold = book.hold();
        let gates = LimitedEndpoint::ALL.map(|endpoint| {
            let mut gates = Gates::default();
            for scope in scopes {
                for what in [What::Running, What::Requests, What::Bytes] {
                    let key = scope.and_then(|scope| terms.key(scope, what, (model, endpoint), chosen));
                    if let Some(at) = key.and_then(|key| hold.place(key)) {
                        gates.all.push(Gate { at, what });
                        gates.users += usize::from(scope == Some(Scope::User));
                        gates.runs |= what == What::Running;
                        gates.bytes |= what == What::Bytes;
                    }
                }
            }
            gates
        });
        Self { book, gates, _hold: hold }
    }

    fn gates(&self, endpoint: LimitedEndpoint) -> &Gates {
        let [infer, metadata] = &self.gates;
        if endpoint == LimitedEndpoint::Infer { infer } else { metadata }
    }

    /// Where the policies are kept that clients of such requests are told.
    pub(super) fn policy(&self, endpoint: LimitedEndpoint, has_user: bool) -> &OnceLock<HeaderValue> {
        let [nobodys, users] = &self.gates(endpoint).policies;
        if has_user { users } else { nobodys }
    }

    /// The gates of a request in order. Whom nobody names has none of a user's.
    pub(super) fn of(&self, endpoint: LimitedEndpoint, has_user: bool) -> &[Gate] {
        let gates = self.gates(endpoint);
        let from = if has_user { 0 } else { gates.users };
        gates.all.get(from..).unwrap_or_default()
    }

    fn take(&self, asking: &Asking<'_>, user: Option<u128>, scope: Scope) -> Result<Others, Refusal> {
        let gates = self.of(asking.endpoint, user.is_some());
        let how = (asking.again, asking.credit && scope != Scope::Global);
        let short = match self.book.take(asking.now, user, gates, asking.bytes, how) {
            Ok(others) => return Ok(others),
            Err(short) => short,
        };
        let gate = gates.get(short.gate);
        let is_users = user.is_some() && short.gate < self.gates(asking.endpoint).users;
        let scope = if is_users { Scope::User } else { scope };
        let what = gate.map_or(What::Requests, |gate| gate.what);
        Err(Refusal { scope, what, wait: short.wait, at: gate.map(|gate| gate.at), user, soon: short.soon })
    }
}

impl RouteLimits {
    pub(super) fn new(
        tenant: Option<(Arc<Book>, &Terms)>,
        global: Option<(Arc<Book>, &Terms)>,
        model: &ModelName,
        (salt, tells): (u64, bool),
    ) -> Self {
        let terms = tenant.as_ref().map(|(_, terms)| *terms);
        let scopes = [Some(Scope::User), Some(Scope::Tenant)];
        let mut chosen = Vec::new();
        if let Some((book, terms)) = &tenant {
            let scoped = |plan| Scoped::new(book.clone(), terms, model, scopes, Some(plan));
            chosen.extend(terms.chosen.iter().map(|plan| (plan.clone(), scoped(plan))));
        }
        Self {
            chosen: chosen.into_boxed_slice(),
            shadow: terms.is_some_and(|terms| terms.shadow),
            tells,
            connection: terms.map(|terms| terms.connection).unwrap_or_default(),
            tenant: tenant.map(|(book, terms)| Scoped::new(book, terms, model, scopes, None)),
            global: global.map(|(book, terms)| Scoped::new(book, terms, model, [None, Some(Scope::Global)], None)),
            salt,
        }
    }

    /// Whether it matters whose request it is.
    #[must_use]
    pub fn knows_users(&self) -> bool {
        let mut all = self.tenant.iter().chain(self.chosen.iter().map(|(_, scoped)| scoped));
        all.any(|scoped| scoped.gates.iter().any(|gates| gates.users > 0))
    }

    /// The place of a plan that its user has chosen. None: there is none of that name for him.
    #[must_use]
    pub fn chosen(&self, plan: &str) -> Option<u16> {
        let at = self.chosen.iter().position(|(known, _)| known.as_str() == plan)?;
        u16::try_from(at).ok()
    }

    /// The limits of the tenant and its users, under the plan that was chosen.
    pub(super) fn own(&self, plan: Option<u16>) -> Option<&Scoped> {
        let chosen = plan.and_then(|plan| self.chosen.get(usize::from(plan))).map(|(_, scoped)| scoped);
        chosen.or(self.tenant.as_ref())
    }

    /// Who a user is here: nobody, where there are no limits of users.
    #[must_use]
    pub fn who(&self, user: &[u8]) -> Option<u128> {
        self.knows_users().then(|| xxh3_128_with_seed(user, self.salt))
    }

    /// Told whenever the store has answered for a limit of this scope.
    #[must_use]
    pub fn answered(&self, scope: Scope) -> Option<&tokio::sync::Notify> {
        self.book(scope).map(Book::answered)
    }

    /// Admits a request, or says which scope refuses it. In shadow mode the tenant's limits refuse nothing; `would` is told what they would have.
    ///
    /// # Errors
    /// The first scope without room. Nothing is taken then.
    pub fn admit(&self, asking: &Asking<'_>, mut would: impl FnMut(Refusal)) -> Result<Taken, Refusal> {
        let user = asking.user;
        let mut taken = Taken {
            endpoint: asking.endpoint,
            user,
            plan: asking.plan,
            bytes: asking.bytes,
            connection: false,
            others: Others::default(),
            tenant: false,
            global: false,
        };
        if self.connection != Allowance::Unlimited {
            match asking.on.take(asking.now, self.connection, asking.credit) {
                Ok(()) => taken.connection = true,
                Err(wait) => {
                    let refusal =
                        Refusal { scope: Scope::Connection, what: What::Requests, wait, at: None, user, soon: false };
                    self.refuse(refusal, &mut would)?;
                }
            }
        }
        let own = self.own(asking.plan).map(|scoped| scoped.take(asking, user, Scope::Tenant));
        match own {
            None => {}
            Some(Ok(others)) => (taken.tenant, taken.others) = (true, others),
            Some(Err(refusal)) => {
                if let Err(refusal) = self.refuse(refusal, &mut would) {
                    self.give_back(asking.on, asking.now, &taken);
                    return Err(refusal);
                }
            }
        }
        if let Some(scoped) = &self.global {
            // Everybody's limit protects everybody, so no tenant is in shadow mode for it.
            if let Err(refusal) = scoped.take(asking, None, Scope::Global) {
                self.give_back(asking.on, asking.now, &taken);
                return Err(refusal);
            }
            taken.global = true;
        }
        Ok(taken)
    }

    fn refuse(&self, refusal: Refusal, would: &mut impl FnMut(Refusal)) -> Result<(), Refusal> {
        // In shadow mode, too, what is ordered is waited for: else it would be counted as refused.
        if !self.shadow || refusal.soon {
            return Err(refusal);
        }
        would(refusal);
        Ok(())
    }

    fn give_back(&self, on: &OnConnection, now: Mono, taken: &Taken) {
        if taken.connection {
            on.give_back(now);
        }
        for (scoped, user) in self.held(taken) {
            let by = By { user, others: taken.others };
            scoped.book.give_back(now, by, scoped.of(taken.endpoint, user.is_some()), |what| what.cost(taken.bytes));
        }
    }

    /// The request has ended, however. What runs ends. Of one that no replica was asked for, everything goes back; of the others the bytes are
    /// settled with what they really were.
    pub fn settle(&self, on: &OnConnection, now: Mono, taken: &Taken, dispatched: bool, bytes: u64) {
        if !dispatched {
            self.give_back(on, now, taken);
            return;
        }
        for (scoped, user) in self.held(taken) {
            let (kinds, gates) = (scoped.gates(taken.endpoint), scoped.of(taken.endpoint, user.is_some()));
            let by = By { user, others: taken.others };
            let (back, more) = (taken.bytes.saturating_sub(bytes), bytes.saturating_sub(taken.bytes));
            if kinds.runs || (kinds.bytes && back > 0) {
                let cost = |what: What| if what == What::Requests { 0 } else { what.cost(back) };
                scoped.book.give_back(now, by, gates, cost);
            }
            if kinds.bytes && more > 0 {
                scoped.book.charge_bytes(now, by, gates, more);
            }
        }
    }

    pub(super) fn held(&self, taken: &Taken) -> impl Iterator<Item = (&Scoped, Option<u128>)> {
        let tenant = self.own(taken.plan).filter(|_| taken.tenant).map(|scoped| (scoped, taken.user));
        let global = self.global.as_ref().filter(|_| taken.global).map(|scoped| (scoped, None));
        tenant.into_iter().chain(global)
    }

    /// Whether these are the limits of everybody.
    pub(super) fn is_global(&self, scoped: &Scoped) -> bool {
        self.global.as_ref().is_some_and(|global| std::ptr::eq(global, scoped))
    }

    /// The book that a refusal is from.
    pub(super) fn book(&self, scope: Scope) -> Option<&Book> {
        match scope {
            Scope::Connection => None,
            Scope::User | Scope::Tenant => self.tenant.as_ref().map(|scoped| &*scoped.book),
            Scope::Global => self.global.as_ref().map(|scoped| &*scoped.book),
        }
    }

    /// Every limit that a request at this endpoint comes under: book, place and key.
    pub(super) fn limits(&self, endpoint: LimitedEndpoint) -> Vec<(&Book, u16, Key)> {
        let chosen = self.chosen.iter().map(|(_, scoped)| (scoped, true));
        let scoped = self.tenant.iter().chain(&self.global).map(|scoped| (scoped, false)).chain(chosen);
        let gates = scoped.flat_map(|(scoped, chosen)| {
            scoped.of(endpoint, true).iter().map(move |gate| (&*scoped.book, gate.at, chosen))
        });
        let found = gates.filter_map(|(book, at, chosen)| {
            let key = book.look(at, |key, _| key.clone())?;
            // What a plan says nothing of is the tenant's, and listed as such.
            (key.plan.is_some() == chosen).then_some((book, at, key))
        });
        found.collect()
    }

    /// Whether limits are only counted.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }
}
