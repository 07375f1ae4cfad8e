//! How fast customers may go: the limits of connections, users, tenants and of all together, as requests meet them.
//!
//! | file | what |
//! |---|---|
//! | `terms` | from a configuration to what is allowed, tenant by tenant |
//! | `book` | what one tenant and its users have used, under one short lock |
//! | `users` | the buckets of users, in bounded memory |
//! | `shared` | limits that gateways share, and the way to their store |
//! | `admit` | one request at all scopes, all or nothing, and what it gives back when it ends |
//! | `attempts` | connections that addresses open |
//! | `steps` | how short a limit is, and the steps that sockets take then |
//! | `told` | what a client that is refused is told |
//! | `left` | what a client that is admitted is told |
//! | `show` | the limits and their use, for the admin port |
//!
//! What was used is kept here and not in the table, so that a new table changes what is allowed and forgets nothing. The rules are `quota`'s. A tenant's
//! lock is held for some ten nanoseconds, without IO and without allocation but for a user that is new. A tenant without limits costs a request one look
//! at an option.

mod admit;
mod attempts;
mod book;
mod left;
mod measured;
mod shared;
mod show;
mod steps;
mod terms;
#[cfg(test)]
mod tests;
mod told;
mod users;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use holdfast_config::{Config, TellLimits};
use holdfast_telemetry::Clock;
use holdfast_types::{ModelName, TenantId};

pub use admit::{Asking, OnConnection, Refusal, RouteLimits, Taken};
pub use attempts::AddressAttempts;
pub use left::tell_left;
pub use measured::Measured;
pub use shared::Link;
pub use show::{explained, listed};
pub use steps::Step;
pub use terms::{What, allowance};
pub use told::tell;

use book::Book;
use terms::Terms;
use users::Room;

/// What is allowed under one table. Cheap to clone.
#[derive(Clone)]
pub struct LimitTable {
    tenants: Arc<HashMap<TenantId, Arc<Terms>>>,
    global: Option<Arc<Terms>>,
    tells: bool,
    kept: Arc<Kept>,
}

/// What was used so far, over all tables.
pub struct Kept {
    books: Mutex<HashMap<TenantId, Arc<Book>>>,
    global: Arc<Book>,
    room: Arc<Room>,
    salt: u64,
    link: Option<Arc<Link>>,
}

impl Default for Kept {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Kept {
    /// Nothing was used. With a link, limits of tenants and of all together are shared over it.
    #[must_use]
    pub fn new(link: Option<Arc<Link>>) -> Self {
        let room = Arc::new(Room::default());
        Self {
            books: Mutex::default(),
            global: Book::new(room.clone(), link.clone(), ""),
            room,
            salt: crate::random::Random::new().next(),
            link,
        }
    }

    /// The way to the store of shared limits.
    #[must_use]
    pub fn link(&self) -> Option<&Arc<Link>> {
        self.link.as_ref()
    }

    /// What is allowed from now on. What was used stays used.
    pub fn table(self: &Arc<Self>, config: &Config) -> LimitTable {
        let tenants = terms::of_tenants(config);
        let global = terms::of_all(config);
        let now = Clock::now();
        self.room.bound(config.limits.users, config.limits.users_per_tenant);
        let none = Terms::default();
        self.global.follow(global.as_deref().unwrap_or(&none), now);
        let mut books = self.books.lock();
        for (tenant, book) in books.iter() {
            book.follow(tenants.get(tenant).map_or(&none, |terms| terms), now);
        }
        // Whoever is limited no more and has nothing running is forgotten.
        books.retain(|tenant, book| tenants.contains_key(tenant) || Arc::strong_count(book) > 1);
        drop(books);
        let tells = config.limits.tell == TellLimits::Answers;
        LimitTable { tenants: Arc::new(tenants), global, tells, kept: self.clone() }
    }

    fn book(&self, tenant: &TenantId, terms: &Terms) -> Arc<Book> {
        let mut books = self.books.lock();
        let book = books.entry(tenant.clone()).or_insert_with(|| {
            let book = Book::new(self.room.clone(), self.link.clone(), tenant.as_str());
            book.follow(terms, Clock::now());
            book
        });
        book.clone()
    }

    /// Forgets users that have used nothing for so long that their buckets are full. Called about once a second.
    pub fn sweep(&self) {
        let books: Vec<Arc<Book>> = self.books.lock().values().cloned().collect();
        for book in books {
            book.sweep(Clock::now());
        }
    }
}

impl LimitTable {
    /// The limits of a tenant's requests for a model. None: there are none.
    #[must_use]
    pub fn route(&self, tenant: &TenantId, model: &ModelName) -> Option<Box<RouteLimits>> {
        let terms = self.tenants.get(tenant);
        if terms.is_none() && self.global.is_none() {
            return None;
        }
        let own = terms.map(|terms| (self.kept.book(tenant, terms), terms.as_ref()));
        let global = self.global.as_ref().map(|terms| (self.kept.global.clone(), terms.as_ref()));
        Some(Box::new(RouteLimits::new(own, global, model, (self.kept.salt, self.tells))))
    }
}
