//! Proof of life: what keeps a lock held, and what frees it, when processes are killed, stopped and
//! left behind, when the guard file is gone, and when clocks and boot ids are not what they were.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};

use crate::support::{Call, Running, SOON, Sandbox, for_each, is_alive, ms, throughout, until};

/// CMD that leaves its pid in the file `orphan` of a process that is in no group or session of
/// tenure's, and then waits for its stdin to end.
const WITH_ORPHAN: &str = "setsid sh -c 'echo $$ > orphan.new; mv orphan.new orphan; exec sleep 61' & \
     until [ -e orphan ]; do sleep 0.01; done; echo ready; read x; exit 0";

fn holder_with_orphan<'a>(sandbox: &'a Sandbox, ttl: &str) -> (Running<'a>, i32) {
    let call = sandbox
        .tenure()
        .args(["run", "--ttl", ttl, "A", "--", "sh", "-c", WITH_ORPHAN]);
    let holder = call.start_ready();
    let pid = fs::read_to_string(sandbox.path("orphan")).expect("it was written");
    (holder, pid.trim().parse().expect("a pid"))
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is ours");
}

/// Whether `status` calls the lock's holder orphaned.
fn is_orphaned(sandbox: &Sandbox) -> bool {
    let outcome = sandbox.tenure().args(["status", "A"]).run();
    outcome.exits(0).stdout.contains("orphaned")
}

/// `tenure` in a mount namespace where the boot id is another, as after a reboot or in a container
/// that brings its own.
fn tenure_in_another_boot(sandbox: &Sandbox) -> Call<'_> {
    let boot_id = sandbox.path("boot_id");
    fs::write(&boot_id, "b0075bad-5e1f-4a11-8bad-c0ffee123456\n").expect("a fresh directory");
    let script = "mount --bind boot_id /proc/sys/kernel/random/boot_id && exec \"$@\"";
    sandbox
        .tenure()
        .via(["unshare", "-m", "sh", "-c", script, "sh"])
}

#[test]
fn a_killed_run_frees_its_lock_at_once_whatever_its_time_to_live() {
    let sandbox = Sandbox::new();
    for _ in 0..3 {
        let holder = sandbox.tenure().args(["run", "--ttl", "1h", "A"]).hold();
        assert!(sandbox.is_busy("A"));
        holder.kill();
        let killed = Instant::now();
        until(SOON, "the lock is free", || !sandbox.is_busy("A"));
        assert!(
            killed.elapsed() < ms(3000),
            "it took {:?}",
            killed.elapsed()
        );
    }
    sandbox
        .tenure()
        .args(["run", "--ttl", "1h", "A"])
        .hold()
        .kill();
    until(SOON, "CMD has died with tenure", || {
        !sandbox.is_running(&["sh", "-c", "echo ready; read x; exit 0"])
    });
    sandbox.acquire(["A"]);
}

#[test]
fn a_waiter_enters_at_once_when_the_holder_is_killed() {
    let sandbox = Sandbox::new();
    let holder = sandbox.tenure().args(["run", "--ttl", "1h", "A"]).hold();
    let call = sandbox
        .tenure()
        .args(["run", "--wait", "60s", "A", "--", "echo", "in"]);
    let mut waiter = call.start();
    throughout(ms(300), "the waiter waits", || !waiter.is_over());
    holder.kill();
    let killed = Instant::now();
    waiter.wait().exits(0).prints("in\n");
    assert!(
        killed.elapsed() < ms(3000),
        "it took {:?}",
        killed.elapsed()
    );
}

