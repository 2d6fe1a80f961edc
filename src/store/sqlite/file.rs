//! The database as a file: which path it is, what stands there, making it, and whether it is still in its place.
//!
//! Everything here happens before SQLite opens the file in this process, or asks about the path only: closing a
//! descriptor of the database would drop the locks that SQLite has on it.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, params};
use rustix::fs::{
    Access, AtFlags, CWD, Mode, RenameFlags, Statx, StatxFlags, access, renameat_with, statfs,
    statx,
};
use rustix::process::{Flock, FlockType, fcntl_getlk, umask};

use super::connection::{self, Deadline, SETTLING};
use super::strangers;
use super::ticket::{BOOT_JUMP, inode_to_sql};
use super::trust::{BESIDE, check_owner};
use crate::chance;
use crate::clock::Clock;
use crate::guard::{Guard, Note};
use crate::signals::NoStops;
use crate::wait;

/// `tenu`, in the file's header: the file is ours.
const APPLICATION_ID: u32 = 0x7465_6e75;

/// The layout that this program writes: `user_version` in the file's header.
const LAYOUT: u32 = 4;

/// The one before, which [`update`] makes this one of.
const LAST_LAYOUT: u32 = 3;

/// What the last layout has not: a column at the end of the tickets, word for word as in the schema.
const NEW_COLUMN: &str = "of_run integer not null default 0 check (of_run in (0, 1))";

const SCHEMA: &str = include_str!("schema.sql");

/// The size of a page. Every commit writes whole pages, and whoever opens the database first reads all those of the
/// WAL; half of SQLite's default still has room for a ticket with a long command.
pub const PAGE_BYTES: usize = 2048;

/// The header of every SQLite file; the offsets below are of <https://sqlite.org/fileformat2.html>.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const HEADER_BYTES: usize = 100;

/// What a file begins with that is being filled in place. Zeros would do for SQLite, but a damaged database may begin
/// with those too, and is not to be filled again.
const UNFINISHED: &[u8] = b"tenure: unfinished";

/// What every disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

const USER_VERSION_AT: usize = 60;
const APPLICATION_ID_AT: usize = 68;

/// How long a newcomer waits for another maker, or for the holders of a deleted database, before it gives up.
const MAKING: Duration = Duration::from_secs(10);

/// The pause between two looks while it waits.
pub const LOOK: Duration = Duration::from_millis(2);

/// File systems on which neither SQLite's locks nor ours can be relied on, by statfs(2)'s `f_type`.
const NETWORK: [(u64, &str); 20] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x786f_4256, "vboxsf"),
    (0xbacb_acbc, "VMware's shared folders"),
    (0x4750_4653, "GPFS"),
    (0x2003_0528, "OrangeFS"),
    (0x1983_0326, "BeeGFS"),
    (0xaad7_aaea, "PanFS"),
    (0x564c, "NCP"),
];

/// What files are, by device and inode, while they are open somewhere: the database, and its side files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    database: (u64, u64),
    side: Option<[(u64, u64); 2]>,
    /// When the database and its log were made, for inodes are given to the next who makes a file.
    made: (u64, u64),
}

/// What stands at the database's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Missing,
    /// A regular file of no bytes, put there to be filled.
    Empty,
    /// Such a file while somebody fills it, or when he has died over it.
    Unfinished,
    Database,
    /// One of the last layout.
    Older,
}

/// The database when none is named. Never by way of the environment: cron and a terminal must find the same file.
///
/// # Errors
/// The password database has no home for this user.
pub fn default_path() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok("/var/lib/tenure/tenure.db".into());
    }
    let home = crate::holder::home().filter(|home| home.is_absolute());
    let home = home.context(
        "the password database has no home directory for this user; name a database with --db",
    )?;
    Ok(home.join(".local/state/tenure/tenure.db"))
}

/// Makes the default database's own directories, for nobody else to look into.
///
/// # Errors
/// Those of mkdir(2), with the path.
pub fn make_directories(path: &Path) -> Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .with_context(|| format!("cannot make {}", directory.display()))
}

