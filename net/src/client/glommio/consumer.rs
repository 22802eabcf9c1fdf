//! A consumer on a glommio executor.

use std::net::SocketAddr;

use sealog_engine::types::{Now, Offset, RangeId};

use super::io::Io;
use crate::client::core::Cursor;
use crate::client::core::consumer::{self, ConsumerSettings, Delivery, Event, Flow};

/// A consumer; its connections are polled by whoever waits on it.
pub struct Consumer {
    io: Io<consumer::Consumer>,
}

impl Consumer {
    /// A consumer; it connects when it is first waited on.
    #[must_use]
    pub fn new(address: SocketAddr, settings: ConsumerSettings) -> Self {
        Self { io: Io::new(address, consumer::Consumer::new(settings)) }
    }

    /// The time on its clock.
    #[must_use]
    pub fn now(&self) -> Now {
        self.io.now()
    }

    /// Whether everything up to the end was delivered.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.io.core.is_done()
    }

    /// The position behind all that was delivered; `None` before reading has begun.
    #[must_use]
    pub fn cursor(&self) -> Option<Cursor> {
        self.io.core.cursor()
    }

    /// The next thing to be told, apart from records and gaps.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.io.core.poll_event()
    }

    /// After `Event::Expired`: reads on at the place that it gave.
    pub fn go_on(&mut self, range: RangeId, resume: Offset) {
        let now = self.io.now();
        self.io.core.go_on(now, range, resume);
    }

    /// Delivers what has come; returns whether `sink` broke off.
    pub fn deliver(&mut self, sink: &mut dyn FnMut(Delivery<'_>) -> Flow) -> Flow {
        let now = self.io.now();
        let flow = self.io.core.deliver(now, sink);
        self.io.turn(now);
        flow
    }

    /// Waits until something has come, or until `until_ns` on its monotonic clock.
    pub async fn wait(&mut self, until_ns: Option<u64>) {
        self.io.wait(until_ns).await;
    }
}