#[test]
fn a_killed_waiter_does_not_stand_in_the_way() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    for verb in [
        &["run", "A", "--wait", "60s", "--", "true"][..],
        &["acquire", "A", "--wait", "60s"],
    ] {
        let mut waiter = sandbox.tenure().args(verb).start();
        throughout(ms(300), "the waiter waits", || !waiter.is_over());
        waiter.kill();
    }
    holder.end().exits(0);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn never_two_at_once_although_holders_are_killed() {
    let sandbox = Sandbox::new();
    // A lock of the process's own is the witness. That of an open file the kernel gives up some time after the process can do
    // nothing more, and maybe after tenure's.
    let script = "import fcntl, time
witness = open('witness', 'a')
try:
    fcntl.lockf(witness, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open('log', 'a').write('two')
print('ready', flush=True)
time.sleep(0.02)
";
    for_each(0..80, |n| {
        let call = sandbox.tenure().args(["run", "--wait", "60s", "A", "--"]);
        let mut job = call.args(["python3", "-c", script]).start();
        if n % 2 == 0 {
            until(SOON, "it is its turn", || {
                job.is_over() || !job.stdout().is_empty()
            });
            if !job.is_over() {
                job.kill();
            }
        } else {
            job.wait().exits(0);
        }
    });
    assert!(!sandbox.path("log").exists(), "two held the lock at once");
}

#[test]
fn a_stopped_run_keeps_its_lock_beyond_its_time_to_live() {
    let sandbox = Sandbox::new();
    let holder = sandbox.tenure().args(["run", "--ttl", "1s", "A"]).hold();
    holder.stop();
    throughout(ms(3000), "the lock is held", || sandbox.is_busy("A"));
    holder.resume();
    throughout(ms(500), "the lock is held", || sandbox.is_busy("A"));
    holder.end().exits(0).says_nothing();
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_run_that_is_stopped_and_then_killed_frees_its_lock() {
    let sandbox = Sandbox::new();
    let holder = sandbox.tenure().args(["run", "--ttl", "1h", "A"]).hold();
    holder.stop();
    holder.kill();
    until(ms(3000), "the lock is free", || !sandbox.is_busy("A"));
}

#[test]
fn renewal_keeps_the_lock_of_a_long_job() {
    let sandbox = Sandbox::new();
    let holder = sandbox.tenure().args(["run", "--ttl", "300ms", "A"]).hold();
    throughout(ms(1500), "the lock is held", || sandbox.is_busy("A"));
    holder.end().exits(0).says_nothing();
}

#[test]
fn an_orphan_holds_the_lock_until_its_time_to_live_has_passed() {
    let sandbox = Sandbox::new();
    let (holder, orphan) = holder_with_orphan(&sandbox, "3s");
    assert!(!is_orphaned(&sandbox), "its tenure lives");
    holder.kill();
    let killed = Instant::now();
    assert!(sandbox.is_busy("A"));
    assert!(is_orphaned(&sandbox), "{:?}", sandbox.status());
    assert!(
        sandbox.status()[0].to_string().contains("orphaned"),
        "{:?}",
        sandbox.status()
    );
    // Renewed every second, it had two seconds at least when tenure was killed.
    throughout(ms(1000), "the lock is held", || sandbox.is_busy("A"));
    until(SOON, "the lock is free", || !sandbox.is_busy("A"));
    assert!(
        killed.elapsed() < ms(8000),
        "it took {:?}",
        killed.elapsed()
    );
    assert!(is_alive(orphan), "the orphan was not what ended it");
}

#[test]
fn an_orphan_that_dies_earlier_frees_the_lock_at_once() {
    let sandbox = Sandbox::new();
    let (holder, orphan) = holder_with_orphan(&sandbox, "1h");
    holder.kill();
    throughout(ms(300), "the lock is held", || sandbox.is_busy("A"));
    assert!(is_orphaned(&sandbox));
    kill(orphan);
    let killed = Instant::now();
    until(SOON, "the lock is free", || !sandbox.is_busy("A"));
    assert!(
        killed.elapsed() < ms(3000),
        "it took {:?}",
        killed.elapsed()
    );
}

#[test]
fn a_waiter_enters_at_once_when_the_lock_of_an_orphan_is_freed_by_force() {
    let sandbox = Sandbox::new();
    let (holder, orphan) = holder_with_orphan(&sandbox, "1h");
    holder.kill();
    let mut waiter = sandbox.waiter(&["A"]);
    throughout(ms(150), "the orphan has the lock", || !waiter.is_in());
    let force = ["release", "--force", "--now", "A"];
    sandbox.tenure().args(force).run().exits(0);
    waiter.enters_at_once();
    assert!(is_alive(orphan));
    waiter.end().exits(0);
}

/// An orphan that has A, alone of its job: the pid of its tenure, which was killed, and its own.
fn lone_orphan(sandbox: &Sandbox, ttl: &str) -> (i32, i32) {
    let (holder, orphan) = holder_with_orphan(sandbox, ttl);
    let killed = holder.pid();
    holder.kill();
    until(SOON, "the rest of the job is dead", || {
        let processes = sandbox.status()[0]["processes"].clone();
        processes.as_array().is_some_and(|all| all.len() == 1)
    });
    (killed, orphan)
}

#[test]
fn who_is_refused_because_of_an_orphan_reads_who_it_is_and_what_ends_it() {
    let sandbox = Sandbox::new();
    let (killed, orphan) = lone_orphan(&sandbox, "1h");
    let held = format!(
        "A is held by processes of root@*'s run (pid {killed}, killed): pid {orphan} (sleep 61); \
         for * at the most; kill {orphan} ends it, if need be with -9"
    );
    let outcome = sandbox.tenure().args(["run", "A", "--", "true"]).run();
    let location = sandbox.db();
    outcome.exits(75).says(&format!(
        "{held} (in {}); --wait waits for it",
        location.display()
    ));
    let json = sandbox.tenure().args(["acquire", "--json", "A"]).run();
    let answer = &json.exits(75).json()[0];
    assert_eq!(answer["held"][0]["processes"][0]["pid"], orphan, "{answer}");
    // What it says is so.
    let pid = rustix::process::Pid::from_raw(orphan).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is ours");
    until(SOON, "the lock is free", || !sandbox.is_busy("A"));
    assert_eq!(sandbox.status(), Vec::<serde_json::Value>::new());
}

#[test]
fn status_tells_of_an_orphan_who_it_is_and_what_ends_it() {
    let sandbox = Sandbox::new();
    let (killed, orphan) = lone_orphan(&sandbox, "1h");
    let json = &sandbox.status()[0];
    assert_eq!(json["state"], "orphaned");
    assert_eq!(json["pid"], killed);
    assert_eq!(
        json["processes"],
        serde_json::json!([{ "pid": orphan, "command": "sleep 61" }])
    );
    let outcome = sandbox.tenure().args(["status", "A"]).run();
    outcome
        .exits(0)
        .prints_with(&format!(", pid {killed} (killed)\n"))
        .prints_with(&format!("\n  processes   pid {orphan} (sleep 61)\n"))
        .prints_with(&format!(
            "\n  to end it   kill {orphan}, if need be with -9\n"
        ));
    sandbox.holder("B");
    let of_b = sandbox.tenure().args(["status", "--json", "B"]).run();
    assert_eq!(of_b.json()[0]["processes"], serde_json::Value::Null);
}

#[test]
fn of_an_orphan_with_many_processes_some_are_named_and_the_others_counted() {
    let sandbox = Sandbox::new();
    let script = "for n in 1 2 3 4 5; do setsid sleep 6$n & done; echo ready; read x; exit 0";
    let call = sandbox.tenure().args(["run", "--ttl", "1h", "A"]);
    let holder = call.args(["--", "sh", "-c", script]).start_ready();
    until(SOON, "all of them have left the group", || {
        (1..=5).all(|n| sandbox.is_running(&["sleep", &format!("6{n}")]))
    });
    holder.kill();
    until(SOON, "the rest of the job is dead", || {
        let processes = sandbox.status()[0]["processes"].clone();
        processes.as_array().is_some_and(|all| all.len() == 5)
    });
    let outcome = sandbox.tenure().args(["run", "A", "--", "true"]).run();
    outcome.exits(75).says(
        "A is held by processes of root@*'s run (pid *, killed): pid * (sleep 6*), pid * (sleep 6*), pid * (sleep 6*), \
         2 more; for * at the most; kill * * * * * ends it, if need be with -9 (in *); --wait waits for it",
    );
    let force = ["release", "--force", "--now", "A"];
    sandbox.tenure().args(force).run().exits(0);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn who_cannot_see_an_orphans_processes_reads_nothing_that_is_wrong() {
    let sandbox = Sandbox::new();
    let (killed, _) = lone_orphan(&sandbox, "1h");
    for name in ["l.db", "l.db-wal", "l.db-shm", "l.db-guard"] {
        let permissions = fs::Permissions::from_mode(0o666);
        fs::set_permissions(sandbox.path(name), permissions).expect("it is there");
    }
    let stranger = || sandbox.tenure_as(42_422, "");
    let outcome = stranger().args(["status", "A"]).run();
    outcome
        .exits(0)
        .prints_with("\n  to end it   tenure release --force --now A, though they may work on\n");
    assert!(!outcome.stdout.contains("\n  processes"), "{outcome:#?}");
    let outcome = stranger().args(["run", "A", "--", "true"]).run();
    outcome.exits(75).says(&format!(
        "A is held by processes of root@*'s run (pid {killed}, sh -c *, killed); for * at the most; \
         tenure release --force --now A ends it, though they may work on (in *); --wait waits for it"
    ));
}

#[test]
fn who_may_not_see_all_processes_reads_that_there_may_be_others() {
    let sandbox = Sandbox::new();
    let ann = 42_421;
    std::os::unix::fs::chown(sandbox.dir(), Some(ann), None).expect("our own");
    let tenure = || sandbox.tenure_as(ann, "");
    let call = tenure().args(["run", "--ttl", "1h", "A", "--", "sh", "-c", WITH_ORPHAN]);
    call.start_ready().kill();
    until(SOON, "the rest of the job is dead", || {
        let outcome = tenure().args(["run", "A", "--", "true"]).run();
        let one = outcome.stderr.contains("killed): pid ") && !outcome.stderr.contains("), pid ");
        if one {
            outcome.exits(75).says(
                "A is held by processes of 42421@*'s run (pid *, killed): pid * (sleep 61); for * at the most; \
                 kill * ends it, if need be with -9, if there are no others (in *); --wait waits for it",
            );
        }
        one
    });
}

#[test]
fn who_waits_for_an_orphan_reads_the_same() {
    let sandbox = Sandbox::new();
    let (killed, orphan) = lone_orphan(&sandbox, "1h");
    let call = sandbox.tenure().args(["run", "--wait", "60s", "A"]);
    let waiter = sandbox.queue(call.args(["--", "true"]));
    until(SOON, "it is told", || !waiter.stderr().is_empty());
    let told = waiter.stderr();
    let part = format!(
        "A is held by processes of root@{}'s run (pid {killed}, killed): pid {orphan} (sleep 61); for ",
        rustix::system::uname().nodename().to_string_lossy()
    );
    assert!(told.contains(&part), "{told}");
    kill(orphan);
    waiter.wait().exits(0);
}

#[test]
fn a_forced_release_that_waits_for_an_orphan_says_who_it_is_and_what_ends_it() {
    let sandbox = Sandbox::new();
    let (killed, orphan) = lone_orphan(&sandbox, "1h");
    let release = sandbox.tenure().args(["release", "--force", "A"]).start();
    until(SOON, "it is told", || !release.stderr().is_empty());
    assert!(sandbox.is_busy("A"), "they are at work");
    let status = sandbox.tenure().args(["status", "A"]).run();
    status.prints_with(
        "  state       revoked: release --force took it away, but its run was killed, and processes of its command live on\n",
    );
    kill(orphan);
    release.wait().exits(0).says(&format!(
        "waiting until processes of root@*'s run (pid {killed}, killed) end by themselves: pid {orphan} (sleep 61); \
         for * at the most; kill {orphan} ends it, if need be with -9; A is revoked (--now does not wait)"
    ));
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_lock_that_was_taken_from_an_orphan_does_not_rest() {
    let sandbox = Sandbox::new();
    let call = sandbox.tenure().args(["run", "--at-least", "1h", "A"]);
    let holder = call.args(["--", "sh", "-c", WITH_ORPHAN]).start_ready();
    let orphan = fs::read_to_string(sandbox.path("orphan")).expect("it was written");
    let orphan = orphan.trim().parse().expect("a pid");
    holder.kill();
    until(SOON, "it is orphaned", || is_orphaned(&sandbox));
    // To kill it would not do: the lock would rest.
    let outcome = sandbox.tenure().args(["run", "A", "--", "true"]).run();
    outcome.exits(75).says(
        "*; for 1h at the most; tenure release --force --now A ends it, though they may work on (in *",
    );
    let release = sandbox.tenure().args(["release", "--force", "A"]).start();
    until(SOON, "it is revoked", || {
        sandbox.status()[0]["state"] == "revoked"
    });
    kill(orphan);
    release.wait().exits(0).took(..SOON);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn the_token_of_an_orphan_releases_nothing_and_the_message_says_whose_it_is() {
    let sandbox = Sandbox::new();
    let script = format!("echo $TENURE_TOKEN >token; {WITH_ORPHAN}");
    let call = sandbox.tenure().args(["run", "--ttl", "1h", "A"]);
    call.args(["--", "sh", "-c", &script]).start_ready().kill();
    until(SOON, "it is orphaned", || is_orphaned(&sandbox));
    let token = fs::read_to_string(sandbox.path("token")).expect("it was written");
    let release = ["release", "--token", token.trim()];
    let outcome = sandbox.tenure().args(release).run();
    outcome.is_usage_error(
        "A is held by processes of root@*'s run (pid *, killed): pid * at the most; * ends it*; \
         the token of a run does not release what it holds",
    );
    assert!(sandbox.is_busy("A"));
}

#[test]
fn a_daemon_that_a_job_leaves_behind_holds_nothing() {
    let sandbox = Sandbox::new();
    for daemon in [
        "sleep 61 &",
        "setsid sleep 61 &",
        "nohup sleep 61 > /dev/null 2>&1 &",
    ] {
        for exit in ["exit 0", "exit 3", "kill -KILL $$"] {
            let script = format!("{daemon} {exit}");
            let outcome = sandbox
                .tenure()
                .args(["run", "A", "--", "sh", "-c", &script])
                .run();
            outcome.took(..ms(5000));
            assert!(!sandbox.is_busy("A"), "after {script}");
        }
    }
    let line = "tenure run A -- sh -c 'sleep 61 & exit 0'";
    sandbox
        .sh(line)
        .run()
        .exits(0)
        .prints_nothing()
        .says_nothing()
        .took(..ms(5000));
}

#[test]
fn what_cmd_inherits_beyond_its_standard_streams_has_high_numbers() {
    let sandbox = Sandbox::new();
    let listing = |call: Call<'_>| -> Vec<u32> {
        let outcome = call.args(["sh", "-c", "ls /proc/$$/fd"]).run();
        let lines = outcome.exits(0).stdout.lines();
        lines.map(|line| line.parse().expect("a number")).collect()
    };
    // What the tests' own caller has left open is there with and without tenure.
    let without = listing(sandbox.program("env"));
    let with = listing(sandbox.tenure().args(["run", "A", "--"]));
    let new: Vec<u32> = with
        .into_iter()
        .filter(|number| !without.contains(number))
        .collect();
    // Shells give 3 to 9 to scripts.
    assert!(
        !new.is_empty() && new.iter().all(|&number| number > 9),
        "{new:?}"
    );
}

#[test]
fn a_holder_in_another_pid_namespace_is_seen() {
    let sandbox = Sandbox::new();
    let call = sandbox
        .tenure()
        .args(["run", "--ttl", "1s", "A", "--", "sh", "-c"]);
    let call =
        call.arg("echo ready; read x; exit 0")
            .via(["unshare", "--pid", "--fork", "--mount-proc"]);
    let holder = call.start_ready();
    throughout(ms(300), "the lock is held", || sandbox.is_busy("A"));
    let call = sandbox.tenure().args(["run", "A", "--", "true"]);
    let inside = call
        .via(["unshare", "--pid", "--fork", "--mount-proc"])
        .run();
    inside.is_busy("A");
    holder.end().exits(0);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_deleted_guard_file_is_made_again_and_proves_the_holder_alive_as_before() {
    let sandbox = Sandbox::new();
    let holder = sandbox.tenure().args(["run", "--ttl", "1s", "A"]).hold();
    fs::remove_file(sandbox.guard()).expect("it was made");
    let removed = Instant::now();
    // Nobody else looks, so it is the holder who makes it again and locks its bytes in it.
    until(SOON, "the holder has its bytes in a new guard file", || {
        let inode = fs::metadata(sandbox.guard()).map_or(0, |metadata| metadata.ino());
        let locks = fs::read_to_string("/proc/locks").expect("/proc/locks can be read");
        inode != 0
            && locks
                .lines()
                .any(|line| line.contains(&format!(":{inode} ")))
    });
    assert!(
        removed.elapsed() < ms(6000),
        "it took {:?}",
        removed.elapsed()
    );
    throughout(ms(500), "the lock is held", || sandbox.is_busy("A"));
    // A stopped holder renews nothing: only the new guard can speak for it now.
    holder.stop();
    throughout(ms(3000), "the lock is held", || sandbox.is_busy("A"));
    holder.resume();
    holder.end().exits(0);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_deleted_guard_file_does_not_free_the_lock() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    for _ in 0..3 {
        fs::remove_file(sandbox.guard()).expect("it was made");
        throughout(ms(700), "the lock is held", || sandbox.is_busy("A"));
    }
    holder.end().exits(0);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_holder_that_is_killed_after_its_guard_file_was_deleted_has_its_time_to_live_at_most() {
    let sandbox = Sandbox::new();
    let (holder, orphan) = holder_with_orphan(&sandbox, "3s");
    fs::remove_file(sandbox.guard()).expect("it was made");
    // Two of the looks that a holder takes once a second.
    throughout(ms(2500), "the lock is held", || sandbox.is_busy("A"));
    holder.kill();
    let killed = Instant::now();
    // The orphan has its byte in the file that was deleted: nothing proves it dead or alive.
    throughout(ms(1000), "the lock is held", || sandbox.is_busy("A"));
    until(SOON, "the lock is free", || !sandbox.is_busy("A"));
    assert!(
        killed.elapsed() < ms(8000),
        "it took {:?}",
        killed.elapsed()
    );
    assert!(is_alive(orphan));
}

#[test]
fn a_forced_release_that_waits_sees_the_holder_in_a_guard_file_that_was_replaced_meanwhile() {
    let sandbox = Sandbox::new();
    let deaf = "trap '' TERM; echo ready; while :; do read x; sleep 0.05; done";
    let call = ["run", "A", "--ttl", "2s", "--kill-after", "60s"];
    let call = sandbox.tenure().args(call);
    let holder = call.args(["--", "sh", "-c", deaf]).start_ready();
    holder.stop();
    let mut release = sandbox.tenure().args(["release", "--force", "A"]).start();
    let told = "select count(*) from ticket where revoked_by is not null";
    until(SOON, "it is told", || sandbox.rows::<i64>(told) == [1]);
    // At the next of its looks the holder finds both.
    let inode = || sandbox.rows::<i64>("select guard_inode from ticket");
    let before = inode();
    fs::remove_file(sandbox.guard()).expect("it was made");
    holder.resume();
    until(SOON, "it has a byte in a new one", || inode() != before);
    // Nothing but the new guard file can tell that it lives when its time to live has passed.
    holder.stop();
    throughout(ms(4000), "the command waits", || !release.is_over());
    holder.resume();
    holder.kill();
    release.wait().exits(0);
}

#[test]
fn a_live_holder_is_busy_under_another_boot_id() {
    let sandbox = Sandbox::new();
    let holder = sandbox.tenure().args(["run", "--ttl", "500ms", "A"]).hold();
    let rival = || {
        tenure_in_another_boot(&sandbox)
            .args(["run", "A", "--", "touch", "ran"])
            .run()
            .is_busy("A");
        true
    };
    throughout(ms(1000), "it is busy", rival);
    holder.stop();
    throughout(ms(1500), "it is busy", rival);
    holder.resume();
    throughout(ms(500), "it is busy", rival);
    assert!(!sandbox.path("ran").exists(), "CMD was run");
    holder.end().exits(0);
    tenure_in_another_boot(&sandbox)
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
}

#[test]
fn a_holder_under_another_boot_id_is_busy_here() {
    let sandbox = Sandbox::new();
    let holder = tenure_in_another_boot(&sandbox)
        .args(["run", "--ttl", "500ms", "A"])
        .hold();
    throughout(ms(1500), "it is busy", || sandbox.is_busy("A"));
    holder.end().exits(0);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_bare_lease_outlives_a_reboot_by_its_time_to_live_at_most() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["A", "--ttl", "3s"]);
    let start = Instant::now();
    let attempt = || {
        tenure_in_another_boot(&sandbox)
            .args(["run", "A", "--", "true"])
            .run()
    };
    attempt().is_busy("A");
    until(SOON, "the lease is over", || attempt().code == Some(0));
    // It may be a little over twice 3 s when the machine was slow to come to the first look.
    assert!(
        (ms(2500)..ms(8000)).contains(&start.elapsed()),
        "it took {:?}",
        start.elapsed()
    );
}

#[test]
fn a_wall_clock_set_back_at_a_reboot_does_not_prolong_a_bare_lease() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["A", "--ttl", "2s"]);
    let start = Instant::now();
    let script = "mount --bind boot_id /proc/sys/kernel/random/boot_id && exec \"$@\"";
    let attempt = || {
        tenure_in_another_boot(&sandbox);
        let call = sandbox
            .tenure()
            .with_wall_clock_off_by(-86_400)
            .args(["run", "A", "--", "true"]);
        call.via(["unshare", "-m", "sh", "-c", script, "sh"]).run()
    };
    attempt().is_busy("A");
    until(SOON, "the lease is over", || attempt().code == Some(0));
    assert!(start.elapsed() < ms(8000), "it took {:?}", start.elapsed());
}

#[test]
fn the_wall_clock_ends_a_bare_lease_that_ran_out_while_the_machine_was_off() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["A", "--ttl", "1h"]);
    let script = "mount --bind boot_id /proc/sys/kernel/random/boot_id && exec \"$@\"";
    let attempt = |seconds| {
        tenure_in_another_boot(&sandbox);
        let call = sandbox
            .tenure()
            .with_wall_clock_off_by(seconds)
            .args(["run", "A", "--", "true"]);
        call.via(["unshare", "-m", "sh", "-c", script, "sh"]).run()
    };
    attempt(7200).exits(0);
}

#[test]
fn boots_that_take_turns_do_not_prolong_a_bare_lease() {
    // A container with a boot id of its own, and a wall clock that was set back after the grant.
    let sandbox = Sandbox::new();
    let call = sandbox.tenure().with_wall_clock_off_by(86_400);
    call.args(["acquire", "A", "--ttl", "2s"]).run().exits(0);
    let start = Instant::now();
    until(SOON, "the lease is over", || {
        let there = tenure_in_another_boot(&sandbox)
            .args(["run", "A", "--", "true"])
            .run();
        there.code == Some(0) || !sandbox.is_busy("A")
    });
    assert!(start.elapsed() < ms(8000), "it took {:?}", start.elapsed());
}

#[test]
fn fences_jump_at_a_reboot() {
    let sandbox = Sandbox::new();
    let fence = |call: Call<'_>| {
        let outcome = call
            .args(["run", "A", "--", "printenv", "TENURE_FENCE"])
            .run();
        outcome
            .exits(0)
            .stdout
            .trim()
            .parse::<u64>()
            .expect("a number")
    };
    let before = fence(sandbox.tenure());
    let after = fence(tenure_in_another_boot(&sandbox));
    // 2^20 is more than what a power failure can take back.
    assert!(after > before + (1 << 20), "{before} and then {after}");
}

