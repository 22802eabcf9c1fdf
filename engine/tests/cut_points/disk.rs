//! A disk that follows a recording, and what a power cut leaves of it.
//!
//! ```text
//!  inode      durable bytes + acts on them that no sync has covered, each: kept | dropped | torn at 512 bytes
//!  folder     durable names + acts on them that no sync has covered; of each name a beginning of these is kept
//! ```
//! More than a journaling file system allows itself, as much as POSIX does: names of different files are lost or kept independently
//! of each other, of what is in the files, and of the order in which they came. What has been synced is always there; an act that has not
//! begun never is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sealog_engine::api::port::{DataFile, Folder};
use sealog_engine::io::recorder::{Act, ActId, Content, Recorded};
use sealog_engine::types::random::Generator;

/// Bytes that a device writes whole or not at all.
const SECTOR: usize = 512;

/// A name in a folder: the file's own, or `NAME.new`.
type Name = (DataFile, Content);

/// Which syncs do nothing: to show that the checkers notice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lie {
    /// All syncs are done.
    None,
    All,
    Journals,
    Segments,
    Catalogs,
    Metadata,
    Superblocks,
    Folders,
}

impl Lie {
    pub const ALL: [Self; 7] =
        [Self::All, Self::Journals, Self::Segments, Self::Catalogs, Self::Metadata, Self::Superblocks, Self::Folders];

    pub fn parse(name: &str) -> Self {
        let all = [Self::None].into_iter().chain(Self::ALL);
        all.into_iter().find(|lie| format!("{lie:?}") == name).expect("the name of a lie")
    }

    fn is_about(self, file: DataFile) -> bool {
        match self {
            Self::None | Self::Folders => false,
            Self::All => true,
            Self::Journals => matches!(file, DataFile::Journal { .. }),
            Self::Segments => matches!(file, DataFile::Segment { .. }),
            Self::Catalogs => matches!(file, DataFile::CatalogSnapshot { .. } | DataFile::CatalogDelta { .. }),
            Self::Superblocks => matches!(file, DataFile::Superblock { .. }),
            Self::Metadata => matches!(file, DataFile::MetadataJournal { .. } | DataFile::MetadataSnapshot { .. }),
        }
    }

    fn is_about_folders(self) -> bool {
        matches!(self, Self::All | Self::Folders)
    }
}

/// An act on an inode's bytes that is not known to be durable.
struct Unsynced<'r> {
    id: ActId,
    has_ended: bool,
    position: usize,
    length: usize,
    /// `None`: zeros, or no more than the length.
    bytes: Option<&'r [u8]>,
    /// Sectors that a later act has not certainly overwritten.
    live: Vec<bool>,
}

#[derive(Default)]
struct Inode<'r> {
    durable: Vec<u8>,
    unsynced: Vec<Unsynced<'r>>,
}

/// An act on the names in a folder that is not known to be durable.
struct Naming {
    id: ActId,
    has_ended: bool,
    what: NameAct,
}

#[derive(Clone, Copy)]
enum NameAct {
    Link { file: DataFile, inode: usize },
    Rename { file: DataFile, inode: usize },
    Unlink { file: DataFile },
    Folder { folder: Folder },
}

#[derive(Default)]
struct Names {
    files: BTreeMap<Name, usize>,
    folders: BTreeSet<Folder>,
    unsynced: Vec<Naming>,
}

/// What an act that has begun is about.
enum Begun {
    Bytes { inode: usize, durable: bool },
    Naming { folder: Folder },
    Sync { inode: usize, covers: Vec<ActId> },
    SyncFolder { folder: Folder, covers: Vec<ActId> },
    Nothing,
}

/// A disk at a place of the timeline.
pub struct Disk<'r> {
    lie: Lie,
    inodes: Vec<Inode<'r>>,
    folders: BTreeMap<Folder, Names>,
    /// Names as a process sees them now, and folders.
    seen: BTreeMap<Name, usize>,
    seen_folders: BTreeSet<Folder>,
    begun: BTreeMap<ActId, Begun>,
}

/// What a power cut left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    folders: BTreeSet<Folder>,
    files: BTreeMap<Name, Vec<u8>>,
}

/// How a cut treats what was not synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mood {
    KeepAll,
    DropAll,
    Mix,
}

impl Image {
    /// Writes it into a folder, which is there and empty.
    pub fn write(&self, root: &Path) {
        for folder in &self.folders {
            std::fs::create_dir_all(root.join(folder.to_string())).expect("a folder can be made");
        }
        for ((file, content), bytes) in &self.files {
            let new = if *content == Content::New { ".new" } else { "" };
            std::fs::write(root.join(format!("{file}{new}")), bytes).expect("a file can be written");
        }
    }
}

