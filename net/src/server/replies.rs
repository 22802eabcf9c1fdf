//! The shard's connections by number, and the way of an answer: appended to its connection's outbound bytes, written when flushed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use sealog_engine::api::port::Replies;
use sealog_engine::api::request::ReplyTo;
use sealog_engine::api::response::Response;

use super::connection::Connection;
use crate::session;

/// All connections of a shard.
#[derive(Default)]
pub(super) struct Connections {
    by_id: RefCell<BTreeMap<u32, Rc<Connection>>>,
    /// The one that was answered last: answers come in runs.
    last: RefCell<Option<Rc<Connection>>>,
    /// Those with something new to write.
    touched: RefCell<Vec<Rc<Connection>>>,
    next_id: Cell<u32>,
    /// All that are accepted, greeted or not.
    accepted: Cell<usize>,
}

impl Connections {
    /// A number that no connection has had.
    ///
    /// # Panics
    /// After four thousand million connections in one life of the process.
    pub(super) fn new_id(&self) -> u32 {
        let id = self.next_id.get();
        self.next_id.set(id.checked_add(1).expect("a process does not live for 2^32 connections"));
        id
    }

    pub(super) fn insert(&self, connection: Rc<Connection>) {
        self.by_id.borrow_mut().insert(connection.id(), connection);
    }

    pub(super) fn remove(&self, id: u32) {
        self.by_id.borrow_mut().remove(&id);
        self.last.borrow_mut().take_if(|c| c.id() == id);
    }

    pub(super) fn all(&self) -> Vec<Rc<Connection>> {
        self.by_id.borrow().values().cloned().collect()
    }

    /// Counts a connection from its acceptance to its end. `None` if there are `most` already.
    pub(super) fn count(self: &Rc<Self>, most: usize) -> Option<Counted> {
        if self.accepted.get() >= most {
            return None;
        }
        self.accepted.set(self.accepted.get() + 1);
        Some(Counted { connections: self.clone() })
    }

    pub(super) fn accepted(&self) -> usize {
        self.accepted.get()
    }

    fn find(&self, id: u32) -> Option<Rc<Connection>> {
        let mut last = self.last.borrow_mut();
        if last.as_ref().is_none_or(|c| c.id() != id) {
            *last = Some(self.by_id.borrow().get(&id)?.clone());
        }
        last.clone()
    }

    /// Something was appended to a connection's outbound bytes.
    pub(super) fn touch(&self, connection: &Rc<Connection>) {
        if connection.set_touched(true) {
            self.touched.borrow_mut().push(connection.clone());
        }
    }
}

impl Replies for Connections {
    fn reply(&self, to: ReplyTo, response: Response) {
        if let Some(connection) = self.find(to.connection) {
            connection.answer(to.correlation, |out| session::append(out, to.correlation, &response));
            self.touch(&connection);
        }
    }

    fn flush(&self) {
        // A write may end its connection, but touches no other: the list is not borrowed again meanwhile.
        for connection in self.touched.borrow_mut().drain(..) {
            connection.set_touched(false);
            connection.write();
        }
    }
}

/// One accepted connection, counted until this is dropped.
pub(super) struct Counted {
    connections: Rc<Connections>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.connections.accepted.set(self.connections.accepted.get() - 1);
    }
}
