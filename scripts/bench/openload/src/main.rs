//! An open-loop HTTP/1.1 load generator: `bench-openload ADDRESS PATH RATE SECONDS CONNECTIONS BODY_FILE MARK`.
//!
//! Requests are due at fixed times, whatever the answers do, and the time of an answer is counted from the moment its request was due: a stall is
//! charged to every request that it delayed (a closed loop would hide it). The time from the write is reported beside it. An answer is good if its
//! status is 200 and its body contains MARK. Prints one JSON object.
//!
//! One blocking thread per connection, so that this needs nothing but std. A connection whose answer is late sends its next request late.

mod exchange;
mod summary;

use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use exchange::{Answer, Exchange};
use summary::{Sample, Summary};

const USAGE: &str = "usage: bench-openload ADDRESS PATH RATE SECONDS CONNECTIONS BODY_FILE MARK";
const TENANTS: usize = 100;
/// Time for all threads to connect and to send the request that is not counted.
const LEAD: Duration = Duration::from_millis(200);
/// An answer that takes longer is a bad one.
const PATIENCE: Duration = Duration::from_secs(5);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What to send, how often, for how long.
struct Plan {
    address: SocketAddr,
    rate: f64,
    seconds: f64,
    connections: usize,
    exchange: Exchange,
}

/// The tokens of the tenants in turn, where `BENCH_TOKENS` names a file of them.
fn tokens() -> Result<Vec<String>, Failure> {
    match std::env::var("BENCH_TOKENS") {
        Ok(file) if !file.is_empty() => Ok(std::fs::read_to_string(file)?.lines().map(str::to_owned).collect()),
        _ => Ok(Vec::new()),
    }
}

impl Plan {
    fn from_arguments(arguments: &[String]) -> Result<Self, Failure> {
        let [address, path, rate, seconds, connections, body_file, mark] = arguments else {
            return Err(USAGE.into());
        };
        let plan = Self {
            address: address.parse()?,
            rate: rate.parse()?,
            seconds: seconds.parse()?,
            connections: connections.parse()?,
            exchange: Exchange::new(path, &std::fs::read_to_string(body_file)?, tokens()?, mark),
        };
        let positive = plan.rate > 0.0 && plan.seconds > 0.0 && plan.connections > 0;
        if positive { Ok(plan) } else { Err("rate, seconds and connections must be above zero".into()) }
    }

    fn connect(&self) -> Option<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.address, PATIENCE).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        Some(stream)
    }

    /// The requests of one connection: every `connections / rate` seconds, the connections evenly apart from one another.
    fn run_connection(&self, index: usize, start: Instant) -> Vec<Sample> {
        let period = self.connections as f64 / self.rate;
        let phase = index as f64 / self.connections as f64;
        let mut stream = self.connect();
        if let Some(open) = &mut stream {
            self.exchange.ask(open, index % TENANTS);
        }
        let mut samples = Vec::with_capacity((self.seconds / period) as usize + 1);
        for turn in 0.. {
            let offset = (turn as f64 + phase) * period;
            if offset >= self.seconds {
                break;
            }
            let due = start + Duration::from_secs_f64(offset);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let sent = Instant::now();
            // Steps that share no factor with 100, so that neighbours in time are of different tenants and all have their turn.
            let tenant = (turn * 31 + index * 7) % TENANTS;
            let answer = stream.as_mut().map_or(Answer::Broken, |open| self.exchange.ask(open, tenant));
            let end = Instant::now();
            samples.push(Sample { good: answer == Answer::Good, from_due: end - due, from_sent: end - sent });
            if answer == Answer::Broken {
                stream = self.connect();
            }
        }
        samples
    }
}

/// Lets the kernel wake sleepers on time instead of up to 50 us later. Threads take this over from the one that starts them. Where it is not allowed
/// the figures are a little higher for everyone.
fn sleep_precisely() {
    std::fs::write("/proc/self/timerslack_ns", "1").ok();
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let plan = Plan::from_arguments(&arguments)?;
    sleep_precisely();
    let start = Instant::now() + LEAD;
    let samples: Vec<Sample> = thread::scope(|scope| {
        let plan = &plan;
        let threads: Vec<_> =
            (0..plan.connections).map(|index| scope.spawn(move || plan.run_connection(index, start))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    });
    println!("{}", Summary::of(&samples, start.elapsed()).to_json());
    Ok(())
}
