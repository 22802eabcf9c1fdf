//! A whole node on real files, driven on its own executor in place of a network: started, used, stopped, and started again with another
//! number of shards.
#![cfg(feature = "glommio")]
#![allow(clippy::wildcard_enum_match_arm, reason = "any other answer fails the test")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use sealog_engine::api::config::EngineConfig;
use sealog_engine::api::error::{Refusal, Retry};
use sealog_engine::api::port::{Replies, ShardService};
use sealog_engine::api::request::{ControlRequest, ReplyTo, Request, ShardRequest};
use sealog_engine::api::response::{Response, Route};
use sealog_engine::format::batch::{BatchBuilder, ReaderBatches, Stamp};
use sealog_engine::format::record::RecordKey;
use sealog_engine::io::calibrate::SyncSetting;
use sealog_engine::io::journal_writer::SyncWay;
use sealog_engine::io::node::{Node, NodeConfig, Serve, ShardContext};
use sealog_engine::io::notify::Notify;
use sealog_engine::types::{KeyHash, Offset, ProducerEpoch, ProducerId, Run, Sequence, ShardId};

/// Answers as they come, by correlation.
#[derive(Default)]
struct Inbox {
    answers: RefCell<BTreeMap<u64, Response>>,
    came: Notify,
}

impl Replies for Inbox {
    fn reply(&self, to: ReplyTo, response: Response) {
        self.answers.borrow_mut().insert(to.correlation, response);
    }

    fn flush(&self) {
        self.came.notify();
    }
}

struct Driver {
    shard: ShardId,
    service: Rc<dyn ShardService>,
    inbox: Rc<Inbox>,
    correlation: RefCell<u64>,
    batch_bytes_max: usize,
}

impl Driver {
    async fn ask(&self, request: Request<'_>) -> Response {
        let correlation = {
            let mut next = self.correlation.borrow_mut();
            *next += 1;
            *next
        };
        let to = ReplyTo { shard: self.shard, connection: 1, correlation };
        self.service.request(to, 10_000, request);
        self.service.flush();
        loop {
            if let Some(answer) = self.inbox.answers.borrow_mut().remove(&correlation) {
                return answer;
            }
            self.inbox.came.wait().await;
        }
    }

    async fn routes(&self) -> Vec<Route> {
        match self.ask(Request::Control(ControlRequest::Routes { topic: "t".to_owned() })).await {
            Response::Routes { routes, .. } => routes,
            other => panic!("{other:?}"),
        }
    }

    async fn producer(&self) -> (ProducerId, ProducerEpoch) {
        match self.ask(Request::Control(ControlRequest::OpenProducer { replaces: None })).await {
            Response::Producer { producer, epoch } => (producer, epoch),
            other => panic!("{other:?}"),
        }
    }

