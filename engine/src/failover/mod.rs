//! Decides how a range gets past a seal: pure functions from what is known to what is to be done next. Acts on nothing; the
//! controller runs the plans.

pub mod lint;
pub mod plan;
pub mod planner;
pub mod seal_round;
pub mod view;

pub use lint::{Unsafe, lint};
pub use plan::{NextSegment, Plan, Step};
pub use planner::{merge, plan};
pub use seal_round::{Copies, Decision, Outcome, choose_end, decide, tidy};
pub use view::{Goal, RoundView};
