//! Refunds of users who share a bucket: a token goes back exactly where it was taken.

use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

fn users(own: u32) -> Users {
    let room = Arc::new(Room::default());
    room.bound(own, own);
    Users::new(room)
}

#[test]
fn what_the_others_gave_goes_back_to_the_others() {
    let limit = Limit { rate: holdfast_quota::limit::Rate::new(5, HOUR), burst: 5 };
    let (mut users, now) = (users(1), Mono(1));
    assert_eq!(users.take(limit, now, 0, 1), Ok(Whose::Own));
    for user in 1..=5 {
        assert_eq!(users.take(limit, now, user, 1), Ok(Whose::Others));
    }
    assert!(users.take(limit, now, 6, 1).is_err());
    assert_eq!([users.available(limit, now, 6), users.available(limit, now, 0)], [0, 4]);
    users.give_back(limit, now, (3, Whose::Others), 1);
    assert_eq!(users.take(limit, now, 6, 1), Ok(Whose::Others), "the token of one of them");
    assert!(users.take(limit, now, 7, 1).is_err());
    // What comes beyond the declared is taken there, too.
    users.charge(limit, now, (6, Whose::Others), 2);
    users.give_back(limit, now, (6, Whose::Others), 2);
    assert!(users.take(limit, now, 7, 1).is_err());
}

#[test]
fn a_user_that_was_forgotten_or_found_room_makes_no_token_for_others() {
    let limit = Limit::per_second(1, 2);
    let (mut users, now) = (users(1), Mono(1));
    let own = users.take(limit, now, 0, 2).unwrap();
    // It is idle for so long that it is forgotten, and somebody else has its place.
    let later = now.after(Duration::from_secs(10));
    assert_eq!(users.take(limit, later, 1, 2), Ok(Whose::Own));
    (2..4).for_each(|user| assert_eq!(users.take(limit, later, user, 1), Ok(Whose::Others)));
    users.give_back(limit, later, (0, own), 2);
    assert!((2..9).all(|user| users.take(limit, later, user, 1).is_err()), "its bucket was full when it was forgotten");
    // One that shared finds room: what it took from the others is theirs.
    let much_later = later.after(Duration::from_millis(2_500));
    assert_eq!(users.take(limit, later.after(Duration::from_millis(500)), 2, 0), Ok(Whose::Others));
    assert_eq!(users.take(limit, much_later, 2, 2), Ok(Whose::Own));
    users.give_back(limit, much_later, (2, Whose::Others), 1);
    assert!(users.take(limit, much_later, 2, 1).is_err(), "its own has none of that");
}

#[test]
fn requests_of_users_that_share_give_back_what_they_took() {
    let mut world = World::new(&format!("limits: {{ users_per_tenant: 1 }}\n{}", plan("user: { requests: 3/h }")));
    assert!(world.ask("a", "first", 0).is_ok());
    let shared: Vec<Taken> = ["u", "v", "w"].map(|user| world.ask("a", user, 0).unwrap()).into();
    assert!(world.ask("a", "x", 0).is_err());
    // Nothing was sent to a replica for them.
    shared.iter().for_each(|taken| world.end("a", taken, false, 0));
    world.pass(0);
    (0..3).for_each(|_| assert!(world.ask("a", "x", 0).is_ok()));
    assert!(world.ask("a", "u", 0).is_err());
    assert!((0..2).all(|_| world.ask("a", "first", 0).is_ok()) && world.ask("a", "first", 0).is_err());
}