/// The absolute path with every symbolic link resolved; the last part need not exist. SQLite reads an absolute
/// path as nothing but a path, whatever its parts look like (`:memory:`, `file:x?mode=memory`).
///
/// # Errors
/// Those of realpath(3), and a link that a stranger may have laid.
pub fn resolve(path: &Path) -> Result<PathBuf> {
    /// As many links as the kernel follows.
    const LINKS: usize = 40;
    let why = || format!("cannot open {}", path.display());
    let named = std::path::absolute(path).with_context(why)?;
    let must_be_there = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    let mut links = 0;
    let mut at = PathBuf::from("/");
    let mut ahead: Vec<OsString> = parts(&named).collect();
    while let Some(part) = ahead.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        let found = match fs::symlink_metadata(&next) {
            Err(error)
                if error.kind() == ErrorKind::NotFound && ahead.is_empty() && !must_be_there =>
            {
                return Ok(next);
            }
            other => other.with_context(why)?,
        };
        if found.is_symlink() {
            check_owner(&next, found.uid(), None).with_context(why)?;
            links += 1;
            if links > LINKS {
                return Err(io::Error::from_raw_os_error(libc::ELOOP)).with_context(why);
            }
            let target = fs::read_link(&next).with_context(why)?;
            if target.is_absolute() {
                at = "/".into();
            }
            ahead.extend(parts(&target));
        } else if !found.is_dir() && !ahead.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ENOTDIR)).with_context(why);
        } else {
            at = next;
        }
    }
    Ok(at)
}

/// Whether a path that was resolved to another leads somewhere else now, since a link was laid anew. Where that cannot be told,
/// it does not.
pub fn leads_elsewhere(link: &Path, path: &Path) -> bool {
    resolve(link).is_ok_and(|now| now != path)
}

/// What a path goes through, the last first.
fn parts(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

/// Refuses file systems on which locks cannot be relied on; `Ok(false)` where the user took that upon himself.
///
/// # Errors
/// The reason and the way out; or statfs(2) failed.
pub fn is_local(path: &Path) -> Result<bool> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let found = statfs(directory)
        .map_err(io::Error::from)
        .with_context(|| format!("cannot open {}", path.display()))?;
    // The field is signed on some architectures and wider on others; the numbers are of 32 bits.
    let Some(kind) = network_kind(found.f_type.cast_unsigned() & 0xffff_ffff) else {
        return Ok(true);
    };
    if std::env::var_os("TENURE_ALLOW_NETWORK_FS").is_some_and(|value| value == "1") {
        return Ok(false);
    }
    bail!(
        "cannot use {}: it is on {kind}, where file locks cannot be relied on; name a database on a local disk with --db, or set TENURE_ALLOW_NETWORK_FS=1 to go by time alone",
        path.display()
    )
}

fn network_kind(magic: u64) -> Option<&'static str> {
    NETWORK
        .iter()
        .find(|(known, _)| *known == magic)
        .map(|(_, name)| *name)
}

/// Looks at the file's header, before SQLite is allowed near it: a file that is not ours stays as it is, byte for
/// byte, and gets no side files.
///
/// # Errors
/// It cannot be read, is no database of ours, or is one of a newer program.
pub fn peek(path: &Path) -> Result<Content> {
    let why = || format!("cannot open {}", path.display());
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Content::Missing),
        Err(error) => return Err(error).with_context(why),
        Ok(metadata) if metadata.is_dir() => {
            return Err(anyhow!("is a directory")).with_context(why);
        }
        Ok(metadata) if !metadata.is_file() => {
            return Err(anyhow!("not a regular file")).with_context(why);
        }
        Ok(metadata) if metadata.len() == 0 => return Ok(Content::Empty),
        Ok(_) => {}
    }
    let mut header = Vec::with_capacity(HEADER_BYTES);
    let file = match OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW)
        .open(path)
    {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Content::Missing),
        other => other.with_context(why)?,
    };
    file.take(HEADER_BYTES as u64)
        .read_to_end(&mut header)
        .with_context(why)?;
    if header.starts_with(UNFINISHED) {
        return Ok(Content::Unfinished);
    }
    let number = |at: usize| {
        u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    if header.len() < HEADER_BYTES
        || header[..16] != *MAGIC
        || number(APPLICATION_ID_AT) != APPLICATION_ID
    {
        bail!("cannot use {}: it is not a tenure database", path.display());
    }
    match number(USER_VERSION_AT) {
        LAST_LAYOUT => Ok(Content::Older),
        layout => check_layout(path, layout).map(|()| Content::Database),
    }
}