    /// Stores `count` records, one a batch, and gives how many each range has taken.
    async fn produce(&self, label: &str, count: u64) {
        let (producer, epoch) = self.producer().await;
        let mut routes = self.routes().await;
        let mut sequences: BTreeMap<u64, u64> = BTreeMap::new();
        let mut builder = BatchBuilder::new(self.batch_bytes_max);
        for n in 0..count {
            let value = format!("{label}-{n}");
            let hash = KeyHash::of(value.as_bytes());
            loop {
                let route = *routes.iter().find(|route| route.span.contains(hash)).expect("spans cover all");
                let sequence = sequences.entry(route.range.0).or_default();
                builder.clear();
                builder.push(RecordKey::Key(value.as_bytes()), Some(value.as_bytes()), &[], n).expect("it is small");
                let stamp = Stamp { producer, epoch, run: Run(0), sequence: Sequence(*sequence), last: false };
                let batch = builder.finish(stamp).to_vec();
                let request = ShardRequest::Produce { range: route.range, epoch: route.epoch, batch: &batch };
                match self.ask(Request::Shard(request)).await {
                    Response::Stored(stored) => {
                        assert!(!stored.repeat);
                        *sequence += 1;
                        break;
                    }
                    Response::Refused(refusal) => self.recover(&refusal, &mut routes).await,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    async fn recover(&self, refusal: &Refusal, routes: &mut Vec<Route>) {
        match refusal.retry() {
            Retry::AfterDelay { ms } => glommio::timer::sleep(std::time::Duration::from_millis(ms.into())).await,
            Retry::AfterRefresh => *routes = self.routes().await,
            Retry::Never | Retry::Same => panic!("{refusal:?}"),
        }
    }

    /// All values, sorted.
    async fn consume(&self) -> Vec<String> {
        let mut values = Vec::new();
        for route in self.routes().await {
            let mut offset = Offset(0);
            loop {
                let request = ShardRequest::Fetch { range: route.range, offset, bytes_max: 100_000, wait_ms: 200 };
                match self.ask(Request::Shard(request)).await {
                    Response::Fetched(fetched) if fetched.next == offset => break,
                    Response::Fetched(fetched) => {
                        assert_eq!(fetched.gaps, []);
                        for batch in ReaderBatches::new(&fetched.entries, self.batch_bytes_max) {
                            for record in batch.expect("it verifies").batch().records() {
                                let value = record.expect("it was walked").value.expect("it has one");
                                values.push(String::from_utf8(value.to_vec()).expect("text"));
                            }
                        }
                        offset = fetched.next;
                    }
                    Response::Refused(Refusal::Opening { .. }) => {
                        glommio::timer::sleep(std::time::Duration::from_millis(1)).await;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        values.sort();
        values
    }
}

type Task = fn(Driver) -> std::pin::Pin<Box<dyn Future<Output = ()>>>;

/// Starts a node, runs `task` on its last shard, and stops it.
fn live(dir: &Path, shards: u16, way: SyncWay, task: Task) {
    let engine = EngineConfig {
        shards,
        journal_file_bytes: 1 << 20,
        segment_bytes: 256 << 10,
        batch_bytes_max: 64 << 10,
        memory_bytes: 8 << 20,
        metadata_file_bytes: 1 << 20,
        ..EngineConfig::default()
    };
    let (done, ended) = flume::bounded(1);
    let last = ShardId(shards - 1);
    let serve: Serve = Arc::new(move |context: ShardContext| {
        let inbox = Rc::new(Inbox::default());
        if context.shard == last {
            let driver = Driver {
                shard: context.shard,
                service: context.service,
                inbox: inbox.clone(),
                correlation: RefCell::new(0),
                batch_bytes_max: 64 << 10,
            };
            let done = done.clone();
            glommio::spawn_local(async move {
                // The service answers once its shard has started.
                glommio::timer::sleep(std::time::Duration::from_millis(20)).await;
                task(driver).await;
                done.send(()).expect("the test waits");
            })
            .detach();
        }
        Ok(inbox)
    });
    let config = NodeConfig {
        data_dir: dir.to_owned(),
        engine,
        sync: SyncSetting::Way(way),
        cpus: None,
        wake_latency_us: None,
        record: None,
    };
    let node = Node::start(&config, &serve).expect("the host is fit");
    ended.recv().expect("the task ends");
    node.stop();
}

fn expected(labels: &[&str], count: u64) -> Vec<String> {
    let mut all: Vec<String> =
        labels.iter().flat_map(|label| (0..count).map(move |n| format!("{label}-{n}"))).collect();
    all.sort();
    all
}

#[test]
fn what_is_acknowledged_is_there_after_each_restart_with_any_number_of_shards() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
    live(dir.path(), 1, SyncWay::Linked, |driver| {
        Box::pin(async move {
            let create = ControlRequest::CreateTopic { name: "t".to_owned(), ranges: 4, auto_split: None };
            assert!(matches!(driver.ask(Request::Control(create)).await, Response::Topic(_)));
            driver.produce("first", 200).await;
            assert_eq!(driver.consume().await, expected(&["first"], 200));
        })
    });
    live(dir.path(), 2, SyncWay::Thread, |driver| {
        Box::pin(async move {
            assert_eq!(driver.consume().await, expected(&["first"], 200));
            driver.produce("second", 200).await;
            assert_eq!(driver.consume().await, expected(&["first", "second"], 200));
        })
    });
    live(dir.path(), 1, SyncWay::AsyncDsync, |driver| {
        Box::pin(async move {
            driver.produce("third", 50).await;
            let mut all = expected(&["first", "second"], 200);
            all.extend(expected(&["third"], 50));
            all.sort();
            assert_eq!(driver.consume().await, all);
        })
    });
}
