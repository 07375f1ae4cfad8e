//! Strangers at a door with TLS: what they may cost.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use holdfast_testkit::eventually;

use super::world::{PATIENCE, Who, World};

const DORA: Who = Who::Token("a-token-of-dora-01");
/// More than the admin port has places.
const MANY: usize = 300;

/// Waits until the server has ended the connection, and gives what it said before.
async fn ended(stream: &mut TcpStream) -> Vec<u8> {
    let (mut said, mut bytes) = (Vec::new(), [0; 4096]);
    loop {
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut bytes)).await.expect("the connection to be ended");
        match read {
            Ok(0) | Err(_) => return said,
            Ok(n) => said.extend_from_slice(&bytes[..n]),
        }
    }
}

#[tokio::test]
async fn who_speaks_no_tls_is_shown_out() {
    let world = World::start().await;
    let address = ("127.0.0.1", world.admin);
    let random: Vec<u8> = (0..4096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    // A handshake record that says it has 16 KiB, and one whose hello is cut off in the middle of its extensions.
    let long = [&[0x16, 3, 1, 0x40, 0][..], &[1; 0x4000]].concat();
    let cut = [&[0x16, 3, 1, 0, 46, 1, 0, 0, 42, 3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
    for bytes in
        [&b"GET /v1/pins HTTP/1.1\r\nhost: a\r\n\r\n"[..], &random, &long, &cut, &[0; 64], &[0x80, 0x2e, 1, 3, 1]]
    {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // It may be closed before everything is written.
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let said = ended(&mut stream).await;
        assert!(!said.windows(5).any(|w| w == b"HTTP/"), "no answer in the clear: {said:?}");
    }
    assert_eq!(world.ask(&DORA, "GET", "/v1/pins").await.0, 200);
    assert!(!world.proc.output().contains("panicked"));
}

#[tokio::test]
async fn half_handshakes_end_by_themselves_and_others_get_in_again() {
    let world = World::start().await;
    let mut halves = Vec::new();
    for n in 0..MANY {
        let mut stream = TcpStream::connect(("127.0.0.1", world.admin)).await.unwrap();
        // Some say nothing at all, some begin a record.
        if n % 2 == 0 {
            let _ = stream.write_all(&[0x16, 3, 1]).await;
        }
        halves.push(stream);
    }
    for stream in &mut halves {
        ended(stream).await;
    }
    eventually("the door to open again", PATIENCE, async || {
        (world.ask(&DORA, "GET", "/v1/pins").await.0 == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn ten_times_as_many_tokens_cost_nobody_the_door() {
    let world = World::start().await;
    for n in 0..10 {
        let wrong = Who::Token(if n % 2 == 0 { "a-token-of-dora-02" } else { "" });
        assert_eq!(world.ask(&wrong, "PUT", "/v1/pins/acme/screen").await.0, 401);
    }
    let mut tokens = std::fs::read_to_string(world.file("tokens")).unwrap();
    for n in 0..12_000 {
        tokens.push_str(&format!("u{n} viewer sha256:{n:064x}\n"));
    }
    assert!(tokens.len() < 1 << 20);
    tokens.push_str("zoe viewer a-token-of-zoe-001\n");
    std::fs::write(world.file("tokens"), tokens).unwrap();
    let zoe = Who::Token("a-token-of-zoe-001");
    eventually("the last of many tokens", PATIENCE, async || {
        (world.ask(&zoe, "GET", "/v1/pins").await.0 == 200).then_some(())
    })
    .await;
    assert_eq!(world.ask(&DORA, "GET", "/v1/pins").await.0, 200);
}