/// Makes a database of the last layout one of this, while nobody holds a lock of it or waits for one by that layout; unless
/// somebody has done so, which may stand in the log and not in the file. In one transaction: whoever of the older program has
/// the file open and comes to write after it writes nothing, for a ticket of his lacks a column.
///
/// # Errors
/// It cannot be changed, or is in use.
pub fn update(path: &Path, vouches: bool) -> Result<()> {
    let why = || format!("cannot use {}", path.display());
    if access(path, Access::WRITE_OK).is_err() {
        return check_layout(path, LAST_LAYOUT);
    }
    wait_for_lost_holders(path)?;
    let patience = Deadline::new();
    patience.set(MAKING);
    // A writer that is stopped in the middle stops everybody.
    let _no_stops = NoStops::begin();
    let (mut connection, layout) = connection::open_to_update(path, &patience).with_context(why)?;
    if layout != LAST_LAYOUT {
        return check_layout(path, layout);
    }
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .with_context(why)?;
    let layout = connection::layout_of(&transaction).with_context(why)?;
    if layout != LAST_LAYOUT {
        return check_layout(path, layout);
    }
    if is_in_use(path, &transaction, vouches).with_context(why)? {
        bail!(
            "cannot use {}: it was made by an older tenure (layout {layout}, this program knows {LAYOUT}), and locks of it are held or waited for; when they are not any more, the next command brings it up to date",
            path.display()
        );
    }
    // Of the dead: what a `run` has, and no descriptor of somebody's.
    let sql = format!(
        "alter table ticket add column {NEW_COLUMN};
         update ticket set of_run = 1 where supervisor_byte is not null and tree_byte is not supervisor_byte;
         pragma user_version = {LAYOUT};"
    );
    transaction.execute_batch(&sql).with_context(why)?;
    transaction.commit().with_context(why)?;
    // For those who look at the header of the file, who come here all the same if this is not done.
    let _ = connection.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()));
    Ok(())
}

