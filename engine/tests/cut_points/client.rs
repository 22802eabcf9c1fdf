//! Drives a node on its own executors, in place of a network, and takes down what it is told.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use sealog_engine::api::config::EngineConfig;
use sealog_engine::api::error::{Refusal, Retry};
use sealog_engine::api::port::{Replies, ShardService};
use sealog_engine::api::request::{ControlRequest, ReplyTo, Request, ShardRequest};
use sealog_engine::api::response::{Fetched, Response, Route};
use sealog_engine::format::batch::{BatchBuilder, Stamp};
use sealog_engine::format::record::RecordKey;
use sealog_engine::io::calibrate::SyncSetting;
use sealog_engine::io::journal_writer::SyncWay;
use sealog_engine::io::node::{Node, NodeConfig, Serve, ShardContext};
use sealog_engine::io::recorder::Recorder;
use sealog_engine::types::random::Generator;
use sealog_engine::types::{KeyHash, Offset, ProducerEpoch, ProducerId, RangeId, Run, Sequence, ShardId};

use super::history::BatchId;

pub const BATCH_BYTES_MAX: u32 = 64 << 10;
pub const RANGES: u32 = 4;
/// A node that does not end what it was given by then has stopped.
const PATIENCE: Duration = Duration::from_secs(60);

/// Small files, so that a short load goes round all of them.
fn config(shards: u16) -> EngineConfig {
    EngineConfig {
        shards,
        journal_file_bytes: 1 << 20,
        segment_bytes: 256 << 10,
        batch_bytes_max: BATCH_BYTES_MAX,
        memory_bytes: 8 << 20,
        metadata_file_bytes: 1 << 20,
        ..EngineConfig::default()
    }
}

#[derive(Default)]
struct Slot {
    answer: Option<Response>,
    waker: Option<Waker>,
}

struct Inbox {
    slots: RefCell<BTreeMap<u64, Slot>>,
    recorder: Recorder,
}

impl Replies for Inbox {
    fn reply(&self, to: ReplyTo, response: Response) {
        // Here and not where it is waited for: a cut right behind this is one that the client has heard before.
        match &response {
            Response::Stored(_) => self.recorder.note(&format!("stored {}", to.correlation)),
            Response::Topic(_) => self.recorder.note("topic"),
            Response::Producer { producer, .. } => self.recorder.note(&format!("producer {}", producer.0)),
            Response::Fetched(_)
            | Response::Bounds { .. }
            | Response::Settled(_)
            | Response::Rolled(_)
            | Response::Described(_)
            | Response::Topics(_)
            | Response::TopicDeleted { .. }
            | Response::Routes { .. }
            | Response::Lineage { .. }
            | Response::Refused(_) => {}
        }
        let mut slots = self.slots.borrow_mut();
        let slot = slots.entry(to.correlation).or_default();
        slot.answer = Some(response);
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }

    fn flush(&self) {}
}

/// A client on one shard's executor.
pub struct Client {
    pub shard: ShardId,
    service: Rc<dyn ShardService>,
    inbox: Rc<Inbox>,
    pub recorder: Recorder,
    builder: RefCell<BatchBuilder>,
    routes: RefCell<Vec<Route>>,
    pub stop: Cell<bool>,
}

/// Numbers of requests: no two of a process are the same.
static REQUESTS: AtomicU64 = AtomicU64::new(1);

fn next_request() -> u64 {
    REQUESTS.fetch_add(1, Ordering::Relaxed)
}

pub async fn sleep_ms(ms: u64) {
    glommio::timer::sleep(Duration::from_millis(ms)).await;
}

impl Client {
    fn start(&self, correlation: u64, request: Request<'_>) {
        let to = ReplyTo { shard: self.shard, connection: 1, correlation };
        self.service.request(to, 20_000, request);
    }

