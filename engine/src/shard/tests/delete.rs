//! A range whose topic is deleted.

use super::*;

impl Rig {
    fn delete(&mut self) {
        self.give(Event::Message(ToReplica::Deleted { range: RANGE }));
    }

    fn segment_files(&self) -> usize {
        self.files.keys().filter(|file| matches!(file, DataFile::Segment { .. })).count()
    }

    fn refused(&mut self) -> usize {
        let replies = std::mem::take(&mut self.replies);
        assert!(replies.iter().all(|reply| *reply == Response::Refused(Refusal::UnknownRange)), "{replies:?}");
        replies.len()
    }
}

/// One that has rolled and checkpointed: its range lies in files and in memory.
fn busy() -> Rig {
    let mut rig = Rig::new(256 << 10);
    rig.warm();
    rig.store(200, 6_000);
    assert!(rig.segment_files() >= 3 && rig.shard.catalog.segments().count() >= 3);
    rig
}

#[test]
fn a_deleted_range_takes_and_serves_nothing_and_leaves_no_file() {
    let mut rig = busy();
    rig.delete();
    assert_eq!(rig.told[0], ToController::Stopped { range: RANGE });
    rig.produce(200, b"late");
    rig.give(Event::Flush);
    assert_eq!(rig.fetch(0, 10), [Response::Refused(Refusal::UnknownRange)]);
    rig.settle();
    assert_eq!(rig.told[1..], [ToController::Noted { range: RANGE }]);
    assert_eq!((rig.segment_files(), rig.shard.catalog.segments().count()), (0, 0));
    assert!(rig.shard.catalog.deletions().is_empty() && !rig.shard.is_busy());
    assert!(rig.shard.tails.iter().all(Option::is_none), "its memory is free");
    assert_eq!(rig.shard.counters().ranges, 0);
}

#[test]
fn what_is_under_way_for_a_deleted_range_is_not_stored_and_a_group_that_has_it_is_no_matter() {
    let mut rig = Rig::new(1 << 20);
    rig.warm();
    rig.store(1, 100);
    rig.produce(1, b"in the group");
    rig.give(Event::Flush);
    rig.produce(2, b"behind it");
    assert_eq!(rig.fetch(1, 1_000), [], "it waits");
    rig.delete();
    assert_eq!(rig.refused(), 3);
    rig.settle();
    assert_eq!(rig.refused(), 0, "each is answered once");
    assert_eq!(rig.told.last(), Some(&ToController::Noted { range: RANGE }));
}

#[test]
fn a_repeat_of_what_was_stored_is_stored_though_its_range_is_deleted_while_it_waits() {
    let mut rig = Rig::new(1 << 20);
    rig.warm();
    rig.store(1, 100);
    // Another producer's batch, behind which it waits.
    let stamp = Stamp { producer: ProducerId(4), ..Stamp::default() };
    rig.builder.clear();
    rig.builder.push(RecordKey::Key(b"k"), Some(b"of another"), &[], 5).unwrap();
    let batch = rig.builder.finish(stamp).to_vec();
    let request = ShardRequest::Produce { range: RANGE, epoch: Epoch(1), batch: &batch };
    rig.give(Event::Request { to: TO, deadline_ns: u64::MAX, request });
    rig.give(Event::Flush);
    rig.produce(0, &value(0, 100));
    rig.delete();
    let replies = std::mem::take(&mut rig.replies);
    let stored = Response::Stored(Stored { records: 1, repeat: true });
    assert_eq!(replies, [Response::Refused(Refusal::UnknownRange), stored]);
}

#[test]
fn a_range_that_was_deleted_is_not_adopted_again_and_is_stopped_as_often_as_that_is_said() {
    let mut rig = busy();
    rig.delete();
    rig.settle();
    rig.told.clear();
    let view = samples::view(TopicId(1), RANGE, Offset(0), Vec::new(), Vec::new());
    rig.give(Event::Message(ToReplica::Adopt(view)));
    rig.delete();
    assert_eq!(rig.told, [ToController::Stopped { range: RANGE }]);
    assert_eq!(rig.fetch(0, 0), [Response::Refused(Refusal::UnknownRange)]);
    assert_eq!(rig.shard.counters().ranges, 0);
}

#[test]
fn files_that_cannot_be_removed_are_named_for_the_next_life() {
    let mut rig = busy();
    let files = rig.segment_files();
    rig.removes = false;
    rig.delete();
    rig.settle();
    assert_eq!(rig.segment_files(), files);
    assert_eq!(rig.shard.catalog.deletions()[&RANGE].len(), files);
    assert!(rig.told.contains(&ToController::Noted { range: RANGE }) && !rig.shard.is_busy());
}

#[test]
fn what_an_earlier_life_has_left_is_removed_at_the_start() {
    let mut rig = busy();
    rig.removes = false;
    rig.delete();
    rig.settle();
    let Rig { shard, files, .. } = rig;
    let generation = Generation(8);
    let mut catalog = Catalog::new(ChainId { shard: ShardId(0), shards: 1, generation }, 100);
    for (range, doomed) in shard.catalog.deletions() {
        catalog.set_deletion(*range, doomed.clone());
    }
    catalog.snapshot();
    let mut next = Rig::new(256 << 10);
    let ring = Ring::new(Geometry::new(next.shard.config.journal_files, next.shard.config.journal_file_bytes));
    let recovered = RecoveredShard { shard: ShardId(0), generation, ring, catalog };
    next.shard = Shard::open(recovered, &next.shard.config.clone());
    next.files = files;
    // The metadata had not heard that it is written down.
    next.told.push(ToController::Noted { range: RANGE });
    next.give(Event::Message(ToReplica::Deleted { range: RANGE }));
    assert_eq!(next.told[1..], [ToController::Noted { range: RANGE }, ToController::Stopped { range: RANGE }]);
    next.give(Event::Started);
    assert_eq!(next.segment_files(), 0);
    assert!(next.shard.catalog.deletions().is_empty());
}
