use std::sync::Arc;

use sealog_engine::api::port::{DataFile, Fill, Folder, Store};
use sealog_engine::shard::command::FileOperation;
use sealog_engine::shard::event::{Failed, FileResult};
use sealog_engine::types::limits::BLOCK;
use sealog_engine::types::{AlignedBuffer, ShardId};

use super::*;

const FILE: DataFile = DataFile::Journal { shard: ShardId(0), file: 0 };
const BYTES: u64 = 16 * BLOCK as u64;

fn disk(seed: u64) -> Disk {
    Disk::new(Random::new(seed), DiskProfile { slowness: 1, sync_covers_write_only: false, stall_one_in: 0 })
}

fn blocks(count: usize, byte: u8) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(count * BLOCK);
    buffer.fill(byte);
    buffer
}

/// A disk with one durable file of zeros.
fn with_file(seed: u64) -> Disk {
    let mut disk = disk(seed);
    Store::create(&mut disk, FILE, BYTES, Fill::Zeroed).unwrap();
    disk.sync(FILE).unwrap();
    Store::sync_folder(&mut disk, Folder::Journal).unwrap();
    disk
}

fn byte_at(disk: &mut Disk, position: usize) -> u8 {
    let block = position / BLOCK * BLOCK;
    disk.read(FILE, block as u64, BLOCK).unwrap().bytes[position - block]
}

fn finish(disk: &mut Disk, operation: FileOperation) -> Result<FileResult, Failed> {
    let (ticket, _) = disk.submit(Operation::File(operation));
    match disk.complete(ticket) {
        Some(Completed::File(outcome)) => outcome,
        other => panic!("{other:?}"),
    }
}

fn write(position: u64, byte: u8) -> FileOperation {
    FileOperation::Write { file: FILE, position, buffer: Arc::new(blocks(1, byte)), length: BLOCK }
}

fn group(position: u64, byte: u8, sync: bool) -> Operation {
    Operation::Group { file: FILE, position, buffer: Box::new(blocks(1, byte)), length: BLOCK, sync }
}

/// Of 50 disks, on how many `what` holds after `act` and a crash.
fn count(act: impl Fn(&mut Disk), crash: impl Fn(&mut Disk), what: impl Fn(&mut Disk) -> bool) -> usize {
    (0..50)
        .filter(|seed| {
            let mut disk = with_file(*seed);
            act(&mut disk);
            crash(&mut disk);
            what(&mut disk)
        })
        .count()
}

fn cut(disk: &mut Disk) {
    disk.cut_power();
}

fn kill(disk: &mut Disk) {
    disk.kill();
}

#[test]
fn an_unsynced_write_survives_a_kill_and_may_not_survive_a_power_cut() {
    let act = |disk: &mut Disk| disk.write(FILE, 0, &blocks(1, 7)).unwrap();
    assert_eq!(count(act, kill, |disk| byte_at(disk, 0) == 7), 50);
    let kept = count(act, cut, |disk| byte_at(disk, 0) == 7);
    assert!((5..45).contains(&kept), "{kept}");
    let killed_first = count(
        act,
        |disk| {
            kill(disk);
            cut(disk)
        },
        |disk| byte_at(disk, 0) == 7,
    );
    assert!(killed_first < 45, "the end of a process makes nothing durable");
}

#[test]
fn a_synced_write_survives_a_power_cut() {
    let act = |disk: &mut Disk| {
        disk.write(FILE, 0, &blocks(1, 7)).unwrap();
        disk.sync(FILE).unwrap();
    };
    assert_eq!(count(act, cut, |disk| byte_at(disk, 0) == 7 && byte_at(disk, BLOCK - 1) == 7), 50);
}

#[test]
fn a_power_cut_tears_an_unsynced_write_between_sectors_and_never_inside_one() {
    let mut torn = 0;
    for seed in 0..100 {
        let mut disk = with_file(seed);
        disk.write(FILE, 0, &blocks(1, 7)).unwrap();
        disk.cut_power();
        let block = disk.read(FILE, 0, BLOCK).unwrap().bytes;
        let sectors: Vec<u8> = block
            .chunks(SECTOR)
            .map(|sector| {
                assert!(sector.iter().all(|byte| *byte == sector[0]));
                sector[0]
            })
            .collect();
        torn += usize::from(sectors.contains(&0) && sectors.contains(&7));
    }
    assert!(torn > 5, "{torn}");
}