#[test]
fn a_step_of_the_wall_clock_neither_ends_nor_prolongs_a_lease() {
    let sandbox = Sandbox::new();
    let day = 86_400;
    let attempt = |seconds| {
        sandbox
            .tenure()
            .with_wall_clock_off_by(seconds)
            .args(["run", "A", "--", "true"])
            .run()
    };
    let date = sandbox
        .tenure()
        .with_wall_clock_off_by(-20_000 * day)
        .via(["date", "+%Y", "-r"])
        .run();
    assert_eq!(date.code, Some(0), "the clock shim can be loaded");

    let token = sandbox.acquire(["A", "--ttl", "1h"]);
    for seconds in [day, -day] {
        attempt(seconds).is_busy("A");
    }
    sandbox
        .tenure()
        .args(["release", "--token", &token])
        .run()
        .exits(0);

    for (theirs, ours) in [(day, 0), (-day, 0), (0, day), (0, -day)] {
        let call = sandbox.tenure().with_wall_clock_off_by(theirs);
        call.args(["acquire", "A", "--ttl", "800ms"]).run().exits(0);
        let start = Instant::now();
        attempt(ours).is_busy("A");
        until(SOON, "the lease is over", || attempt(ours).code == Some(0));
        assert!(start.elapsed() < ms(5000), "it took {:?}", start.elapsed());
    }
}

