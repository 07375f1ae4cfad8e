//! One request at all scopes: connection, user, tenant, everybody. All of them let it pass, or none loses anything; what it holds goes back when it ends.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use holdfast_config::LimitedEndpoint;
use holdfast_quota::bucket::{Metered, Purse, Wait};
use holdfast_quota::limit::Allowance;
use holdfast_quota::scopes::Scope;
use holdfast_types::{ModelName, Mono};

use super::book::{Book, Want};
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

/// One limit of a scope: where it is, what it counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gate {
    pub(super) at: u16,
    pub(super) what: What,
}

/// The limits that a request at one endpoint comes under: its user's, then those of all; in each counts first, so that what is refused for being one too many
/// has used up nothing.
#[derive(Default)]
struct Gates {
    all: SmallVec<[Gate; 6]>,
    /// How many of them are a user's.
    users: usize,
    /// Whether something has to be given back when a served request ends.
    settles: bool,
}

/// A book with the limits that a route's requests come under.
pub(super) struct Scoped {
    pub(super) book: Arc<Book>,
    gates: [Gates; 2],
}

/// The limits of a tenant's requests for one model. Kept with the route.
pub struct RouteLimits {
    shadow: bool,
    pub(super) connection: Allowance,
    pub(super) tenant: Option<Scoped>,
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
    endpoint: LimitedEndpoint,
    user: Option<u128>,
    bytes: u64,
    connection: bool,
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
    fn new(book: Arc<Book>, terms: &Terms, model: &ModelName, scopes: [Option<Scope>; 2]) -> Self {
        let gates = LimitedEndpoint::ALL.map(|endpoint| {
            let mut gates = Gates::default();
            for scope in scopes {
                for what in [What::Running, What::Requests, What::Bytes] {
                    let key = scope.and_then(|scope| terms.key(scope, what, model, endpoint));
                    if let Some(at) = key.and_then(|key| book.place(key)) {
                        gates.all.push(Gate { at, what });
                        gates.users += usize::from(scope == Some(Scope::User));
                        gates.settles |= what != What::Requests;
                    }
                }
            }
            gates
        });
        Self { book, gates }
    }

    fn gates(&self, endpoint: LimitedEndpoint) -> &Gates {
        let [infer, metadata] = &self.gates;
        if endpoint == LimitedEndpoint::Infer { infer } else { metadata }
    }

    /// The gates of a request in order. Whom nobody names has none of a user's.
    pub(super) fn of(&self, endpoint: LimitedEndpoint, has_user: bool) -> &[Gate] {
        let gates = self.gates(endpoint);
        let from = if has_user { 0 } else { gates.users };
        gates.all.get(from..).unwrap_or_default()
    }

    fn wants(&self, endpoint: LimitedEndpoint, has_user: bool, bytes: u64) -> SmallVec<[Want; 6]> {
        let cost = |what| if what == What::Bytes { bytes } else { 1 };
        self.of(endpoint, has_user).iter().map(|gate| Want { at: gate.at, cost: cost(gate.what) }).collect()
    }

    fn take(&self, asking: &Asking<'_>, user: Option<u128>, scope: Scope) -> Result<(), Refusal> {
        let wants = self.wants(asking.endpoint, user.is_some(), asking.bytes);
        let Err(short) =
            self.book.take(asking.now, user, &wants, (asking.again, asking.credit && scope != Scope::Global))
        else {
            return Ok(());
        };
        let gate = self.of(asking.endpoint, user.is_some()).get(short.want);
        let is_users = user.is_some() && short.want < self.gates(asking.endpoint).users;
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
        salt: u64,
    ) -> Self {
        let terms = tenant.as_ref().map(|(_, terms)| *terms);
        Self {
            shadow: terms.is_some_and(|terms| terms.shadow),
            connection: terms.map(|terms| terms.connection).unwrap_or_default(),
            tenant: tenant
                .map(|(book, terms)| Scoped::new(book, terms, model, [Some(Scope::User), Some(Scope::Tenant)])),
            global: global.map(|(book, terms)| Scoped::new(book, terms, model, [None, Some(Scope::Global)])),
            salt,
        }
    }

    /// Whether it matters whose request it is.
    #[must_use]
    pub fn knows_users(&self) -> bool {
        self.tenant.as_ref().is_some_and(|scoped| scoped.gates.iter().any(|gates| gates.users > 0))
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
            bytes: asking.bytes,
            connection: false,
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
        let own = self.tenant.as_ref().map(|scoped| scoped.take(asking, user, Scope::Tenant));
        match own {
            None => {}
            Some(Ok(())) => taken.tenant = true,
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
            scoped.book.give_back(now, user, &scoped.wants(taken.endpoint, user.is_some(), taken.bytes));
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
            if !scoped.gates(taken.endpoint).settles {
                continue;
            }
            let (mut back, mut more) = (SmallVec::<[Want; 6]>::new(), SmallVec::<[Want; 6]>::new());
            for gate in scoped.of(taken.endpoint, user.is_some()) {
                match gate.what {
                    What::Running => back.push(Want { at: gate.at, cost: 1 }),
                    What::Bytes if bytes < taken.bytes => back.push(Want { at: gate.at, cost: taken.bytes - bytes }),
                    What::Bytes if bytes > taken.bytes => more.push(Want { at: gate.at, cost: bytes - taken.bytes }),
                    What::Bytes | What::Requests => {}
                }
            }
            if !back.is_empty() {
                scoped.book.give_back(now, user, &back);
            }
            if !more.is_empty() {
                scoped.book.charge(now, user, &more);
            }
        }
    }

    fn held(&self, taken: &Taken) -> impl Iterator<Item = (&Scoped, Option<u128>)> {
        let tenant = self.tenant.as_ref().filter(|_| taken.tenant).map(|scoped| (scoped, taken.user));
        let global = self.global.as_ref().filter(|_| taken.global).map(|scoped| (scoped, None));
        tenant.into_iter().chain(global)
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
        let scoped = self.tenant.iter().chain(&self.global);
        let gates = scoped.flat_map(|scoped| scoped.of(endpoint, true).iter().map(|gate| (&*scoped.book, gate.at)));
        gates.filter_map(|(book, at)| Some((book, at, book.look(at, |key, _| key.clone())?))).collect()
    }

    /// Whether limits are only counted.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }
}