/// Whether a process of the older program is at work on a ticket: one that may be a `run`'s, where no bytes tell. Orphans, those
/// who keep a descriptor open, and bytes that no row names are in nobody's way.
fn is_in_use(path: &Path, transaction: &Transaction<'_>, vouches: bool) -> Result<bool> {
    if !vouches {
        return Ok(transaction.prepare("select 1 from ticket")?.exists([])?);
    }
    let guard = match Guard::open_to_ask(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    let mut statement = transaction.prepare(
        "select waiting_byte, supervisor_byte from ticket
         where guard_inode = ?1 and supervisor_byte is not tree_byte",
    )?;
    let mut rows = statement.query([inode_to_sql(guard.inode())])?;
    while let Some(row) = rows.next()? {
        if guard.is_locked(row.get(0)?)? || guard.is_locked(row.get(1)?)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Refuses a side file of a database, which an empty one would be filled for one.
///
/// # Errors
/// It is one, and the message says of which database.
pub fn check_name(path: &Path) -> Result<()> {
    for ending in BESIDE {
        let name = path.as_os_str().as_encoded_bytes();
        let database = name.strip_suffix(ending.as_bytes()).map(OsStr::from_bytes);
        if let Some(database) = database.map(Path::new).filter(|path| path.is_file()) {
            bail!(
                "cannot use {}: it is a side file of {}",
                path.display(),
                database.display()
            );
        }
    }
    Ok(())
}

/// Refuses what another version made.
///
/// # Errors
/// The layout is not this program's.
pub fn check_layout(path: &Path, layout: u32) -> Result<()> {
    match layout {
        LAYOUT => Ok(()),
        newer if newer > LAYOUT => bail!(
            "cannot use {}: it was made by a newer tenure (layout {newer}, this program knows {LAYOUT})",
            path.display()
        ),
        older => bail!(
            "cannot use {}: it was made by an older tenure (layout {older}, this program knows {LAYOUT}); delete it, with its -guard, -wal and -shm, when nobody holds a lock of it",
            path.display()
        ),
    }
}

/// Who the file is, now; none where there is none.
///
/// # Errors
/// It cannot be told. A file that is mounted without its directory is refused: its side files would be others in
/// every container, and its locks would not be seen.
pub fn identity(path: &Path) -> Result<Option<Identity>> {
    let why = || format!("cannot open {}", path.display());
    let directory = path.parent().unwrap_or(Path::new("/"));
    let about = |path: &Path| {
        statx(
            CWD,
            path,
            AtFlags::SYMLINK_NOFOLLOW,
            StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID,
        )
    };
    let file = match about(path) {
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        other => other.map_err(io::Error::from).with_context(why)?,
    };
    let around = about(directory)
        .map_err(io::Error::from)
        .with_context(why)?;
    if file.stx_mnt_id != around.stx_mnt_id {
        bail!(
            "cannot use {}: the file is mounted without its directory; mount the directory, so that all see the same side files",
            path.display()
        );
    }
    if file.stx_nlink > 1 && has_other_name(path, file.stx_ino).with_context(why)? {
        bail!(
            "cannot use {}: it has another name (a hard link), under which its side files would be others",
            path.display()
        );
    }
    Ok(Some(Identity {
        database: device_and_inode(&file),
        side: None,
        made: (making_of(&file), 0),
    }))
}

/// In nanoseconds since 1970; 0 where the file system does not know.
fn making_of(file: &Statx) -> u64 {
    let made = file.stx_btime;
    let second = u64::try_from(made.tv_sec).unwrap_or(0);
    second
        .wrapping_mul(1_000_000_000)
        .wrapping_add(made.tv_nsec.into())
}

fn device_and_inode(file: &Statx) -> (u64, u64) {
    let device = (u64::from(file.stx_dev_major) << 32) | u64::from(file.stx_dev_minor);
    (device, file.stx_ino)
}

/// Whether a file with several names has one that is not a maker's, who gives it its own and takes the temporary one
/// away. One that was killed in between left that to us.
fn has_other_name(path: &Path, inode: u64) -> io::Result<bool> {
    for workshop in workshops(path)? {
        let made = workshop.join(MADE);
        if fs::symlink_metadata(&made).is_ok_and(|found| found.ino() == inode) {
            let _ = fs::remove_file(made);
        }
    }
    Ok(fs::symlink_metadata(path).is_ok_and(|found| found.nlink() > 1))
}

/// The directories in which makers of this database are at work, or were.
fn workshops(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(Vec::new());
    };
    let mut prefix = name.to_owned();
    prefix.push(MAKING_INFIX);
    let is_makers = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        name.as_encoded_bytes()
            .starts_with(prefix.as_encoded_bytes())
    };
    Ok(fs::read_dir(directory)?
        .flatten()
        .filter(is_makers)
        .map(|entry| entry.path())
        .collect())
}

/// SQLite's side files, which are there as long as anybody has the database open.
const SIDE_FILES: [&str; 2] = ["-wal", "-shm"];

impl Identity {
    /// What the guard file is to say of these files.
    pub fn note(&self) -> Note {
        Note {
            number: 0,
            before: 0,
            database: (self.database.1, self.made.0),
            log: self.side.map_or((0, 0), |[(_, log), _]| (log, self.made.1)),
        }
    }

    /// With that of the side files, once they are open: whoever replaces those has a database of his own.
    ///
    /// # Errors
    /// They cannot be found.
    pub fn with_side_files(self, path: &Path) -> io::Result<Self> {
        let [log, index] = SIDE_FILES.map(|ending| at(&beside(path, ending)));
        let (log, index) = (log?, index?);
        Ok(Self {
            side: Some([device_and_inode(&log), device_and_inode(&index)]),
            made: (self.made.0, making_of(&log)),
            ..self
        })
    }
}

fn at(path: &Path) -> rustix::io::Result<Statx> {
    let what = StatxFlags::INO | StatxFlags::BTIME | StatxFlags::SIZE;
    statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, what)
}

