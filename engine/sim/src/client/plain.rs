//! A core without an application: a script is its application.

use sealog_net::client::core::producer::Event;
use sealog_net::client::core::{Client, Consumer, Producer};

/// A core.
pub enum PlainCore {
    Producer(Box<Producer>),
    Consumer(Box<Consumer>),
}

/// A core, and what it has told.
pub struct Plain {
    pub core: PlainCore,
    pub told: Vec<Event>,
}

impl Plain {
    /// It has told nothing.
    #[must_use]
    pub fn new(core: PlainCore) -> Self {
        Self { core, told: Vec::new() }
    }

    /// Gathers what the core tells.
    pub(crate) fn act(&mut self, now: sealog_engine::types::Now) {
        if let PlainCore::Producer(core) = &mut self.core {
            while let Some(event) = core.poll_event() {
                self.told.push(event);
            }
            core.turn(now);
        }
    }

    pub(crate) fn core(&mut self) -> &mut dyn Client {
        match &mut self.core {
            PlainCore::Producer(core) => &mut **core,
            PlainCore::Consumer(core) => &mut **core,
        }
    }
}
