use std::io::{Read, Write};
use std::net::TcpStream as Client;

use super::*;

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Clients connect without a pause from several threads while the socket closes: each is refused, or accepted and served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_closes_resets_nobody_whom_it_connected() {
    for _ in 0..5 {
        let listener = bind(loopback()).unwrap();
        let address = listener.address().unwrap();
        let clients: Vec<_> = (0..4).map(|_| std::thread::spawn(move || ask_until_refused(address))).collect();
        let mut serve = Box::pin(async {
            loop {
                answer(listener.accept().await.0);
            }
        });
        let _ = tokio::time::timeout(Duration::from_millis(10), &mut serve).await;
        listener.take_no_more();
        let _ = tokio::time::timeout(Duration::from_millis(50), &mut serve).await;
        drop(serve);
        for (stream, _) in listener.close() {
            answer(stream);
        }
        for client in clients {
            assert!(client.join().unwrap() > 0, "some were served before the close");
        }
    }
}

#[tokio::test]
async fn what_has_begun_is_accepted_after_no_more_is_taken() {
    let listener = bind(loopback()).unwrap();
    let address = listener.address().unwrap();
    let mut client = Client::connect(address).unwrap();
    listener.take_no_more();
    answer(listener.accept().await.0);
    let mut byte = [0];
    client.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"!");
}

/// A small answer must not wait for the acknowledgement of the one before.
#[tokio::test]
async fn nothing_is_held_back_until_an_acknowledgement_comes() {
    let listener = bind(loopback()).unwrap();
    let address = listener.address().unwrap();
    let _first = Client::connect(address).unwrap();
    assert!(listener.accept().await.0.nodelay().unwrap(), "accepted");
    let _second = Client::connect(address).unwrap();
    let waiting = listener.close();
    assert_eq!(waiting.len(), 1);
    assert!(waiting[0].0.nodelay().unwrap(), "taken at the close");
}

fn answer(stream: TcpStream) {
    stream.into_std().unwrap().write_all(b"!").unwrap();
}

/// How often it was served before it was refused.
fn ask_until_refused(address: SocketAddr) -> usize {
    let mut served = 0;
    while let Ok(mut client) = Client::connect(address) {
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut byte = [0];
        client.read_exact(&mut byte).expect("who is connected is served");
        served += 1;
    }
    served
}