    async fn answer(&self, correlation: u64) -> Response {
        poll_fn(|context| {
            let mut slots = self.inbox.slots.borrow_mut();
            let slot = slots.entry(correlation).or_default();
            let Some(answer) = slot.answer.take() else {
                slot.waker = Some(context.waker().clone());
                return Poll::Pending;
            };
            slots.remove(&correlation);
            Poll::Ready(answer)
        })
        .await
    }

    async fn ask(&self, request: Request<'_>) -> Response {
        let correlation = next_request();
        self.start(correlation, request);
        self.service.flush();
        self.answer(correlation).await
    }

    /// As `ask`, again and again while the node says so.
    pub async fn ask_until_done(&self, request: Request<'_>) -> Result<Response, Refusal> {
        loop {
            match self.ask(request.clone()).await {
                Response::Refused(refusal) => match refusal.retry() {
                    Retry::AfterDelay { ms } => sleep_ms(ms.into()).await,
                    Retry::AfterRefresh => sleep_ms(1).await,
                    Retry::Never | Retry::Same => return Err(refusal),
                },
                done => return Ok(done),
            }
        }
    }

    /// Creates the topic. Fails if it is there.
    pub async fn create_topic(&self) -> Result<(), Refusal> {
        let create = ControlRequest::CreateTopic { name: "t".to_owned(), ranges: RANGES, auto_split: None };
        self.ask_until_done(Request::Control(create)).await.map(drop)
    }

    /// Where the topic's ranges are now.
    pub async fn routes(&self) -> Result<Vec<Route>, Refusal> {
        let ask = Request::Control(ControlRequest::Routes { topic: "t".to_owned() });
        let routes = match self.ask_until_done(ask).await? {
            Response::Routes { routes, .. } => routes,
            other => panic!("{other:?}"),
        };
        self.routes.borrow_mut().clone_from(&routes);
        Ok(routes)
    }

    pub async fn open_producer(&self) -> Result<(ProducerId, ProducerEpoch), Refusal> {
        let ask = Request::Control(ControlRequest::OpenProducer { replaces: None });
        match self.ask_until_done(ask).await? {
            Response::Producer { producer, epoch } => Ok((producer, epoch)),
            other => panic!("{other:?}"),
        }
    }

    fn send(&self, id: BatchId, epoch: ProducerEpoch) -> u64 {
        let route = *self.routes.borrow().iter().find(|route| route.range.0 == id.range).expect("a route");
        let mut builder = self.builder.borrow_mut();
        builder.clear();
        for (index, value) in (1..).zip(id.values()) {
            let key = RecordKey::Keyless(KeyHash(route.span.first().0 + index));
            builder.push(key, Some(&value), &[], id.sequence).expect("it fits");
        }
        let (producer, sequence) = (ProducerId(id.producer), Sequence(id.sequence));
        let batch = builder.finish(Stamp { producer, epoch, run: Run(0), sequence, last: false });
        let correlation = next_request();
        self.recorder.note(&format!("sent {correlation} {id}"));
        let request = ShardRequest::Produce { range: route.range, epoch: route.epoch, batch };
        self.start(correlation, Request::Shard(request));
        correlation
    }

    /// Stores the batches `from..to` of one producer in one range, in order, up to `window` at a time.
    pub async fn produce(
        &self,
        (producer, epoch): (ProducerId, ProducerEpoch),
        range: RangeId,
        (from, to): (u64, u64),
        draw: &mut Generator,
    ) -> Result<(), Refusal> {
        let mut next = from;
        let mut waiting: VecDeque<u64> = VecDeque::new();
        while next < to || !waiting.is_empty() {
            let window = 1 + draw.draw() % 6;
            while next < to && (waiting.len() as u64) < window {
                waiting.push_back(next);
                next += 1;
            }
            let id = |sequence| BatchId { producer: producer.0, range: range.0, sequence };
            let sent: Vec<_> = waiting.iter().map(|sequence| (*sequence, self.send(id(*sequence), epoch))).collect();
            self.service.flush();
            waiting.clear();
            let mut first = None;
            for (sequence, correlation) in sent {
                match self.answer(correlation).await {
                    Response::Stored(_) => {}
                    Response::Refused(refusal) => {
                        waiting.push_back(sequence);
                        first.get_or_insert(refusal);
                    }
                    other => panic!("{other:?}"),
                }
            }
            match first {
                None => {}
                Some(Refusal::DeadlinePassed) => {}
                Some(refusal) => self.heed(refusal).await?,
            }
        }
        Ok(())
    }

