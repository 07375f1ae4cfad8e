//! Connections to an admin port: one for each question, in the clear or over TLS.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, HeaderValue};
use http_body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use holdfast_net::tls::{Client, Secured};

use crate::cli::AdminArgs;
use crate::command::Failure;

/// How long a connection may take, TLS included.
const CONNECT: Duration = Duration::from_secs(10);

/// Where the admin port is, and how it is spoken to.
pub struct Link {
    host: String,
    port: u16,
    tls: Option<Client>,
    fields: HeaderMap,
}

impl Link {
    /// As the arguments say.
    ///
    /// # Errors
    /// They are wrong, or a file that they name cannot be used.
    pub fn new(args: &AdminArgs) -> Result<Self, Failure> {
        let wrong = || Failure::wrong(format!("--admin {:?} is not a URL such as http://127.0.0.1:7401", args.admin));
        let (scheme, authority) = args.admin.trim_end_matches('/').split_once("://").ok_or_else(wrong)?;
        let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = match scheme {
            "http" => None,
            "https" => Some(tls(args)?),
            _ => return Err(wrong()),
        };
        let mut fields = HeaderMap::new();
        fields.insert(HOST, HeaderValue::from_str(authority).map_err(|_| wrong())?);
        if let Some(file) = &args.admin_token_file {
            fields.insert(AUTHORIZATION, token(file)?);
        }
        Ok(Self { host, port, tls, fields })
    }

    /// Adds what shows where is asked and who asks.
    pub fn sign(&self, fields: &mut HeaderMap) {
        for (name, value) in &self.fields {
            fields.insert(name, value.clone());
        }
    }

    /// A new connection.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub async fn open<B>(&self) -> Result<SendRequest<B>, String>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let stream = within(CONNECT, self.connect()).await.map_err(|why| format!("cannot connect: {why}"))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
        // It ends with the exchange, and how is told there.
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn connect(&self) -> std::io::Result<Secured> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        match &self.tls {
            None => Ok(Secured::Plain(stream)),
            Some(tls) => tls.connect(&self.host, stream).await,
        }
    }
}

/// A step that has a deadline.
///
/// # Errors
/// The step's own in words, or that it took too long.
pub async fn within<T, E: Display>(most: Duration, step: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match tokio::time::timeout(most, step).await {
        Ok(outcome) => outcome.map_err(|e| e.to_string()),
        Err(_) => Err(format!("nothing within {} s", most.as_secs())),
    }
}

fn tls(args: &AdminArgs) -> Result<Client, Failure> {
    let Some(authorities) = &args.tls.ca_file else {
        return Err(Failure::wrong("--admin is https: say with --ca-file who signs the certificate of the admin port"));
    };
    let own = args.tls.client_cert.as_deref().zip(args.tls.client_key.as_deref());
    Client::new(authorities, own).map_err(|e| Failure::wrong(e.to_string()))
}

fn token(file: &Path) -> Result<HeaderValue, Failure> {
    let token = std::fs::read_to_string(file)
        .map_err(|e| Failure::wrong(format!("the token file {} cannot be read: {e}", file.display())))?;
    let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
    value.map_err(|_| Failure::wrong("the token has a character that no token has"))
}