#[test]
fn a_sync_covers_what_was_done_when_it_was_submitted_and_no_more() {
    let act = |disk: &mut Disk| {
        finish(disk, write(0, 1)).unwrap();
        let (sync, _) = disk.submit(Operation::File(FileOperation::Sync { file: FILE }));
        finish(disk, write(BLOCK as u64, 2)).unwrap();
        assert!(matches!(disk.complete(sync), Some(Completed::File(Ok(FileResult::Done)))));
    };
    assert_eq!(count(act, cut, |disk| byte_at(disk, 0) == 1), 50);
    assert!(count(act, cut, |disk| byte_at(disk, BLOCK) == 2) < 45);
}

#[test]
fn of_a_write_in_flight_any_part_may_be_there_after_a_kill() {
    let act = |disk: &mut Disk| {
        disk.submit(group(0, 9, true));
    };
    let whole = count(act, kill, |disk| (0..8).all(|sector| byte_at(disk, sector * SECTOR) == 9));
    let none = count(act, kill, |disk| (0..8).all(|sector| byte_at(disk, sector * SECTOR) == 0));
    assert!(whole > 3 && none > 3 && whole + none < 50, "{whole} whole, {none} not at all");
}

#[test]
fn a_group_is_durable_when_its_sync_is_done_and_a_marker_is_not() {
    let run = |disk: &mut Disk, sync: bool| {
        let (ticket, _) = disk.submit(group(0, 5, sync));
        assert!(matches!(disk.complete(ticket), Some(Completed::Group { outcome: Ok(()), .. })));
    };
    assert_eq!(count(|disk| run(disk, true), cut, |disk| byte_at(disk, 0) == 5), 50);
    assert!(count(|disk| run(disk, false), cut, |disk| byte_at(disk, 0) == 5) < 45);
}

#[test]
fn forced_unit_access_makes_only_its_own_write_durable() {
    let act = |disk: &mut Disk, write_only: bool| {
        disk.profile.sync_covers_write_only = write_only;
        for operation in [group(0, 1, false), group(BLOCK as u64, 2, true)] {
            let (ticket, _) = disk.submit(operation);
            disk.complete(ticket);
        }
    };
    assert_eq!(count(|disk| act(disk, false), cut, |disk| byte_at(disk, 0) == 1), 50);
    assert!(count(|disk| act(disk, true), cut, |disk| byte_at(disk, 0) == 1) < 45);
    assert_eq!(count(|disk| act(disk, true), cut, |disk| byte_at(disk, BLOCK) == 2), 50);
}

#[test]
fn a_new_file_whose_folder_was_not_synced_may_vanish_with_its_synced_bytes() {
    let other = DataFile::Journal { shard: ShardId(0), file: 1 };
    let act = |disk: &mut Disk| {
        finish(disk, FileOperation::Create { file: other, bytes: BYTES, fill: Fill::Zeroed }).unwrap();
        finish(disk, FileOperation::Sync { file: other }).unwrap();
    };
    let kept = count(act, cut, |disk| disk.length(other).unwrap() == Some(BYTES));
    let gone = count(act, cut, |disk| disk.length(other).unwrap().is_none());
    assert!(kept > 5 && gone > 5 && kept + gone == 50, "{kept} kept, {gone} gone");
}

#[test]
fn a_file_that_was_replaced_or_removed_may_come_back_until_its_folder_is_synced() {
    let replace = |disk: &mut Disk| {
        disk.write(FILE, 0, &blocks(1, 3)).unwrap();
        disk.sync(FILE).unwrap();
        Store::create(disk, FILE, BYTES, Fill::Zeroed).unwrap();
        disk.sync(FILE).unwrap();
    };
    let old = count(replace, cut, |disk| byte_at(disk, 0) == 3);
    assert!((5..45).contains(&old), "{old}");
    let remove = |disk: &mut Disk| finish(disk, FileOperation::Remove { file: FILE }).map(drop).unwrap();
    let back = count(remove, cut, |disk| disk.length(FILE).unwrap().is_some());
    assert!((5..45).contains(&back), "{back}");
    let removed_and_synced = |disk: &mut Disk| {
        remove(disk);
        finish(disk, FileOperation::SyncFolder { folder: Folder::Journal }).unwrap();
    };
    assert_eq!(count(removed_and_synced, cut, |disk| disk.length(FILE).unwrap().is_some()), 0);
}