/// Whether the path still leads to this file, somebody has not emptied it, and its side files are those that it was opened with.
///
/// # Errors
/// It cannot be told.
pub fn is_in_place(path: &Path, identity: Identity) -> io::Result<bool> {
    // Of no length, a database is nobody's any more; a log may be.
    let is = |path: &Path, known: (u64, u64), least: u64| match at(path) {
        Ok(file) => Ok(known == device_and_inode(&file) && file.stx_size >= least),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(false),
        Err(error) => Err(io::Error::from(error)),
    };
    let mut in_place = is(path, identity.database, 1)?;
    for (ending, known) in SIDE_FILES.iter().zip(identity.side.iter().flatten()) {
        in_place = in_place && is(&beside(path, ending), *known, 0)?;
    }
    Ok(in_place)
}

/// Whether the database is in WAL mode, by its header's read and write versions. Some tools change that.
fn uses_log(path: &Path) -> bool {
    let mut header = [0; 20];
    File::open(path).is_ok_and(|mut file| file.read_exact(&mut header).is_ok())
        && header[18..] == [2, 2]
}

/// What a database has lost that stands at its path, before anybody has opened it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    SideFiles,
    /// It came in the place of another, whose side files are still there: SQLite would take them for its own.
    Place,
}

fn loss(path: &Path, guard: &Guard) -> Result<Option<Loss>> {
    let exists = |ending: &&str| beside(path, ending).exists();
    let note = guard.note()?;
    let Some(identity) = identity(path)? else {
        return Ok(None);
    };
    if note.is_some_and(|note| {
        let log = at(&beside(path, SIDE_FILES[0]));
        // The same by its making: what came along with the database is its own, whatever inode it got.
        let is_same = |log: Statx| (log.stx_ino, making_of(&log)) == note.log && note.log.1 != 0;
        note.database != identity.note().database && log.is_ok_and(is_same)
    }) {
        return Ok(Some(Loss::Place));
    }
    let is_lost = !SIDE_FILES.iter().all(exists) && uses_log(path);
    Ok(is_lost.then_some(Loss::SideFiles))
}

/// Who holds locks of a database that is empty now, in words; none if nobody does, or that is unknown.
pub fn holders_of_emptied(path: &Path) -> Option<String> {
    let guard = Guard::open_to_ask(path).ok()?;
    let bytes = guard.unknown_bytes(&HashSet::new()).ok()?;
    let who = strangers::of(guard.inode(), &bytes);
    (!bytes.is_empty()).then(|| who.map_or_else(String::new, |who| format!(": {who}")))
}

/// The bytes of a database on which SQLite locks it as long as a connection is open in WAL mode
/// (<https://sqlite.org/fileformat2.html>, "The Lock-Byte Page"; `SHARED_FIRST` and `SHARED_SIZE` in its `os.h`).
const CONNECTIONS: (u64, u64) = (0x4000_0002, 510);

/// Whether SQLite itself has removed the side files, as its last connection does when it closes, such as that of a backup. It
/// has written all that they said into the file before: no lease is forgotten that lives without a connection, by an orphan or by
/// a descriptor that somebody keeps open. Otherwise whoever removed them left a connection behind, or a file that is behind
/// the last number.
fn has_lost_nothing(path: &Path, guard: &Guard) -> bool {
    let is_open = || -> io::Result<bool> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(path)?;
        let mut lock = Flock::from(FlockType::WriteLock);
        (lock.start, lock.length) = CONNECTIONS;
        Ok(fcntl_getlk(&file, &lock)?.is_some())
    };
    let is_as_left = || -> Result<bool> {
        let serial: i64 =
            connection::open_alone(path)?
                .query_row("select serial from store", [], |row| row.get(0))?;
        Ok(guard.note()?.is_some_and(|note| note.is_of(serial)))
    };
    is_open().is_ok_and(|is| !is) && is_as_left().is_ok_and(|is| is)
}