#[test]
fn a_time_namespace_neither_ends_nor_prolongs_a_lease() {
    let sandbox = Sandbox::new();
    // As a container that was moved here from a machine that had been up for longer.
    let unshare = ["unshare", "--time", "--boottime", "100000", "--"];
    let inside = |words: &[&str]| sandbox.tenure().args(words).via(unshare).run();

    sandbox.acquire(["A", "--ttl", "1h"]);
    inside(&["run", "A", "--", "true"]).is_busy("A");
    let status = inside(&["status"]);
    status.exits(0).prints_with("A");

    inside(&["acquire", "B", "--ttl", "1s"]).exits(0);
    let start = Instant::now();
    assert!(sandbox.is_busy("B"));
    until(SOON, "the lease is over", || !sandbox.is_busy("B"));
    assert!(start.elapsed() < ms(5000), "it took {:?}", start.elapsed());

    inside(&["acquire", "C", "--ttl", "1h"]).exits(0);
    assert!(sandbox.is_busy("C"));
    sandbox.acquire(["D", "--ttl", "1s"]);
    until(SOON, "the lease is over", || {
        inside(&["run", "D", "--", "true"]).code == Some(0)
    });
}

#[test]
fn a_lease_granted_after_a_long_wait_for_the_database_has_its_whole_time_to_live() {
    let sandbox = Sandbox::new();
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    let administrator = sandbox.connect();
    administrator
        .execute_batch("begin immediate")
        .expect("nobody else writes");
    let mut acquire = sandbox
        .tenure()
        .args(["acquire", "A", "--ttl", "2s"])
        .start();
    throughout(ms(1500), "the database is locked", || !acquire.is_over());
    let granted_after = Instant::now();
    administrator
        .execute_batch("commit")
        .expect("a transaction was begun");
    acquire.wait().exits(0).says_nothing();
    while sandbox.is_busy("A") {
        assert!(granted_after.elapsed() < SOON, "the lease does not end");
    }
    let lasted = granted_after.elapsed();
    assert!(
        (ms(2000)..Duration::from_secs(6)).contains(&lasted),
        "it lasted {lasted:?}"
    );
}