#[test]
fn the_machine_stops_in_the_call_that_was_named_and_nothing_after_it_has_an_effect() {
    let mut disk = with_file(1);
    disk.stop_after_calls(2);
    disk.write(FILE, 0, &blocks(1, 1)).unwrap();
    disk.write(FILE, BLOCK as u64, &blocks(1, 2)).unwrap_err();
    disk.write(FILE, 2 * BLOCK as u64, &blocks(1, 3)).unwrap_err();
    disk.sync(FILE).unwrap_err();
    assert!(disk.take_stopped());
    disk.kill();
    assert!(!disk.take_stopped());
    assert_eq!((byte_at(&mut disk, 0), byte_at(&mut disk, 2 * BLOCK)), (1, 0));
}

#[test]
fn a_failed_sync_loses_its_writes_even_if_a_later_one_succeeds() {
    let act = |disk: &mut Disk| {
        disk.write(FILE, 0, &blocks(1, 7)).unwrap();
        disk.fail_syncs(1);
        disk.sync(FILE).unwrap_err();
        disk.sync(FILE).unwrap();
    };
    assert_eq!(count(act, kill, |disk| byte_at(disk, 0) == 7), 50);
    assert_eq!(count(act, cut, |disk| byte_at(disk, 0) == 7), 0);
}

#[test]
fn an_unreadable_block_is_told_apart_from_zeros_and_mends_when_written() {
    let mut disk = with_file(3);
    let (_, position) = disk.make_unreadable(|file| file == FILE).unwrap();
    let all = usize::try_from(BYTES).unwrap();
    let spans = disk.read(FILE, 0, all).unwrap().unreadable;
    assert_eq!(spans.iter().map(|span| (span.start, span.end)).collect::<Vec<_>>(), [(position, position + BLOCK)]);
    let read = FileOperation::Read { file: FILE, position: 0, length: all };
    assert_eq!(finish(&mut disk, read).map(drop).unwrap_err(), Failed { errno: EIO });
    disk.write(FILE, position as u64, &blocks(1, 1)).unwrap();
    assert!(disk.read(FILE, 0, all).unwrap().unreadable.is_empty());
}

#[test]
fn a_full_disk_makes_no_files_and_still_writes_those_it_has() {
    let mut disk = with_file(1);
    disk.set_full(true);
    let other = DataFile::Journal { shard: ShardId(0), file: 1 };
    let create = FileOperation::Create { file: other, bytes: BYTES, fill: Fill::Zeroed };
    assert_eq!(finish(&mut disk, create).map(drop).unwrap_err(), Failed { errno: ENOSPC });
    finish(&mut disk, write(0, 1)).unwrap();
}

#[test]
fn some_syncs_stall_while_journal_groups_go_on() {
    let mut disk = with_file(1);
    disk.profile.stall_one_in = 2;
    let mut latency_ns = |operation| {
        let (ticket, latency_ns) = disk.submit(operation);
        disk.complete(ticket);
        latency_ns
    };
    let sync = || Operation::File(FileOperation::Sync { file: FILE });
    let stalled = (0..100).filter(|_| latency_ns(sync()) > 2_000_000).count();
    assert!((20..80).contains(&stalled), "{stalled} of 100");
    assert!((0..100).all(|_| latency_ns(group(0, 1, true)) < 1_000_000));
}

#[test]
#[should_panic(expected = "share a block")]
fn two_writes_of_one_block_in_flight_are_a_bug() {
    let mut disk = with_file(1);
    disk.submit(Operation::File(write(0, 1)));
    disk.submit(group(0, 2, true));
}