/// Waits for the holders of a database whose side files were deleted, or which is no more in its place: what they have
/// committed is lost to whoever opens it now, but not to the kernel.
///
/// # Errors
/// They do not end, or cannot be asked about.
pub fn wait_for_lost_holders(path: &Path) -> Result<()> {
    let why = || format!("cannot open {}", Guard::path_for(path).display());
    let deadline = Instant::now() + MAKING;
    loop {
        let guard = match Guard::open_to_ask(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other.with_context(why)?,
        };
        let loss = loss(path, &guard).with_context(|| format!("cannot use {}", path.display()))?;
        // In this order: whoever is in the middle of [`take_place`] has removed the one side file, and not yet the others.
        if loss.is_none() && !guard.is_creation_locked().with_context(why)? {
            return Ok(());
        }
        let lives = guard.has_living_tickets().with_context(why)?;
        match loss {
            Some(Loss::SideFiles) if !lives || has_lost_nothing(path, &guard) => return Ok(()),
            Some(Loss::Place) if !lives && take_place(path)? => return Ok(()),
            _ => {}
        }
        if Instant::now() > deadline {
            let what = match loss {
                Some(Loss::SideFiles) => "its side files were deleted",
                Some(Loss::Place) => "it was put in the place of another",
                None => bail!(
                    "cannot use {}: another process has been putting it in its place for 10s",
                    path.display()
                ),
            };
            let bytes = guard.unknown_bytes(&HashSet::new()).with_context(why)?;
            let who = strangers::of(guard.inode(), &bytes);
            bail!(
                "cannot use {}: {what} while processes hold locks of it, and they have not ended{}",
                path.display(),
                who.map_or_else(String::new, |who| format!(": {who}"))
            );
        }
        wait::pause_unless_interrupted(LOOK)?;
    }
}

/// Removes the side files of the database that was here before; false while others are at it.
fn take_place(path: &Path) -> Result<bool> {
    let why = || format!("cannot use {}", path.display());
    let guard = open_guard(path)?;
    if !guard.lock_creation().with_context(why)? || guard.is_replaced() {
        return Ok(false);
    }
    if loss(path, &guard)? != Some(Loss::Place) || guard.has_living_tickets().with_context(why)? {
        return Ok(false);
    }
    let number = guard.note()?.map_or(0, |note| note.number);
    remove_leftovers(path).with_context(why)?;
    let Some(identity) = identity(path)? else {
        return Ok(false);
    };
    // Those who come next make side files, which may get the same inodes: nobody is to remove these.
    let note = Note {
        number,
        ..identity.note()
    };
    guard.write_note(note.committed(), true).with_context(why)?;
    Ok(true)
}

/// Fails unless the path still leads to this file: asked with the write lock had, before an answer is given that
/// would be about a file which nobody else sees.
///
/// # Errors
/// It does not, or that cannot be told.
pub fn check_in_place(path: &Path, identity: Identity) -> Result<()> {
    if is_in_place(path, identity)? {
        return Ok(());
    }
    bail!("it was deleted or replaced meanwhile")
}

/// `path` with an ending, such as SQLite's own side files have.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

/// Makes the database, unless another does so first. One maker at a time, under the guard's creation byte; and
/// none while processes live that hold locks of a deleted one, since a deleted file must not make two holders.
///
/// # Errors
/// It cannot be made, or the holders of the deleted one do not end.
pub fn make(path: &Path, clock: &Clock) -> Result<()> {
    let why = || format!("cannot make {}", path.display());
    let deadline = Instant::now() + MAKING;
    let mut obstacle = "another process has been making it for 10s";
    let (guard, content) = loop {
        let guard = open_guard(path)?;
        // Somebody may delete the guard between the open and the lock: then this byte would lock nobody out.
        if guard.lock_creation().with_context(why)? && !guard.is_replaced() {
            let content = peek(path)?;
            if matches!(content, Content::Database | Content::Older) {
                return Ok(());
            }
            if !guard.has_living_tickets().with_context(why)? {
                break (guard, content);
            }
            obstacle = "it was deleted or emptied while processes hold locks of it, and they have not ended";
        }
        // Whoever pauses does not keep the byte: he may be stopped.
        drop(guard);
        if Instant::now() > deadline {
            let who = holders_of_emptied(path).unwrap_or_default();
            bail!("cannot make {}: {obstacle}{who}", path.display());
        }
        wait::pause_unless_interrupted(LOOK)?;
    };
    remove_leftovers(path).with_context(why)?;
    match content {
        Content::Missing => put_in_place(path, &guard, clock),
        // With the creation byte had, nobody is filling it any more: whoever began has died over it.
        Content::Empty | Content::Unfinished => fill(path, &guard, clock),
        Content::Database | Content::Older => Ok(()),
    }
    .with_context(why)
}

