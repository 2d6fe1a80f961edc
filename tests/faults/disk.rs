//! A model of one directory on a disk: what was written, what was synced, and what may be left of it when the power
//! fails.
//!
//! Only what fsync(2) was called for is sure. Of the rest each 512-byte sector may have reached the disk or not, in any
//! order, and so may the changes of names. What the model takes for granted is what the file systems of Linux do: that a
//! sector is written whole or not at all, that a file's fsync makes the name durable under which it was made, and that
//! a file grows by what is written to it, and not by what was in the blocks before.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use crate::Dice;
use crate::strace::SystemCall;

const SECTOR: u64 = 512;

/// A change that a system call asked for, of a file in the directory.
#[derive(Clone)]
pub enum Change {
    Make(String),
    Write(String, u64, Vec<u8>),
    Truncate(String, u64),
    Sync(String),
    SyncDirectory,
    Link(String, String),
    Unlink(String),
    Rename(String, String),
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Make(name) => write!(f, "make {name}"),
            Change::Write(name, at, data) => write!(f, "write {} at {at} of {name}", data.len()),
            Change::Truncate(name, len) => write!(f, "truncate {name} to {len}"),
            Change::Sync(name) => write!(f, "sync {name}"),
            Change::SyncDirectory => write!(f, "sync the directory"),
            Change::Link(old, new) => write!(f, "link {old} as {new}"),
            Change::Unlink(name) => write!(f, "unlink {name}"),
            Change::Rename(old, new) => write!(f, "rename {old} to {new}"),
        }
    }
}

impl Change {
    /// What a call changed of the files in `directory`, if anything. The index of the WAL is no part of it: SQLite makes
    /// it anew when nobody has it open.
    pub fn of(call: &SystemCall, directory: &Path) -> Option<Self> {
        if call.has_failed() {
            return None;
        }
        let inside = |path: String| {
            let name = Path::new(&path).strip_prefix(directory).ok()?.to_str()?;
            (!name.ends_with("-shm")).then(|| name.to_owned())
        };
        let descriptor = || inside(SystemCall::path_of(call.argument(0)));
        match call.name.as_str() {
            "openat" if call.argument(2).contains("O_CREAT") => {
                inside(call.path(1)).map(Self::Make)
            }
            "pwrite64" => Some(Self::Write(descriptor()?, call.number(3), call.bytes(1))),
            "ftruncate" => Some(Self::Truncate(descriptor()?, call.number(1))),
            "fsync" | "fdatasync" => Some(match descriptor()?.as_str() {
                "" => Self::SyncDirectory,
                name => Self::Sync(name.to_owned()),
            }),
            "link" => Some(Self::Link(inside(call.path(0))?, inside(call.path(1))?)),
            "linkat" => Some(Self::Link(inside(call.path(1))?, inside(call.path(3))?)),
            "unlink" => inside(call.path(0)).map(Self::Unlink),
            "unlinkat" => inside(call.path(1)).map(Self::Unlink),
            "rename" => Some(Self::Rename(inside(call.path(0))?, inside(call.path(1))?)),
            "renameat" | "renameat2" => {
                Some(Self::Rename(inside(call.path(1))?, inside(call.path(3))?))
            }
            _ => None,
        }
    }
}

/// The calls of which [`Change::of`] knows.
pub const CHANGING: &str = "trace=openat,pwrite64,ftruncate,fsync,fdatasync,link,linkat,unlink,unlinkat,rename,renameat,renameat2,execve,write";

/// What a power failure leaves of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Left {
    Nothing,
    Everything,
    /// Everything but the end of the last write.
    Torn,
    /// Some of the sectors and names, by chance.
    Some,
}

#[derive(Clone, Debug)]
enum Data {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

impl Data {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Data::Write(at, data) => {
                let at = usize::try_from(*at).expect("small files");
                if bytes.len() < at + data.len() {
                    bytes.resize(at + data.len(), 0);
                }
                bytes[at..at + data.len()].copy_from_slice(data);
            }
            Data::Truncate(len) => bytes.resize(usize::try_from(*len).expect("small files"), 0),
        }
    }

    /// Itself, or what the disk writes of it at once.
    fn in_sectors(&self) -> Vec<Data> {
        let Data::Write(at, data) = self else {
            return vec![self.clone()];
        };
        let mut sectors = Vec::new();
        let (mut at, mut data) = (*at, &data[..]);
        while !data.is_empty() {
            let len = data
                .len()
                .min(usize::try_from(SECTOR - at % SECTOR).expect("512 at most"));
            sectors.push(Data::Write(at, data[..len].to_vec()));
            at += len as u64;
            data = &data[len..];
        }
        sectors
    }
}

