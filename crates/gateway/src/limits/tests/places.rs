//! Places in a book: as many as there are limits at a time, and nobody's while somebody gives back there.

use super::*;

const MODELS: usize = 40;

/// A tenant whose only limit is of requests for this model.
fn of_model(model: usize, most: u32) -> holdfast_config::Config {
    let models: String =
        (0..MODELS).map(|n| format!("  - {{ name: m{n}, pool: p, versions: [{{ version: \"1\" }}] }}\n")).collect();
    let text = format!(
        "auth: {{ trusted_header: x-tenant }}\npools:\n  - {{ name: p, protocol: open-inference, residency: static, \
         replicas: [{{ name: r, url: \"http://127.0.0.1:1\", holds: [] }}] }}\nmodels:\n{models}plans: [{{ name: p, models: {{ m{model}: \
         {{ tenant: {{ concurrency: {most} }} }} }} }}]\ntenants: [{{ name: a, plan: p }}]"
    );
    load(&Source::text("t.yaml", &text)).unwrap_or_else(|faults| panic!("{faults}")).config
}

fn route(table: &LimitTable, model: usize) -> Box<RouteLimits> {
    table.route(&TenantId::parse("a").unwrap(), &ModelName::parse(&format!("m{model}")).unwrap()).unwrap()
}

fn admit(route: &RouteLimits, on: &OnConnection) -> Result<Taken, Refusal> {
    let (now, endpoint) = (Mono(1 << 60), LimitedEndpoint::Infer);
    route.admit(&Asking { now, endpoint, user: None, on, plan: None, bytes: 0, again: false, credit: false }, |_| {})
}

fn places(kept: &Kept) -> usize {
    let books = kept.books.lock();
    books.values().map(|book| book.look_at_all(|_| ()).len()).sum()
}

#[test]
fn limits_that_no_table_names_any_more_leave_their_places() {
    let kept = Arc::new(Kept::default());
    for model in 0..MODELS {
        // Whoever comes under a table leaves with it.
        let table = kept.table(&of_model(model, 2));
        let (route, on) = (route(&table, model), OnConnection::default());
        let (first, second) = (admit(&route, &on).unwrap(), admit(&route, &on).unwrap());
        assert_eq!(over(admit(&route, &on)), (Scope::Tenant, What::Running), "the limit is its own: {model}");
        for taken in [first, second] {
            route.settle(&on, Mono(1 << 60), &taken, true, 0);
        }
        assert!(places(&kept) <= 2, "{} places for one limit at a time", places(&kept));
    }
}

#[test]
fn who_came_under_an_older_table_gives_back_where_it_took() {
    let kept = Arc::new(Kept::default());
    let on = OnConnection::default();
    let old = route(&kept.table(&of_model(0, 2)), 0);
    let long = admit(&old, &on).unwrap();
    for model in 1..MODELS {
        let table = kept.table(&of_model(model, 1));
        let now = route(&table, model);
        let taken = admit(&now, &on).unwrap();
        assert_eq!(over(admit(&now, &on)), (Scope::Tenant, What::Running));
        if model == MODELS / 2 {
            // The one that has lasted ends here: what runs now is not what ends.
            old.settle(&on, Mono(1 << 60), &long, true, 0);
            assert_eq!(over(admit(&now, &on)), (Scope::Tenant, What::Running), "nothing of another limit came back");
        }
        now.settle(&on, Mono(1 << 60), &taken, true, 0);
        assert!(places(&kept) <= 3, "one is kept for who holds it: {}", places(&kept));
    }
    // A limit that comes back while somebody knows its place has what is used of it there.
    let table = kept.table(&of_model(0, 2));
    let again = route(&table, 0);
    let (first, second) = (admit(&old, &on).unwrap(), admit(&again, &on).unwrap());
    assert_eq!(over(admit(&again, &on)), (Scope::Tenant, What::Running));
    old.settle(&on, Mono(1 << 60), &first, true, 0);
    let third = admit(&again, &on).unwrap();
    for taken in [second, third] {
        again.settle(&on, Mono(1 << 60), &taken, true, 0);
    }
    drop((old, again));
    let _ = kept.table(&of_model(0, 2));
    assert_eq!(places(&kept), 1);
}