/// Opens the guard file of a database, and makes it where there is none.
///
/// # Errors
/// Those of open(2), with the path.
pub fn open_guard(path: &Path) -> Result<Guard> {
    let why = || format!("cannot open {}", Guard::path_for(path).display());
    let began = Instant::now();
    loop {
        let database = fs::metadata(path).ok();
        // Whoever may use the one must be able to use the other, from the first moment on.
        let mode = database
            .as_ref()
            .map_or(0o600, |found| found.mode() & 0o666);
        let opened = {
            let _umask = OwnUmask::set(Mode::empty());
            Guard::open(path, mode)
        };
        match opened {
            Ok(guard) => {
                let owner = guard.owner().with_context(why)?;
                let also = database.as_ref().map(MetadataExt::uid);
                check_owner(&Guard::path_for(path), owner, also).with_context(why)?;
                if let Some(found) = database {
                    guard.match_access(found.mode(), found.uid(), found.gid());
                }
                return Ok(guard);
            }
            // Another user may be about to give it the database's group.
            Err(error)
                if error.kind() == ErrorKind::PermissionDenied
                    && access(path, Access::WRITE_OK).is_ok()
                    && began.elapsed() < SETTLING =>
            {
                wait::pause(LOOK);
            }
            Err(error) => return Err(error).with_context(why),
        }
    }
}

/// A umask that is not the caller's, until this is dropped.
pub struct OwnUmask(Mode);

impl OwnUmask {
    pub fn set(mask: Mode) -> Self {
        Self(umask(mask))
    }
}

impl Drop for OwnUmask {
    /// CMD gets the caller's.
    fn drop(&mut self) {
        umask(self.0);
    }
}

/// Side files of a deleted database, which SQLite would take for the new one's, and what a maker that was killed
/// left behind.
fn remove_leftovers(path: &Path) -> Result<()> {
    // The log last: by that it is known that there is something to remove.
    for ending in ["-journal", "-shm", "-wal"] {
        let file = beside(path, ending);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", file.display()));
            }
            _ => {}
        }
    }
    for workshop in workshops(path)? {
        let _ = fs::remove_dir_all(workshop);
    }
    Ok(())
}

/// Stands in the name of the directory in which a database is made, before its random number.
const MAKING_INFIX: &str = ".making-";

/// The name that it has in there.
const MADE: &str = "new.db";

/// A whole new database, synced, in a directory of its own, which goes when this is dropped. Nobody else can come in there and
/// lay a journal beside the new file, which SQLite would play back.
struct Built {
    workshop: PathBuf,
}

impl Built {
    fn new(path: &Path, guard: &Guard, clock: &Clock) -> Result<Self> {
        let number = chance::bytes().context("cannot draw a name")?;
        let name = format!("{MAKING_INFIX}{:016x}", u64::from_ne_bytes(number));
        let built = Self {
            workshop: beside(path, &name),
        };
        DirBuilder::new().mode(0o700).create(&built.workshop)?;
        build_at(&built.database(), guard, clock)?;
        Ok(built)
    }

    fn database(&self) -> PathBuf {
        self.workshop.join(MADE)
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        for ending in ["", "-wal", "-shm", "-journal"] {
            let _ = fs::remove_file(beside(&self.database(), ending));
        }
        let _ = fs::remove_dir(&self.workshop);
    }
}