impl<'r> Disk<'r> {
    /// A disk that holds `image`, durably.
    pub fn new(lie: Lie, image: &Image) -> Self {
        let mut disk = Self {
            lie,
            inodes: Vec::new(),
            folders: BTreeMap::from([(Folder::Root, Names::default())]),
            seen: BTreeMap::new(),
            seen_folders: image.folders.clone(),
            begun: BTreeMap::new(),
        };
        for folder in &image.folders {
            disk.folders.entry(*folder).or_default();
            let above = folder.above().expect("the root is not listed");
            disk.folders.entry(above).or_default().folders.insert(*folder);
        }
        for (name, bytes) in &image.files {
            let inode = disk.inodes.len();
            disk.inodes.push(Inode { durable: bytes.clone(), unsynced: Vec::new() });
            disk.folders.entry(name.0.folder()).or_default().files.insert(*name, inode);
            disk.seen.insert(*name, inode);
        }
        disk
    }

    /// The next thing on the timeline has happened.
    pub fn step(&mut self, recorded: Recorded<'r>) {
        match recorded {
            Recorded::Note(_) => {}
            Recorded::Begun { id, act } => {
                let begun = self.begin(id, act);
                self.begun.insert(id, begun);
            }
            Recorded::Ended(id) => {
                let begun = self.begun.remove(&id).expect("what ends has begun");
                self.end(id, begun);
            }
        }
    }

    fn begin(&mut self, id: ActId, act: Act<'r>) -> Begun {
        match act {
            Act::MakeFolder { folder } => {
                if !self.seen_folders.insert(folder) {
                    return Begun::Nothing;
                }
                let above = folder.above().expect("the root is not made");
                self.name(id, above, NameAct::Folder { folder })
            }
            Act::MakeNew { file } => {
                let inode = self.inodes.len();
                self.inodes.push(Inode::default());
                self.seen.insert((file, Content::New), inode);
                self.name(id, file.folder(), NameAct::Link { file, inode })
            }
            Act::Rename { file } => {
                let inode = self.seen.remove(&(file, Content::New)).expect("what is renamed is there");
                self.seen.insert((file, Content::Named), inode);
                self.name(id, file.folder(), NameAct::Rename { file, inode })
            }
            Act::Remove { file } => {
                let Some(inode) = self.seen.remove(&(file, Content::Named)) else { return Begun::Nothing };
                self.seen.insert((file, Content::Removed), inode);
                self.name(id, file.folder(), NameAct::Unlink { file })
            }
            Act::Extend { file, content, bytes } => {
                let position = usize::try_from(bytes).expect("a file fits memory");
                self.change(id, (file, content), position, 0, None, false)
            }
            Act::Zero { file, content, position, bytes } => {
                let position = usize::try_from(position).expect("a file fits memory");
                self.change(id, (file, content), position, usize::try_from(bytes).expect("it fits"), None, false)
            }
            Act::Write { file, content, position, bytes, durable } => {
                let position = usize::try_from(position).expect("a file fits memory");
                self.change(id, (file, content), position, bytes.len(), Some(bytes), durable)
            }
            Act::Sync { file, content } if !self.lie.is_about(file) => {
                let inode = self.seen[&(file, content)];
                let ended = self.inodes[inode].unsynced.iter().filter(|act| act.has_ended);
                Begun::Sync { inode, covers: ended.map(|act| act.id).collect() }
            }
            Act::SyncFolder { folder } if !self.lie.is_about_folders() => {
                let names = self.folders.entry(folder).or_default();
                let covers = names.unsynced.iter().filter(|act| act.has_ended).map(|act| act.id).collect();
                Begun::SyncFolder { folder, covers }
            }
            Act::Sync { .. } | Act::SyncFolder { .. } => Begun::Nothing,
        }
    }

    fn name(&mut self, id: ActId, folder: Folder, what: NameAct) -> Begun {
        self.folders.entry(folder).or_default().unsynced.push(Naming { id, has_ended: false, what });
        Begun::Naming { folder }
    }

    fn change(
        &mut self,
        id: ActId,
        name: Name,
        position: usize,
        length: usize,
        bytes: Option<&'r [u8]>,
        durable: bool,
    ) -> Begun {
        let inode = self.seen[&name];
        let live = vec![true; length.div_ceil(SECTOR)];
        self.inodes[inode].unsynced.push(Unsynced { id, has_ended: false, position, length, bytes, live });
        Begun::Bytes { inode, durable: durable && !self.lie.is_about(name.0) }
    }

    fn end(&mut self, id: ActId, begun: Begun) {
        match begun {
            Begun::Nothing => {}
            Begun::Bytes { inode, durable } => {
                let inode = &mut self.inodes[inode];
                inode.unsynced.iter_mut().filter(|act| act.id == id).for_each(|act| act.has_ended = true);
                if durable {
                    inode.sync(&[id]);
                }
            }
            Begun::Naming { folder } => {
                let names = self.folders.get_mut(&folder).expect("it was named in");
                names.unsynced.iter_mut().filter(|act| act.id == id).for_each(|act| act.has_ended = true);
            }
            Begun::Sync { inode, covers } => self.inodes[inode].sync(&covers),
            Begun::SyncFolder { folder, covers } => {
                let names = self.folders.get_mut(&folder).expect("it was synced");
                for act in std::mem::take(&mut names.unsynced) {
                    if covers.contains(&act.id) {
                        names.apply(act.what);
                    } else {
                        names.unsynced.push(act);
                    }
                }
            }
        }
    }

