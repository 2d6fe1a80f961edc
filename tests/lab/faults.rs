//! Those who do harm.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::bench::{Bench, Fault, LOCKS, MEASURED, POOL, lock};
use crate::chance::Chance;
use crate::support::ms;

/// Does harm until it is told to stop.
pub fn harm(bench: &Bench, chance: &mut Chance, stop: &AtomicBool) -> Vec<String> {
    let mut complaints = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(ms(chance.between(20..150)));
        match chance.between(0..20) {
            0..6 => strike(bench, chance, Fault::KillSupervisor, Signal::KILL),
            6..9 => strike(bench, chance, Fault::KillCommand, Signal::KILL),
            9..12 => strike(bench, chance, Fault::Terminate, Signal::TERM),
            12..14 => pause(bench, chance, Fault::Stop),
            14 => pause(bench, chance, Fault::StopCommand),
            15 | 16 => complaints.extend(force(bench, chance).err()),
            17 => hold_database(bench, chance),
            18 => hold_snapshot(bench, chance),
            _ => fill_disk(bench, chance),
        }
    }
    complaints
}

/// Sends a signal to one of those who bear it, or to its child; and keeps hold of that process, for its pid may be another's
/// soon.
fn send(bench: &Bench, chance: &mut Chance, fault: Fault, signal: Signal) -> Option<OwnedFd> {
    let mut contenders = lock(&bench.contenders);
    let mut able: Vec<_> = contenders
        .iter_mut()
        .filter(|(_, contender)| contender.bears.contains(&fault))
        .collect();
    able.sort_by_key(|(id, _)| **id);
    // Most of them wait: those who hold get their share.
    if fault == Fault::KillSupervisor && chance.once_in(2) {
        able.retain(|(_, contender)| child_of(contender.pid).is_some());
    }
    if able.is_empty() {
        return None;
    }
    let which = usize::try_from(chance.between(0..able.len() as u64)).expect("a length");
    let (_, contender) = &mut able[which];
    let pid = match fault {
        Fault::KillCommand | Fault::StopCommand => child_of(contender.pid)?,
        _ => contender.pid,
    };
    let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    // It suffered before it can have ended of it.
    contender.suffered.push(fault);
    pidfd_send_signal(&process, signal).ok()?;
    Some(process)
}

fn child_of(pid: i32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split(' ').next()?.parse().ok()
}

fn strike(bench: &Bench, chance: &mut Chance, fault: Fault, signal: Signal) {
    if send(bench, chance, fault, signal).is_some() {
        bench.count(fault);
    }
}

/// Stops a process for a while.
fn pause(bench: &Bench, chance: &mut Chance, fault: Fault) {
    let duration = ms(chance.between(10..700));
    bench.during(fault, || {
        if let Some(process) = send(bench, chance, fault, Signal::STOP) {
            std::thread::sleep(duration);
            // Whatever became of its contender meanwhile: a child that was stopped before its exec has the locks until it goes on.
            let _ = pidfd_send_signal(&process, Signal::CONT);
        }
        // Who was stopped in the middle of the line goes on when he is scheduled again.
        std::thread::sleep(ms(50));
    });
}

fn force(bench: &Bench, chance: &mut Chance) -> Result<(), String> {
    let name = *chance.one_of(&[LOCKS[0], LOCKS[1], MEASURED, POOL]);
    let outcome = bench.during(Fault::Force, || {
        let words = ["release", "-q", "--force", name];
        bench.sandbox.tenure().args(words).run()
    });
    match outcome.code {
        Some(0 | 76 | 69) => Ok(()),
        _ => Err(format!("release --force failed: {outcome:?}")),
    }
}

/// Somebody else writes to the database, and takes his time.
fn hold_database(bench: &Bench, chance: &mut Chance) {
    let connection = bench.sandbox.connect();
    let duration = ms(chance.between(10..400));
    bench.during(Fault::HoldDatabase, || {
        if connection.execute_batch("begin immediate").is_ok() {
            std::thread::sleep(duration);
            let _ = connection.execute_batch("rollback");
        }
    });
}

/// Somebody else reads what was there some time ago, and keeps the WAL from being written back.
fn hold_snapshot(bench: &Bench, chance: &mut Chance) {
    let connection = bench.sandbox.connect();
    let duration = ms(chance.between(100..1500));
    bench.during(Fault::HoldSnapshot, || {
        let begin = "begin; select count(*) from ticket";
        if connection.execute_batch(begin).is_ok() {
            std::thread::sleep(duration);
            let _ = connection.execute_batch("rollback");
        }
    });
}

fn fill_disk(bench: &Bench, chance: &mut Chance) {
    let path = bench.sandbox.path("filling");
    let duration = ms(chance.between(10..300));
    bench.during(Fault::FillDisk, || {
        if let Ok(mut file) = File::create(&path) {
            let block = vec![0x2a; 1 << 20];
            while file.write_all(&block).is_ok() {}
            while file.write_all(b".").is_ok() {}
        }
        std::thread::sleep(duration);
        let _ = fs::remove_file(&path);
        // Who was refused room tries once more before it gives up.
        std::thread::sleep(ms(100));
    });
}