fn build_at(temporary: &Path, guard: &Guard, clock: &Clock) -> Result<()> {
    let _umask = OwnUmask::set(Mode::empty());
    // Made here and not by SQLite, which knows only the umask to keep others from reading tokens.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(temporary)?;
    // A guard that outlived its database knows for whom that was set up.
    let (mode, group) = guard.mode_and_group()?;
    if file.metadata()?.gid() != group {
        let _ = std::os::unix::fs::fchown(&file, None, Some(group));
    }
    file.set_permissions(PermissionsExt::from_mode(mode & 0o666))?;
    drop(file);
    let connection = Connection::open_with_flags(
        temporary,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.pragma_update(None, "page_size", i64::try_from(PAGE_BYTES)?)?;
    connection.execute_batch("pragma journal_mode = wal; pragma synchronous = full;")?;
    let schema = bare(SCHEMA);
    connection.execute_batch(&format!("begin immediate; {schema} pragma application_id = {APPLICATION_ID}; pragma user_version = {LAYOUT};"))?;
    connection.execute(
        "insert into store (singleton, serial, boot_id) values (1, ?1, ?2)",
        params![first_number(guard, clock)?, clock.boot_id()],
    )?;
    connection.execute_batch("commit; pragma wal_checkpoint(truncate);")?;
    connection.close().map_err(|(_, error)| error)?;
    File::open(temporary)?.sync_all()?;
    Ok(())
}

/// Where a new counter begins, so that it goes on growing when the file was deleted: behind all numbers that the guard
/// file knows of, and those that a power failure has taken back there; and where that was deleted too, at the time of day,
/// which is ahead of a counter that was moved by nothing but grants.
fn first_number(guard: &Guard, clock: &Clock) -> Result<i64> {
    let note = guard.note()?;
    let behind = note.map(|note| note.number.saturating_add(BOOT_JUMP));
    Ok(clock.now().wall.max(behind.unwrap_or(0)))
}

/// The schema without what only its readers need: whoever opens the database reads and parses all of it.
fn bare(schema: &str) -> String {
    let lines = schema.lines().map(str::trim_start);
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with("--")).collect();
    lines.join("\n")
}

/// Gives the new database its name, whole or not at all.
fn put_in_place(path: &Path, guard: &Guard, clock: &Clock) -> Result<()> {
    let built = Built::new(path, guard, clock)?;
    let temporary = built.database();
    let linked = fs::hard_link(&temporary, path).or_else(|error| match error.kind() {
        ErrorKind::AlreadyExists => Err(error),
        // A file system without links; this too never replaces what is there.
        _ => renameat_with(CWD, &temporary, CWD, path, RenameFlags::NOREPLACE)
            .map_err(io::Error::from),
    });
    drop(built);
    match linked {
        // Somebody put a file there by hand: whoever opens it next judges it.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
        other => other?,
    }
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}

/// Fills an empty file in place: its owner, mode and links were somebody's choice. A marker goes first and the
/// header comes last, so that a half-filled file is never taken for a database, nor for anybody else's file. The header
/// goes alone, since a power failure may leave a part of what is written at once, but not of one sector.
fn fill(path: &Path, guard: &Guard, clock: &Clock) -> Result<()> {
    let target = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    check_owner(path, target.metadata()?.uid(), None)?;
    let image = fs::read(Built::new(path, guard, clock)?.database())?;
    let (first, rest) = image
        .split_at_checked(SECTOR_BYTES)
        .context("the new database has less than a sector")?;
    let mut marker = [0; HEADER_BYTES];
    marker[..UNFINISHED.len()].copy_from_slice(UNFINISHED);
    target.write_all_at(&marker, 0)?;
    target.sync_all()?;
    target.set_len(image.len() as u64)?;
    target.write_all_at(rest, SECTOR_BYTES as u64)?;
    target.sync_all()?;
    target.write_all_at(first, 0)?;
    target.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_update_adds_is_in_the_schema() {
        assert!(SCHEMA.contains(&format!("  {NEW_COLUMN}\n) strict, without rowid;")));
        assert_eq!(LAST_LAYOUT + 1, LAYOUT);
    }

    #[test]
    fn network_file_systems_are_known_and_local_ones_are_not() {
        for magic in [0x6969, 0xff53_4d42, 0x6573_5546, 0x0102_1997] {
            assert!(network_kind(magic).is_some(), "{magic:x}");
        }
        // ext4, tmpfs, xfs, btrfs, overlayfs, zfs
        for magic in [
            0xef53,
            0x0102_1994,
            0x5846_5342,
            0x9123_683e,
            0x794c_7630,
            0x2fc1_2fc1,
        ] {
            assert_eq!(network_kind(magic), None, "{magic:x}");
        }
    }

    #[test]
    fn a_path_is_resolved_through_links_that_lead_to_nothing_yet() {
        let directory = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(directory.path()).unwrap();
        fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink("real/l.db", root.join("link")).unwrap();
        assert_eq!(resolve(&root.join("link")).unwrap(), root.join("real/l.db"));
        assert_eq!(
            resolve(&root.join("real/../new.db")).unwrap(),
            root.join("new.db")
        );
        assert!(resolve(&root.join("missing/new.db")).is_err());
        std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
        assert!(resolve(&root.join("loop")).is_err());
    }
}
