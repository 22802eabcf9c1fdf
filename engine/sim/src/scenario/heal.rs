//! The end of a run: nothing goes wrong any more, all that waits ends, everybody sends once more, and all is read.

use sealog_engine::types::time::{MILLISECOND_NS, SECOND_NS};

use crate::check::{Mode, Violation};
use crate::client::{Application, Reshaper, Roller, SimClient};
use crate::faults::Fault;
use crate::history::RecordId;
use crate::workload::{ReaderPlan, Writer};
use crate::world::{Happening, World};

/// How long everything that waits may take once nothing goes wrong, beyond its own deadline.
const HEAL_MS: u64 = 5_000;
/// How long a send may take in fine weather.
const PROBE_MS: u64 = 5_000;
/// The longest that a client waits before it connects again, and some more.
const RECONNECT_MS: u64 = 3_000;
/// How long a reading may take in fine weather.
const READ_MAX_NS: u64 = 120 * SECOND_NS;

impl World {
    /// Nothing goes wrong any more, and nobody sends: everything that waits must end.
    pub(super) fn heal(&mut self) -> Result<(), Violation> {
        self.faults.stop();
        self.node.disk.set_slowness(self.disk_slowness);
        self.node.disk.end_stalls();
        self.node.disk.set_full(false);
        self.node.disk.fail_syncs(0);
        self.node.disk.fail_writes(0);
        if self.mode == Mode::Beyond && self.node.is_starting() {
            // A node whose disk has failed a write does nothing more until somebody starts it again.
            self.crash(Fault::Kill);
        }
        self.close_readers()?;
        let now_ns = self.queue.now_ns();
        self.retire_readers();
        let mut timeout_ms = 0;
        for (number, client) in self.clients.iter_mut().enumerate() {
            client.go_on(now_ns);
            self.queue.put(now_ns, Happening::Client(number));
            match &mut client.application {
                Application::Writer(writer) => {
                    writer.stop();
                    timeout_ms = timeout_ms.max(writer.timeout_ms());
                }
                Application::Churn(churn) => churn.stop(),
                Application::Roller(roller) => roller.stop(),
                Application::Reshaper(reshaper) => reshaper.stop(),
                Application::Admin(_) | Application::Reader(_) | Application::Plain(_) | Application::Operator(_) => {}
            }
        }
        let until_ns = now_ns + (timeout_ms + HEAL_MS) * MILLISECOND_NS;
        while self.history.waiting() > 0 && self.step(until_ns)? {}
        let since_ms = (self.queue.now_ns() - now_ns) / MILLISECOND_NS;
        self.checks.progress.nothing_waits("a send to end", self.history.waiting(), since_ms)?;
        let started_by_ns = self.queue.now_ns() + READ_MAX_NS;
        while !self.node.is_up() && !self.damaged_beyond_start() {
            if !self.step(started_by_ns)? {
                return Err(Violation::Stuck {
                    what: "the node to start",
                    waiting: 1,
                    since_ms: READ_MAX_NS / MILLISECOND_NS,
                });
            }
        }
        self.settle_churn()?;
        // Every client that was waiting to connect again has done so.
        let until_ns = self.queue.now_ns() + RECONNECT_MS * MILLISECOND_NS;
        while self.step(until_ns)? {}
        // On a damaged disk a shard may refuse every roll.
        if self.mode == Mode::Within {
            let until_ns = self.queue.now_ns() + HEAL_MS * MILLISECOND_NS;
            while self.rollers().any(Roller::waits) && self.step(until_ns)? {}
            let waiting = self.rollers().filter(|roller| roller.waits()).count() as u64;
            self.checks.progress.nothing_waits("a roll to be told", waiting, HEAL_MS)?;
            let until_ns = self.queue.now_ns() + HEAL_MS * MILLISECOND_NS;
            while self.reshapers().any(Reshaper::waits) && self.step(until_ns)? {}
            let waiting = self.reshapers().filter(|reshaper| reshaper.waits()).count() as u64;
            self.checks.progress.nothing_waits("a split or merge to be told", waiting, HEAL_MS)?;
        }
        Ok(())
    }

