//! Backup and restore over one transaction each. The file is read and written on a blocking thread, a bounded number of batches ahead.

use super::commit;
use super::fault::Fault;
use super::options::PostgresOptions;
use super::pool::Attempt;
use super::read;
use super::rows::{self, Batch, int8, number};
use crate::backup::{self, Item, Past, Reader, Summary, Verified, Writer};
use crate::digest;
use crate::error::{Error, Result};
use crate::json::Json;
use crate::model::Record;
use crate::stored;
use holdfast_types::Revision;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// Items of one batch, and batches that may wait.
const BATCH: i64 = 500;
const AHEAD: usize = 4;

pub(super) async fn backup(attempt: Attempt, file: &Path) -> Result<Summary, Fault> {
    let client = &*attempt.client;
    let state = read::snapshot(&attempt).await?;
    let (out, batches) = mpsc::channel(AHEAD);
    let file = file.to_owned();
    let writing: JoinHandle<Result<Summary>> = tokio::task::spawn_blocking(move || write(&file, batches));
    let sent = send_all(client, state, &out).await;
    let complete = match sent {
        Ok(complete) => complete,
        Err(fault) => {
            // The writer sees a stream without its end and leaves no file.
            drop(out);
            let _ = writing.await;
            return Err(fault);
        }
    };
    if complete {
        let _ = out.send(None).await;
    }
    drop(out);
    let summary = writing.await.map_err(|_| Error::Closed)??;
    // The file is there, whatever becomes of a transaction that has only read.
    let _ = read::done(client, ()).await;
    Ok(summary)
}

type Batches = mpsc::Receiver<Option<Vec<Item>>>;

fn write(file: &Path, mut batches: Batches) -> Result<Summary> {
    let mut writer = Writer::create(file)?;
    while let Some(batch) = batches.blocking_recv() {
        match batch {
            Some(items) => items.iter().try_for_each(|item| writer.item(item))?,
            None => return writer.finish(),
        }
    }
    Err(Error::Unavailable { what: "the backup was given up".to_owned(), applied: crate::Applied::No })
}

/// Whether everything was taken; the writer, which knows why not, has the error.
async fn send_all(
    client: &Client,
    state: crate::seal::State,
    out: &mpsc::Sender<Option<Vec<Item>>>,
) -> Result<bool, Fault> {
    if out.send(Some(vec![Item::State(Box::new(state))])).await.is_err() {
        return Ok(false);
    }
    client.batch_execute(CURSORS).await?;
    for (fetch, decode) in STREAMS {
        loop {
            let found = client.query(&format!("FETCH {BATCH} FROM {fetch}"), &[]).await?;
            if found.is_empty() {
                break;
            }
            let items = found.iter().map(decode).collect::<Result<Vec<_>>>()?;
            if out.send(Some(items)).await.is_err() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

const CURSORS: &str = "\
    DECLARE headers NO SCROLL CURSOR FOR SELECT header FROM header ORDER BY revision; \
    DECLARE past NO SCROLL CURSOR FOR SELECT space, kind, name, revision, value FROM history ORDER BY space, kind, name, revision; \
    DECLARE records NO SCROLL CURSOR FOR SELECT kind, id, version, value FROM record ORDER BY kind, id";

type Decode = fn(&tokio_postgres::Row) -> Result<Item>;

const STREAMS: [(&str, Decode); 3] = [
    ("headers", |row| Ok(Item::Header(Box::new(stored::header(row.get::<_, &str>(0).as_bytes())?)))),
    ("past", |row| {
        let place = rows::place(row.get(0), row.get(1), row.get(2))?;
        let value = row.get::<_, Option<Vec<u8>>>(4).map(Json::stored).transpose()?;
        Ok(Item::Past(Past { place, revision: Revision(number(row.get(3))), value }))
    }),
    ("records", |row| {
        let value = Json::stored(row.get(3))?;
        Ok(Item::Record(Record { kind: row.get(0), id: row.get(1), version: number(row.get(2)), value }))
    }),
];

/// The first pass over a file.
pub(super) async fn verify(file: PathBuf) -> Result<Verified> {
    tokio::task::spawn_blocking(move || backup::verify(&file)).await.map_err(|_| Error::Closed)?
}

pub(super) async fn restore(
    attempt: Attempt,
    options: &PostgresOptions,
    file: &Path,
    verified: &Verified,
) -> Result<Summary, Fault> {
    let client = &*attempt.client;
    let here = commit::begin(&attempt).await?;
    if !backup::empty(&here) {
        return Err(Error::NotEmpty { head: here.head.revision }.into());
    }
    let (out, mut batches) = mpsc::channel::<Vec<Item>>(AHEAD);
    let file = file.to_owned();
    let reading = tokio::task::spawn_blocking(move || read_file(&file, &out));
    let mut batch = Batch::default();
    while let Some(items) = batches.recv().await {
        for item in items {
            put(client, &mut batch, item).await?;
        }
    }
    batch.write(client).await?;
    verified.same(&reading.await.map_err(|_| Error::Closed)??)?;
    rows::put_buckets(client, &verified.buckets).await?;
    let state = verified.state_over(&here);
    let payload = int8(state.head.revision.0).to_string();
    client.query("SELECT pg_notify($1, $2)", &[&options.channel(), &payload]).await?;
    commit::end(&attempt, &state).await?;
    Ok(verified.summary)
}

fn read_file(file: &Path, out: &mpsc::Sender<Vec<Item>>) -> Result<Reader> {
    let mut reader = Reader::open(file)?;
    let full = usize::try_from(BATCH).unwrap_or(1);
    let mut items = Vec::new();
    loop {
        let item = reader.next()?;
        let end = item.is_none();
        items.extend(item);
        if end || items.len() >= full {
            // A restore that was given up needs no more.
            out.blocking_send(std::mem::take(&mut items)).map_err(|_| Error::Closed)?;
        }
        if end {
            return Ok(reader);
        }
    }
}

async fn put(client: &Client, batch: &mut Batch, item: Item) -> Result<(), Fault> {
    match item {
        Item::State(_) => Ok(()),
        Item::Header(header) => rows::put_header(client, &header).await,
        Item::Record(record) => rows::put_record(client, &record).await,
        Item::Past(Past { place, revision, value }) => {
            let value = value.as_ref().map(|json| (json, digest::leaf(json.as_bytes())));
            batch.push(&place, digest::bucket(&place.key), revision, value);
            if batch.full() { batch.write(client).await } else { Ok(()) }
        }
    }
}
