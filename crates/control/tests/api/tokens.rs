//! The door of the admin port, with a file of tokens that changes under it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use holdfast_control::api::{Door, Role, Tokens};
use holdfast_testkit::wait::always;
use holdfast_testkit::{TempDir, eventually};
use http::HeaderMap;

/// `printf %s a-token-of-bob-01 | sha256sum`.
const BOB: &str = "sha256:69505b1a0f87a4990e356d5d5dc497be153350941eb9cc2903d729f8be933860";

/// Longer than the second between two looks at the file.
const LOOKS: Duration = Duration::from_millis(1_200);

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn who(door: &Door, authorization: &str) -> Result<(String, Role), (u16, String)> {
    let mut headers = HeaderMap::new();
    if !authorization.is_empty() {
        headers.insert("authorization", authorization.parse().unwrap());
    }
    door.caller(&headers, None).map(|c| (c.name.to_string(), c.role)).map_err(|p| {
        let answer = p.response();
        let challenge = answer.headers()["www-authenticate"].to_str().unwrap().to_owned();
        (answer.status().as_u16(), challenge)
    })
}

#[tokio::test]
async fn tokens_have_owners_and_the_file_may_change() {
    let dir = TempDir::new();
    let file = dir.join("tokens");
    write(&file, &format!("bob operator {BOB}\n"), 0o644);
    let door = Door::with(Tokens::new(Some("the-single-token-1"), Some(&file)).unwrap());
    assert_eq!(who(&door, "Bearer a-token-of-bob-01"), Ok(("bob".to_owned(), Role::Operator)));
    assert_eq!(who(&door, "bearer the-single-token-1"), Ok(("admin".to_owned(), Role::Admin)));
    for (shown, error) in
        [("", false), ("Bearer a-token-of-bob-0", true), ("Basic a-token-of-bob-01", true), ("Bearer", true)]
    {
        let (status, challenge) = who(&door, shown).unwrap_err();
        assert_eq!((status, challenge.contains("invalid_token")), (401, error), "{shown:?}: {challenge}");
    }
    write(&file, "ann viewer a-token-of-ann-01\n", 0o600);
    let limit = Duration::from_secs(10);
    eventually("the new token", limit, async || who(&door, "Bearer a-token-of-ann-01").ok()).await;
    assert_eq!(who(&door, "Bearer a-token-of-bob-01").unwrap_err().0, 401, "the old one is gone");
    let is_ann = |door: &Door| who(door, "Bearer a-token-of-ann-01") == Ok(("ann".to_owned(), Role::Viewer));
    // A file that cannot be taken leaves what was in force.
    write(&file, "ann root a-token-of-ann-01\n", 0o600);
    always("what was in force stays", LOOKS, async || is_ann(&door)).await;
    std::fs::remove_file(&file).unwrap();
    always("what was in force stays", LOOKS, async || is_ann(&door)).await;
}

#[test]
fn a_file_that_others_can_read_has_hashes_only() {
    let dir = TempDir::new();
    let file = dir.join("tokens");
    for (text, mode, good) in [
        (format!("bob admin {BOB}"), 0o644, true),
        ("bob admin a-token-of-bob-01".to_owned(), 0o600, true),
        ("bob admin a-token-of-bob-01".to_owned(), 0o640, false),
        ("# nobody\n".to_owned(), 0o600, false),
        ("bob admin short".to_owned(), 0o600, false),
    ] {
        write(&file, &text, mode);
        let tokens = Tokens::new(None, Some(&file));
        assert_eq!(tokens.is_ok(), good, "{text} {mode:o}");
        let told = tokens.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(!told.contains("a-token-of") && !told.contains("short"), "{told}");
    }
    assert!(Tokens::new(None, Some(&dir.join("none"))).is_err());
}

#[test]
fn a_certificate_is_somebody_by_its_names_unless_a_token_is_shown() {
    let dir = TempDir::new();
    let file = dir.join("tokens");
    let lines = "ann admin cert:cn=ann\nci operator cert:uri=spiffe://prod/ci\nci operator cert:dns=ci.example\n";
    write(&file, &format!("{lines}bob viewer {BOB}\n"), 0o644);
    let tokens = Tokens::new(None, Some(&file)).unwrap();
    assert!(tokens.knows_certificates());
    let door = Door::with(tokens);
    let ask = |token: &str, names: &[(&str, &str)]| {
        let mut headers = HeaderMap::new();
        if !token.is_empty() {
            headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        door.caller(&headers, Some(names))
            .map(|c| (c.name.to_string(), c.role))
            .map_err(|p| p.response().status().as_u16())
    };
    let (ann, ci, bob) = (("ann", Role::Admin), ("ci", Role::Operator), ("bob", Role::Viewer));
    let is = |who: (&str, Role)| Ok((who.0.to_owned(), who.1));
    assert_eq!(ask("", &[("cn", "ann")]), is(ann));
    assert_eq!(ask("", &[("cn", "x"), ("dns", "ci.example"), ("uri", "spiffe://prod/ci")]), is(ci));
    assert_eq!(ask("a-token-of-bob-01", &[("cn", "ann")]), is(bob), "the token decides");
    assert_eq!(ask("a-token-of-bob-02", &[("cn", "ann")]), Err(401), "and a wrong one is wrong");
    assert_eq!(ask("", &[("cn", "mallory")]), Err(403));
    assert_eq!(ask("", &[("cn", "ann"), ("dns", "ci.example")]), Err(403), "a certificate for two roles is nobody's");
}

#[test]
fn many_tokens_are_taken_and_one_too_many_bytes_is_not() {
    let dir = TempDir::new();
    let file = dir.join("tokens");
    let line = |n: usize| format!("u{n} viewer sha256:{n:064x}\n");
    let many: String = (0..12_000).map(line).collect();
    assert!(many.len() < 1 << 20);
    write(&file, &format!("{many}bob operator {BOB}\n"), 0o644);
    let door = Door::with(Tokens::new(None, Some(&file)).unwrap());
    assert_eq!(who(&door, "Bearer a-token-of-bob-01"), Ok(("bob".to_owned(), Role::Operator)));
    assert_eq!(who(&door, "Bearer a-token-of-bob-02").unwrap_err().0, 401);
    write(&file, &format!("{many}{}", line(11_999)), 0o644);
    assert!(Tokens::new(None, Some(&file)).unwrap_err().to_string().ends_with(":12001: the token is there twice"));
    write(&file, &"#".repeat((1 << 20) + 1), 0o644);
    assert!(Tokens::new(None, Some(&file)).unwrap_err().to_string().contains("at most 1 MiB"));
}
