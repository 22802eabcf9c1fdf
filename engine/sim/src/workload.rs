//! What the applications do: writers that send bursts of records and note what they are told, readers that read everything from
//! the beginning and again.

mod passing;
mod reader;
mod writer;

pub use reader::{Place, Reader, ReaderPlan};
pub use writer::{Keys, Writer, WriterPlan};

use crate::check::Violation;
use crate::client::Application;
use crate::world::World;

impl World {
    /// Lets the application of a client act on what it was told.
    pub(crate) fn act(&mut self, number: usize) -> Result<(), Violation> {
        let now = self.clients[number].clock.read(self.queue.now_ns());
        match &mut self.clients[number].application {
            Application::Admin(_) | Application::Roller(_) | Application::Reshaper(_) | Application::Operator(_) => {
                Ok(())
            }
            Application::Churn(_) => {
                self.act_churn(number);
                Ok(())
            }
            Application::Plain(plain) => {
                plain.act(now);
                Ok(())
            }
            Application::Writer(_) => self.act_writer(number),
            Application::Reader(_) => self.act_reader(number),
        }
    }

    /// A client's process died: its application begins again. Returns false if it is one that does not.
    pub(crate) fn restart_application(&mut self, number: usize) -> Result<bool, Violation> {
        match &self.clients[number].application {
            Application::Admin(_)
            | Application::Roller(_)
            | Application::Reshaper(_)
            | Application::Operator(_)
            | Application::Churn(_)
            | Application::Plain(_) => Ok(false),
            Application::Writer(_) => self.restart_writer(number).map(|()| true),
            Application::Reader(_) => {
                self.restart_reader(number);
                Ok(true)
            }
        }
    }
}
