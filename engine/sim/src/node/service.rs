//! The node as its connections see it: `api::port::ShardService` in virtual time, and what is checked of every answer.

use sealog_engine::api::Refusal;
use sealog_engine::api::request::{ReplyTo, Request, ShardRequest};
use sealog_engine::api::response::{Fetched, RangeDescription, Response};
use sealog_engine::controller;
use sealog_engine::format::BatchRef;
use sealog_engine::format::batch::ReaderBatches;
use sealog_engine::shard;
use sealog_engine::types::time::MILLISECOND_NS;
use sealog_engine::types::{Offset, RangeId, ShardId};
use sealog_net::session::Handshake;

use super::torn::digest_of;
use super::{Around, Asked, Input, Mesh, Node, OwnedRequest};
use crate::check::nothing_silent::Given;
use crate::check::{Checks, Violation};
use crate::faults::Moment;
use crate::world::Happening;

impl Node {
    /// How a connection is greeted.
    #[must_use]
    pub fn handshake(&self) -> Option<Handshake> {
        self.process.as_ref().map(|process| process.handshake)
    }

    /// The shard on which a connection lives that names none.
    pub fn any_shard(&mut self) -> ShardId {
        let count = u64::from(self.config.shards.max(1));
        ShardId(u16::try_from(self.random.below(count)).expect("below a u16"))
    }

    /// A connection of `to.shard` asks. What it asks is done at the latest with `flush`.
    pub fn request(&mut self, around: &mut Around<'_>, to: ReplyTo, deadline_ms: u32, request: Request<'_>) {
        around.trace.say(around.queue.now_ns(), || match &request {
            Request::Shard(ShardRequest::Produce { range, epoch, batch }) => {
                format!("request {to:?} produce {range} {epoch} {}", said(batch))
            }
            Request::Shard(_) | Request::Control(_) => format!("request {to:?} {request:?}"),
        });
        let now = self.now(around);
        // 0 on the wire: no deadline.
        let deadline_ns = match deadline_ms {
            0 => u64::MAX,
            _ => now.monotonic_ns.saturating_add(u64::from(deadline_ms) * MILLISECOND_NS),
        };
        match request {
            Request::Shard(request) => self.shard_request(around, to, deadline_ns, request),
            Request::Control(request) if to.shard == ShardId(0) => {
                self.step_controller(around, controller::event::Event::Request { to, deadline_ns, request });
            }
            Request::Control(request) => {
                let at_ns = self.mesh_arrival_ns(around, to.shard, ShardId(0));
                let input = Input::Control { to, deadline_ns, request };
                around.queue.put(at_ns, Happening::Node(self.incarnation, input));
            }
        }
    }

    fn shard_request(&mut self, around: &mut Around<'_>, to: ReplyTo, deadline_ns: u64, request: ShardRequest<'_>) {
        let shards = self.config.shards;
        let range = request.range();
        let (offset, to_sealed) = match request {
            ShardRequest::Fetch { offset, .. } => (offset, false),
            ShardRequest::Roll { .. } => (around.checks.one_history.shown(range), false),
            ShardRequest::Produce { .. } => (Offset::ZERO, around.checks.lineage.is_sealed(range)),
            ShardRequest::Bounds { .. }
            | ShardRequest::Since { .. }
            | ShardRequest::Describe { .. }
            | ShardRequest::Settle { .. } => (Offset::ZERO, false),
        };
        let asked = Asked { range, offset, to_sealed };
        if let Some(process) = &mut self.process {
            process.asked.insert(to, asked);
        }
        let shard = request.range().shard(shards);
        if shard == to.shard {
            self.step_shard(around, shard, shard::event::Event::Request { to, deadline_ns, request });
        } else {
            let request = OwnedRequest::of(request);
            self.send_mesh(around, to.shard, shard, Mesh::Request { to, deadline_ns, request });
        }
    }

    /// All that had arrived together on a connection of `shard` has been given.
    pub fn flush(&mut self, around: &mut Around<'_>, shard: ShardId) {
        self.step_shard(around, shard, shard::event::Event::Flush);
    }

    /// A connection of `to.shard` is gone.
    pub fn disconnected(&mut self, around: &mut Around<'_>, to: ReplyTo) {
        let Some(process) = &mut self.process else { return };
        process.asked.retain(|asked, _| asked.connection != to.connection);
        let shards = self.config.shards;
        self.step_shard(around, to.shard, shard::event::Event::Disconnected { to });
        for shard in (0..shards).map(ShardId).filter(|shard| *shard != to.shard) {
            self.send_mesh(around, to.shard, shard, Mesh::Disconnected { to });
        }
    }

    /// An answer goes out on its connection.
    pub(super) fn answer(&mut self, around: &mut Around<'_>, to: ReplyTo, response: Response) {
        around.coverage.response(&response);
        around.answers.push((to, response));
    }