    /// What was asked to be deleted is, and what comes after it is there.
    fn settle_churn(&mut self) -> Result<(), Violation> {
        let unsettled = |world: &Self| {
            world
                .clients
                .iter()
                .filter(|client| match &client.application {
                    Application::Churn(churn) => churn.living().is_none(),
                    Application::Admin(_)
                    | Application::Writer(_)
                    | Application::Reader(_)
                    | Application::Plain(_)
                    | Application::Roller(_)
                    | Application::Reshaper(_)
                    | Application::Operator(_) => false,
                })
                .count() as u64
        };
        let until_ns = self.queue.now_ns() + HEAL_MS * MILLISECOND_NS;
        while unsettled(self) > 0 && self.step(until_ns)? {}
        let waiting = unsettled(self);
        self.checks.progress.nothing_waits("a topic to be deleted or made", waiting, HEAL_MS)
    }

    /// Of deleted topics no file is left.
    pub(super) fn files_are_gone(&mut self) -> Result<(), Violation> {
        let began_ns = self.queue.now_ns();
        let until_ns = began_ns + READ_MAX_NS;
        while let Some((file, topic)) = self.checks.deleted.file_left(self.node.disk.contents()) {
            let now_ns = self.queue.now_ns();
            if now_ns >= until_ns {
                return Err(Violation::FileLeft { file, topic, since_ms: (now_ns - began_ns) / MILLISECOND_NS });
            }
            let next_ns = now_ns + 50 * MILLISECOND_NS;
            self.queue.put(next_ns, Happening::DiskMends);
            while self.step(next_ns)? {}
        }
        Ok(())
    }

    pub(super) fn rollers(&self) -> impl Iterator<Item = &Roller> {
        self.clients.iter().filter_map(|client| match &client.application {
            Application::Roller(roller) => Some(roller),
            Application::Admin(_)
            | Application::Churn(_)
            | Application::Writer(_)
            | Application::Reader(_)
            | Application::Plain(_)
            | Application::Reshaper(_)
            | Application::Operator(_) => None,
        })
    }

    pub(super) fn reshapers(&self) -> impl Iterator<Item = &Reshaper> {
        self.clients.iter().filter_map(|client| match &client.application {
            Application::Reshaper(reshaper) => Some(&**reshaper),
            Application::Admin(_)
            | Application::Churn(_)
            | Application::Writer(_)
            | Application::Reader(_)
            | Application::Plain(_)
            | Application::Roller(_)
            | Application::Operator(_) => None,
        })
    }

    pub(super) fn writers(&self) -> impl Iterator<Item = &Writer> {
        self.clients.iter().filter_map(|client| match &client.application {
            Application::Writer(writer) => Some(&**writer),
            Application::Admin(_)
            | Application::Churn(_)
            | Application::Reader(_)
            | Application::Plain(_)
            | Application::Roller(_)
            | Application::Reshaper(_)
            | Application::Operator(_) => None,
        })
    }

    /// Whoever reads to an end comes to it, though writers go on.
    fn close_readers(&mut self) -> Result<(), Violation> {
        let short = |world: &Self| {
            let is_short = |client: &&SimClient| matches!(&client.application, Application::Reader(reader) if reader.is_short_of_its_end());
            world.clients.iter().filter(is_short).count() as u64
        };
        for client in &mut self.clients {
            if let Application::Reader(reader) = &mut client.application {
                reader.close();
            }
        }
        let until_ns = self.queue.now_ns() + READ_MAX_NS;
        while short(self) > 0 && self.step(until_ns)? {}
        let waiting = short(self);
        self.checks.progress.nothing_waits("a reading to end", waiting, READ_MAX_NS / MILLISECOND_NS)
    }

