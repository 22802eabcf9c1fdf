//! Topics that come and go: each has a writer and a reader of its own, which end when it does, and no later.

use sealog_engine::api::error::Refusal;
use sealog_engine::types::TopicId;
use sealog_net::client::core::Failure;

use super::{Keys, ReaderPlan, Writer, WriterPlan};
use crate::check::Violation;
use crate::client::{Application, CHURN_NAME, News};
use crate::world::World;

/// In the history the topics of this name are numbered from here on, each by itself: a record of one that is read in another is one
/// that nobody has sent.
const PASSING_FIRST: u32 = 1_000;

impl World {
    /// Lets the one who makes and deletes topics tell what it has done.
    pub(super) fn act_churn(&mut self, number: usize) {
        let Application::Churn(churn) = &mut self.clients[number].application else { return };
        let stopped = churn.is_stopped();
        for news in churn.take_news() {
            self.trace.say(self.queue.now_ns(), || format!("churn: {news:?}"));
            match news {
                News::Created(_) if stopped => self.passing += 1,
                News::Created(topic) => self.use_topic(topic),
                News::Doomed(topic) => {
                    self.doomed.insert(topic);
                }
                News::Gone(topic) => self.checks.deleted.gone(topic),
            }
        }
    }

    fn use_topic(&mut self, topic: TopicId) {
        let number = PASSING_FIRST + self.passing;
        self.passing += 1;
        let mut draws = self.random.fork(&format!("passing {number}"));
        let largest = self.node.config().batch_bytes_max - 256;
        let plan = WriterPlan {
            topic: number,
            topic_name: CHURN_NAME.to_owned(),
            expected: Some(topic),
            keys: *draws.pick(&[Keys::Shared(5), Keys::None]),
            value_bytes_most: (*draws.pick(&[100, 8_000, 60_000])).min(largest),
            value_bytes_max: largest,
            zeros_percent: 0,
            burst_most: *draws.pick(&[1, 20]),
            pause_us_most: *draws.pick(&[500, 20_000]),
            batch_bytes: *draws.pick(&[1, 1 << 20]),
            one_record_a_batch: draws.one_in(2),
            linger_us: 0,
            records_in_flight: *draws.pick(&[1, 50]),
            timeout_ms: *draws.pick(&[300, 5_000]),
            direct: draws.one_in(2),
        };
        let writer = self.history.add_writer();
        self.add_client(Application::Writer(Box::new(Writer::new(plan, writer, draws.fork("writer")))));
        let plan = ReaderPlan { expected: Some(topic), ..ReaderPlan::drawn(number, CHURN_NAME, draws.fork("reads")) };
        self.add_reader(plan, draws.fork("reader"));
    }

    /// The plan of a reader that reads all of the topic of the name that there is now.
    pub(crate) fn passing_plan(&self) -> Option<(u32, &'static str)> {
        let living = self.clients.iter().any(|client| match &client.application {
            Application::Churn(churn) => churn.living().is_some(),
            Application::Admin(_)
            | Application::Writer(_)
            | Application::Reader(_)
            | Application::Plain(_)
            | Application::Roller(_)
            | Application::Reshaper(_)
            | Application::Operator(_) => false,
        });
        living.then(|| (PASSING_FIRST + self.passing - 1, CHURN_NAME))
    }

    /// Whether somebody who uses this topic may be told that it is gone.
    pub(super) fn is_doomed(&self, expected: Option<TopicId>) -> bool {
        expected.is_some_and(|topic| self.doomed.contains(&topic))
    }

    /// A client is ready on `found`. Whether that is another topic than the one that it was made for: then it ends.
    ///
    /// # Errors
    /// It is, and nobody has deleted its own.
    pub(super) fn is_another(&self, expected: Option<TopicId>, found: Option<TopicId>) -> Result<bool, Violation> {
        if expected.is_none() || expected == found {
            return Ok(false);
        }
        if self.is_doomed(expected) {
            return Ok(true);
        }
        Err(Violation::Node { what: "a name leads to another topic, and nobody deleted the first" })
    }
}

/// Whether a failure says that the topic is deleted.
pub(super) fn says_gone(failure: &Failure) -> bool {
    match failure {
        Failure::Replaced { .. } => true,
        Failure::Refused(refused) => refused.code == Refusal::UnknownTopic.code(),
        Failure::Bye(_) => false,
    }
}