    async fn heed(&self, refusal: Refusal) -> Result<(), Refusal> {
        match refusal.retry() {
            Retry::AfterDelay { ms } => sleep_ms(ms.into()).await,
            Retry::AfterRefresh => drop(self.routes().await?),
            Retry::Same => {}
            Retry::Never => return Err(refusal),
        }
        Ok(())
    }

    pub async fn fetch(&self, range: RangeId, offset: Offset, wait_ms: u32) -> Result<Fetched, Refusal> {
        let request = ShardRequest::Fetch { range, offset, bytes_max: 200_000, wait_ms };
        match self.ask_until_done(Request::Shard(request)).await? {
            Response::Fetched(fetched) => Ok(fetched),
            other => panic!("{other:?}"),
        }
    }
}

/// What is done on each shard of a node.
pub type Task<R> = Arc<dyn Fn(Rc<Client>) -> Pin<Box<dyn Future<Output = R>>> + Send + Sync>;

/// Starts a node, runs `task` on each shard, and stops it. Gives what the tasks gave, or why the node did not do its part.
pub fn live<R: Send + 'static>(
    dir: &Path,
    shards: u16,
    way: SyncWay,
    recorder: &Recorder,
    task: Task<R>,
) -> Result<Vec<R>, String> {
    let (done, ended) = flume::unbounded();
    let recording = recorder.clone();
    let serve: Serve = Arc::new(move |context: ShardContext| {
        let recorder = recording.clone();
        let inbox = Rc::new(Inbox { slots: RefCell::default(), recorder: recorder.clone() });
        let client = Client {
            shard: context.shard,
            service: context.service,
            inbox: inbox.clone(),
            recorder,
            builder: RefCell::new(BatchBuilder::new(BATCH_BYTES_MAX as usize)),
            routes: RefCell::default(),
            stop: Cell::new(false),
        };
        let (done, task) = (done.clone(), task.clone());
        glommio::spawn_local(async move {
            // A task begins at once, and the shard only after this returns.
            futures_lite::future::yield_now().await;
            drop(done.send(task(Rc::new(client)).await));
        })
        .detach();
        Ok(inbox)
    });
    let (data_dir, sync, record) = (dir.to_owned(), SyncSetting::Way(way), Some(recorder.clone()));
    let config = NodeConfig { data_dir, engine: config(shards), sync, cpus: None, wake_latency_us: None, record };
    recorder.note("starting");
    let node = patiently("start", move || Node::start(&config, &serve))?;
    let node = node.map_err(|error| format!("it does not start: {error}"))?;
    recorder.note("started");
    let mut results = Vec::new();
    for _ in 0..shards {
        match ended.recv_timeout(PATIENCE) {
            Ok(result) => results.push(result),
            Err(error) => {
                // It cannot be stopped: a shard of it has panicked or waits for ever.
                std::mem::forget(node);
                return Err(format!("a client was left without an answer: {error}"));
            }
        }
    }
    patiently("stop", move || node.stop())?;
    Ok(results)
}

/// Does what may never end, on a thread that is then left behind.
fn patiently<T: Send + 'static>(what: &str, act: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let (done, ended) = flume::bounded(1);
    std::thread::spawn(move || drop(done.send(act())));
    ended.recv_timeout(PATIENCE).map_err(|error| format!("it does not {what}: {error}"))
}