    /// An answer has been given: what it says holds at this moment, however late it arrives.
    pub(super) fn check_answer(&mut self, around: &mut Around<'_>, to: ReplyTo, response: &Response) {
        around.trace.event(around.queue.now_ns(), 3, u64::from(to.connection) ^ to.correlation);
        around.trace.say(around.queue.now_ns(), || match response {
            Response::Fetched(fetched) => {
                let (next, end, bytes) = (fetched.next, fetched.end, fetched.entries.len());
                format!("answer {to:?} fetched {bytes} bytes, next {next} end {end} gaps {:?}", fetched.gaps)
            }
            Response::Stored(_)
            | Response::Bounds { .. }
            | Response::Settled(_)
            | Response::Rolled(_)
            | Response::Described(_)
            | Response::Topic(_)
            | Response::TopicDeleted { .. }
            | Response::Topics(_)
            | Response::Routes { .. }
            | Response::Lineage { .. }
            | Response::Producer { .. }
            | Response::Refused(_) => format!("answer {to:?} {response:?}"),
        });
        let asked = self.asked(to);
        match response {
            Response::Stored(stored) => {
                around.faults.moment(if stored.repeat { Moment::Repeat } else { Moment::Stored });
                around.trace.mix(u64::from(stored.records));
            }
            Response::Rolled(rolled) => around.trace.mix(rolled.end.0),
            Response::Refused(refusal) => {
                around.trace.mix(u64::from(refusal.code()));
                around.coverage.refusal(refusal);
            }
            Response::TopicDeleted { topic } => around.checks.deleted.gone(*topic),
            Response::Fetched(_)
            | Response::Bounds { .. }
            | Response::Described(_)
            | Response::Routes { .. }
            | Response::Lineage { .. }
            | Response::Settled(_)
            | Response::Topic(_)
            | Response::Topics(_)
            | Response::Producer { .. } => {}
        }
        let checked = match asked {
            Some(asked) => self.check_of_range(around, asked, response),
            None => check_of_topic(around.checks, response),
        };
        if let Err(violation) = checked {
            around.checks.violation(violation);
        }
    }

    /// What a shard answered about one range.
    fn check_of_range(&self, around: &mut Around<'_>, asked: Asked, response: &Response) -> Result<(), Violation> {
        let Asked { range, offset, to_sealed } = asked;
        around.checks.deleted.answered(range, !matches!(response, Response::Refused(_)))?;
        if to_sealed {
            around.checks.lineage.sent_to_sealed(range, matches!(response, Response::Stored(_)))?;
        }
        match response {
            Response::Fetched(fetched) => self.check_fetched(around, range, offset, fetched),
            Response::Rolled(rolled) => around.checks.one_history.rolled(range, offset, rolled),
            Response::Bounds { end, .. } | Response::Described(RangeDescription { end, .. }) => {
                around.checks.one_history.bounds(range, *end)?;
                around.checks.lineage.gave(range, *end)
            }
            Response::Refused(Refusal::Sealed { successors, last }) => {
                around.checks.settled_by_seal += u64::from(last.is_some());
                around.checks.lineage.succeeded(range, successors)
            }
            Response::Settled(settled) => {
                around.checks.settled_by_asking += u64::from(settled.last.is_some());
                Ok(())
            }
            Response::Stored(_)
            | Response::Topic(_)
            | Response::TopicDeleted { .. }
            | Response::Topics(_)
            | Response::Routes { .. }
            | Response::Lineage { .. }
            | Response::Producer { .. }
            | Response::Refused(_) => Ok(()),
        }
    }

    /// What a request asked that is now answered.
    fn asked(&mut self, to: ReplyTo) -> Option<Asked> {
        self.process.as_mut()?.asked.remove(&to)
    }

    fn check_fetched(
        &self,
        around: &mut Around<'_>,
        range: RangeId,
        asked: Offset,
        fetched: &Fetched,
    ) -> Result<(), Violation> {
        let mut batches = Vec::new();
        let most = self.config.batch_bytes_max as usize;
        for batch in ReaderBatches::new(&fetched.entries, most) {
            let at = batches.last().map_or(asked, |(_, end)| *end);
            let batch = batch.map_err(|_| Violation::Unverifiable { range, at })?;
            let (offset, end) = (batch.place().offset, batch.end());
            let digest = digest_of(offset, batch.batch().bytes());
            around.trace.mix(digest);
            around.checks.one_history.batch(range, offset, end, digest)?;
            batches.push((offset, end));
        }
        for gap in &fetched.gaps {
            around.checks.one_history.gap(range, gap, around.mode)?;
            around.trace.say(around.queue.now_ns(), || format!("{range} tells {gap:?}"));
        }
        around.checks.one_history.end(range, fetched.end)?;
        around.checks.lineage.gave(range, fetched.end)?;
        if let Some(successors) = &fetched.successors {
            around.checks.lineage.succeeded(range, successors)?;
            around.checks.lineage.end(range, fetched.end)?;
        }
        if !batches.is_empty() {
            around.faults.moment(Moment::Served);
        }
        let (gaps, next, end) = (&fetched.gaps[..], fetched.next, fetched.end);
        let given = Given { range, asked, batches: &batches, gaps, next, end };
        around.checks.nothing_silent.given(&given, around.mode, around.crashes)
    }
}

/// What the controller answered about a topic.
fn check_of_topic(checks: &mut Checks, response: &Response) -> Result<(), Violation> {
    match response {
        Response::Routes { topic, routes } => {
            checks.deleted.routes(topic.topic, routes)?;
            checks.lineage.routes(routes)
        }
        Response::Lineage { ranges, .. } => {
            checks.deleted.lineage(ranges);
            checks.lineage.lineage(ranges)
        }
        Response::Stored(_)
        | Response::Fetched(_)
        | Response::Bounds { .. }
        | Response::Described(_)
        | Response::Rolled(_)
        | Response::Settled(_)
        | Response::Topic(_)
        | Response::TopicDeleted { .. }
        | Response::Topics(_)
        | Response::Producer { .. }
        | Response::Refused(_) => Ok(()),
    }
}

/// A batch in a few words.
fn said(batch: &[u8]) -> String {
    match BatchRef::trust(batch) {
        Ok(batch) => format!("{}/{}/{} {batch:?}", batch.producer(), batch.producer_epoch().0, batch.run().0),
        Err(error) => error.to_string(),
    }
}