    /// What a power cut now may leave.
    pub fn cut(&self, draw: &mut Generator) -> Image {
        let mood = match draw.draw() % 8 {
            0 => Mood::KeepAll,
            1 => Mood::DropAll,
            _ => Mood::Mix,
        };
        let mut image = Image::default();
        let mut left = vec![Folder::Root];
        while let Some(folder) = left.pop() {
            let Some(names) = self.folders.get(&folder) else { continue };
            let names = names.cut(mood, draw);
            for (name, inode) in names.files {
                image.files.insert(name, self.inodes[inode].cut(mood, draw));
            }
            image.folders.extend(&names.folders);
            left.extend(names.folders);
        }
        image
    }
}

impl Names {
    fn apply(&mut self, act: NameAct) {
        match act {
            NameAct::Link { file, inode } => {
                self.files.insert((file, Content::New), inode);
            }
            NameAct::Rename { file, inode } => {
                self.files.remove(&(file, Content::New));
                self.files.insert((file, Content::Named), inode);
            }
            NameAct::Unlink { file } => {
                self.files.remove(&(file, Content::Named));
            }
            NameAct::Folder { folder } => {
                self.folders.insert(folder);
            }
        }
    }

    /// Of each file's acts a beginning is kept: they change the same two names, one after the other.
    fn cut(&self, mood: Mood, draw: &mut Generator) -> Self {
        let (files, folders, unsynced) = (self.files.clone(), self.folders.clone(), Vec::new());
        let mut kept = Self { files, folders, unsynced };
        let mut ended: BTreeSet<DataFile> = BTreeSet::new();
        for act in &self.unsynced {
            let keep = match mood {
                Mood::KeepAll => true,
                Mood::DropAll => false,
                Mood::Mix => draw.draw().is_multiple_of(2),
            };
            match act.what {
                NameAct::Folder { .. } => {
                    if keep {
                        kept.apply(act.what);
                    }
                }
                NameAct::Link { file, .. } | NameAct::Rename { file, .. } | NameAct::Unlink { file } => {
                    if keep && !ended.contains(&file) {
                        kept.apply(act.what);
                    } else {
                        ended.insert(file);
                    }
                }
            }
        }
        kept
    }
}

impl Inode<'_> {
    /// Makes acts durable, in their order.
    fn sync(&mut self, covers: &[ActId]) {
        for act in std::mem::take(&mut self.unsynced) {
            if covers.contains(&act.id) {
                let every = vec![true; act.live.len()];
                // What had ended before this one is certainly below it.
                let earlier = self.unsynced.iter_mut().filter(|earlier| earlier.has_ended && earlier.id < act.id);
                earlier.for_each(|earlier| earlier.overwritten(&act));
                act.apply(&mut self.durable, &every);
            } else {
                self.unsynced.push(act);
            }
        }
    }

    fn cut(&self, mood: Mood, draw: &mut Generator) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        for act in &self.unsynced {
            let kept = act.draw_kept(mood, draw);
            act.apply(&mut bytes, &kept);
        }
        bytes
    }
}

impl Unsynced<'_> {
    fn overwritten(&mut self, by: &Self) {
        for (sector, live) in self.live.iter_mut().enumerate() {
            let from = self.position + sector * SECTOR;
            *live &= !(by.position <= from && from + SECTOR <= by.position + by.length);
        }
    }

    /// Which sectors reached the device.
    fn draw_kept(&self, mood: Mood, draw: &mut Generator) -> Vec<bool> {
        let sectors = self.live.len().max(1);
        let at = usize::try_from(draw.draw() % sectors as u64).expect("a sector");
        let way = match mood {
            Mood::KeepAll => 0,
            Mood::DropAll => 1,
            Mood::Mix => draw.draw() % 6,
        };
        // An act of no bytes only makes the file longer: one place says whether it did.
        let kept = (0..sectors).map(|sector| match way {
            0 => true,
            1 => false,
            2 => sector < at,
            3 => sector >= at,
            4 => sector != at,
            _ => draw.draw().is_multiple_of(2),
        });
        kept.collect()
    }

    fn apply(&self, durable: &mut Vec<u8>, kept: &[bool]) {
        if self.length == 0 && kept.first().is_none_or(|kept| *kept) {
            durable.resize(durable.len().max(self.position), 0);
        }
        for (sector, live) in self.live.iter().enumerate() {
            if !kept[sector] || !live {
                continue;
            }
            let from = sector * SECTOR;
            let to = self.length.min(from + SECTOR);
            durable.resize(durable.len().max(self.position + to), 0);
            let place = &mut durable[self.position + from..self.position + to];
            match self.bytes {
                Some(bytes) => place.copy_from_slice(&bytes[from..to]),
                None => place.fill(0),
            }
        }
    }
}