    fn retire_readers(&mut self) {
        for client in 0..self.clients.len() {
            if matches!(self.clients[client].application, Application::Reader(_)) {
                self.retire(client);
            }
        }
    }

    /// Every writer sends once more, and is told that it is stored.
    pub(super) fn probe(&mut self) -> Result<(), Violation> {
        let now_ns = self.queue.now_ns();
        let until_ns = now_ns + HEAL_MS * MILLISECOND_NS;
        let mut probes: Vec<RecordId> = Vec::new();
        let mut left: Vec<usize> = (0..self.clients.len()).filter(|client| self.is_writer(*client)).collect();
        while !left.is_empty() {
            let ready = left.iter().position(|client| self.writer_is_ready(*client));
            let Some(at) = ready else {
                if self.step(until_ns)? {
                    continue;
                }
                break;
            };
            let client = left.remove(at);
            let before = self.history.records_sent();
            self.send_records(client, 1)?;
            if self.history.records_sent() > before {
                probes.extend(self.history.last_of(self.writer_number(client)));
            }
            self.pump(client)?;
        }
        self.checks.progress.nothing_waits("a writer to be ready", left.len() as u64, HEAL_MS)?;
        while self.history.waiting() > 0 && self.step(until_ns + PROBE_MS * MILLISECOND_NS)? {}
        for id in probes {
            if let Some(sent) = self.history.get(id).copied() {
                self.checks.progress.settled_when_healed(id, &sent)?;
            }
        }
        Ok(())
    }

    pub(super) fn is_writer(&self, client: usize) -> bool {
        match &self.clients[client].application {
            // One whose topic is deleted has none to write to.
            // One whose id another has opened again is refused.
            Application::Writer(writer) => {
                !writer.is_deposed() && writer.expected().is_none_or(|topic| !self.doomed.contains(&topic))
            }
            Application::Admin(_)
            | Application::Churn(_)
            | Application::Reader(_)
            | Application::Plain(_)
            | Application::Roller(_)
            | Application::Reshaper(_)
            | Application::Operator(_) => false,
        }
    }

    fn writer_is_ready(&self, client: usize) -> bool {
        matches!(&self.clients[client].application, Application::Writer(writer) if writer.is_ready())
    }

    fn writer_number(&self, client: usize) -> u32 {
        match &self.clients[client].application {
            Application::Writer(writer) => writer.number(),
            Application::Admin(_)
            | Application::Churn(_)
            | Application::Reader(_)
            | Application::Plain(_)
            | Application::Roller(_)
            | Application::Reshaper(_)
            | Application::Operator(_) => u32::MAX,
        }
    }

    /// A new reader of each topic reads all of it.
    pub(super) fn read_all(&mut self) -> Result<(), Violation> {
        let began_ns = self.queue.now_ns();
        let mut readers = Vec::new();
        for (number, topic) in (0u32..).zip(self.topics.clone()) {
            let random = self.random.fork(&format!("final {number} {began_ns}"));
            readers.push(self.add_reader(ReaderPlan::thorough(number, &topic.name, random.clone()), random));
        }
        if let Some((number, name)) = self.passing_plan() {
            let random = self.random.fork(&format!("final passing {began_ns}"));
            readers.push(self.add_reader(ReaderPlan::thorough(number, name, random.clone()), random));
        }
        let until_ns = began_ns + READ_MAX_NS;
        loop {
            let waiting = readers.iter().filter(|reader| !self.reader_is_done(**reader)).count() as u64;
            if waiting == 0 {
                break;
            }
            if self.damaged_beyond_start() {
                return Ok(());
            }
            if !self.step(until_ns)? {
                let since_ms = READ_MAX_NS / MILLISECOND_NS;
                self.checks.progress.nothing_waits("a reading to end", waiting, since_ms)?;
            }
        }
        for reader in readers {
            self.end_pass(reader)?;
            self.retire(reader);
        }
        Ok(())
    }
}
