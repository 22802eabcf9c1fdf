//! What is to be done next, in order, as data: it can be printed, compared with a golden text and judged by
//! [`lint`](super::lint::lint) before anything is done.

use std::fmt;

use crate::metadata::SealReason;
use crate::replica::message::{Fence, SealedSegment, Span};
use crate::types::{Epoch, NodeId, Offset, RangeId, SegmentId};

/// Steps for one range. Each is done when the one before has succeeded; a plan ends where its next step depends on what is not
/// known yet, and is made again then. So a crash between two steps needs no memory of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub range: RangeId,
    pub steps: Vec<Step>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Commit that a round begins: from here on `epoch` may be asked for.
    BeginSeal { segment: SegmentId, epoch: Epoch, reason: SealReason },
    /// Ask the nodes to promise `epoch` and to say what they hold.
    Ask { segment: SegmentId, epoch: Epoch, nodes: Vec<NodeId> },
    /// Go on with `need` answers; `have` are here.
    AwaitAnswers { have: usize, need: usize },
    /// Go on when a copy answers that can read these, when all have answered, or when the wait for them is over.
    AwaitCopies { unreadable: Vec<Span> },
    /// Make one copy right up to `end`, from the others, so that its digest is known.
    Repair { segment: SegmentId, end: Offset, node: NodeId, from: Vec<NodeId> },
    /// Commit the end, and what follows it in the same change.
    Seal { sealed: SealedSegment, goes_on: Option<SegmentId>, open: Option<NextSegment> },
    /// Commit the end, and in the same change that the range's two halves take its place, with first segments on this node.
    Split { sealed: SealedSegment, fences: Vec<Fence>, primary: NodeId },
    /// The end is known. It is committed with the other parent's, by [`merge`](super::planner::merge).
    Hold { sealed: SealedSegment, fences: Vec<Fence>, primary: NodeId },
    /// Commit both ends, and in the same change that one range takes the place of both, with its first segment on this node.
    Merge { parents: [(RangeId, SealedSegment); 2], fences: Vec<Fence>, primary: NodeId },
}

/// The segment that follows a sealed one. Its id and seed are drawn by whoever runs the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextSegment {
    pub base: Offset,
    pub epoch: Epoch,
    pub predecessor: Option<SegmentId>,
    pub primary: NodeId,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.range)?;
        for (number, step) in (1..).zip(&self.steps) {
            writeln!(f, "  {number} {step}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeginSeal { segment, epoch, reason } => {
                write!(f, "commit: begin to seal {segment} in {epoch} ({reason:?})")
            }
            Self::Ask { segment, epoch, nodes } => {
                write!(f, "ask {} to promise {epoch} for {segment}", List(nodes))
            }
            Self::AwaitAnswers { have, need } => write!(f, "await {need} answers, {have} are here"),
            Self::AwaitCopies { unreadable } => write!(f, "await a copy that can read {}", Spans(unreadable)),
            Self::Repair { segment, end, node, from } => {
                write!(f, "repair {segment} on {node} up to {end} from {}", List(from))
            }
            Self::Seal { sealed, goes_on, open } => {
                write!(f, "commit: seal {}", End(sealed))?;
                if let Some(second) = goes_on {
                    write!(f, ", go on in {second}")?;
                }
                if let Some(NextSegment { base, epoch, predecessor, primary }) = open {
                    write!(f, ", open the next at {base} in {epoch} on {primary}")?;
                    if let Some(predecessor) = predecessor {
                        write!(f, " after {predecessor}")?;
                    }
                }
                Ok(())
            }
            Self::Split { sealed, fences, primary } => {
                write!(f, "commit: seal {}, split with {} fences, open both on {primary}", End(sealed), fences.len())
            }
            Self::Hold { sealed, fences, primary } => {
                write!(f, "await the other parent's end: {}, {} fences, {primary}", End(sealed), fences.len())
            }
            Self::Merge { parents: [(low, lower), (high, upper)], fences, primary } => {
                let (lower, upper) = (End(lower), End(upper));
                write!(f, "commit: seal {low} {lower} and {high} {upper}, merge with {} fences, ", fences.len())?;
                write!(f, "open on {primary}")
            }
        }
    }
}

/// Where and how a segment is sealed.
struct End<'a>(&'a SealedSegment);

impl fmt::Display for End<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SealedSegment { segment, base, end, digest, holes, epoch } = self.0;
        write!(f, "{segment} [{base}, {end}) in {epoch}, digest {digest}")?;
        if holes.is_empty() { Ok(()) } else { write!(f, ", holes {}", Spans(holes)) }
    }
}

struct List<'a>(&'a [NodeId]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{node}")?;
        }
        Ok(())
    }
}

struct Spans<'a>(&'a [Span]);

impl fmt::Display for Spans<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, span) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let Span { from, to, records_at_most, cause } = span;
            write!(f, "{comma}[{from}, {to}) at most {records_at_most} ({cause:?})")?;
        }
        Ok(())
    }
}