#[derive(Clone, Debug, Default)]
struct File {
    durable: Vec<u8>,
    pending: Vec<Data>,
}

#[derive(Clone, Debug)]
enum Naming {
    Add(String, usize),
    Remove(String),
}

impl Naming {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Naming::Add(name, file) => names.insert(name.clone(), *file),
            Naming::Remove(name) => names.remove(name),
        };
    }
}

#[derive(Clone, Debug, Default)]
pub struct Disk {
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<Naming>,
    /// The file of the last change, if that was a write.
    last_written: Option<usize>,
}

/// What is on the disk when the power is back: the names, by which a file may have several, and the contents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Image {
    pub names: BTreeMap<String, usize>,
    pub contents: BTreeMap<usize, Vec<u8>>,
}

impl Disk {
    /// A directory as it is now, all of it synced.
    pub fn of(directory: &Path) -> Self {
        let mut disk = Self::default();
        for entry in fs::read_dir(directory).expect("our own directory") {
            let entry = entry.expect("our own directory");
            let name = entry.file_name().into_string().expect("our own names");
            if entry.path().is_file() && !name.ends_with("-shm") {
                let number = disk.files.len();
                let durable = fs::read(entry.path()).expect("our own file");
                disk.files.push(File {
                    durable,
                    ..File::default()
                });
                disk.names.insert(name, number);
            }
        }
        disk.durable_names.clone_from(&disk.names);
        disk
    }

    pub fn apply(&mut self, change: &Change) {
        self.last_written = None;
        match change {
            Change::Make(name) => {
                if !self.names.contains_key(name) {
                    self.files.push(File::default());
                    self.name(Naming::Add(name.clone(), self.files.len() - 1));
                }
            }
            Change::Write(name, at, data) => {
                // What was unlinked is nobody's any more.
                if let Some(file) = self.names.get(name) {
                    self.files[*file]
                        .pending
                        .push(Data::Write(*at, data.clone()));
                    self.last_written = Some(*file);
                }
            }
            Change::Truncate(name, len) => {
                if let Some(file) = self.names.get(name) {
                    self.files[*file].pending.push(Data::Truncate(*len));
                }
            }
            Change::Sync(name) => {
                if let Some(number) = self.names.get(name) {
                    let file = &mut self.files[*number];
                    for data in file.pending.drain(..) {
                        data.apply(&mut file.durable);
                    }
                    let durable = &mut self.durable_names;
                    self.pending_names.retain(|naming| {
                        let is_its_own = matches!(naming, Naming::Add(_, of) if of == number);
                        if is_its_own {
                            naming.apply(durable);
                        }
                        !is_its_own
                    });
                }
            }
            Change::SyncDirectory => {
                for naming in self.pending_names.drain(..) {
                    naming.apply(&mut self.durable_names);
                }
            }
            Change::Link(old, new) => {
                let file = self.names[old];
                self.name(Naming::Add(new.clone(), file));
            }
            Change::Unlink(name) => self.name(Naming::Remove(name.clone())),
            Change::Rename(old, new) => {
                let file = self.names[old];
                self.name(Naming::Add(new.clone(), file));
                self.name(Naming::Remove(old.clone()));
            }
        }
    }

    fn name(&mut self, naming: Naming) {
        naming.apply(&mut self.names);
        self.pending_names.push(naming);
    }

    /// What the disk has when the power fails now.
    pub fn after_cut(&self, left: Left, dice: &mut Dice) -> Image {
        // Now most of it is lost, now half, now a little.
        let odds = [1, 4, 7][usize::try_from(dice.below(3)).expect("0 to 2")];
        let is_kept = |dice: &mut Dice| match left {
            Left::Nothing => false,
            Left::Everything | Left::Torn => true,
            Left::Some => dice.below(8) < odds,
        };
        let mut names = self.durable_names.clone();
        for naming in &self.pending_names {
            if is_kept(dice) {
                naming.apply(&mut names);
            }
        }
        let mut contents = BTreeMap::new();
        for number in names.values() {
            let file = &self.files[*number];
            let mut bytes = file.durable.clone();
            for (at, data) in file.pending.iter().enumerate() {
                let is_last = at + 1 == file.pending.len() && self.last_written == Some(*number);
                let mut sectors = data.in_sectors();
                if left == Left::Torn && is_last {
                    let most = sectors.len() as u64;
                    sectors.truncate(usize::try_from(dice.below(most)).expect("few sectors"));
                }
                for sector in sectors {
                    if is_kept(dice) {
                        sector.apply(&mut bytes);
                    }
                }
            }
            contents.insert(*number, bytes);
        }
        Image { names, contents }
    }
}
